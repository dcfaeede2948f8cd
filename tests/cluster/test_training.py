"""Trainings whose samplers are on another host: every row once, whatever happens to the way between them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_training import Train, Training
from hosts import Host, Hosts
from numbered_rows import steps_made

MOST_UNHEARD = 200  # rows; after the cut alone there are thousands
SPREEZE = (sys.executable, "-m", "spreeze")


@pytest.fixture(scope="module")
def cluster(hosts: Hosts) -> tuple[Host, Host]:
    """A head that has no CPUs to give, and one machine that has one."""
    head, worker = hosts.add_cluster(workers=1)
    return head, worker


def check_nothing_left(training: Training, *hosts: Host) -> None:
    training.wait_until_gone(hosts)
    for host in hosts:
        assert "spreeze" not in host.run("ls", "/run")


def test_each_row_of_an_undisturbed_training_is_stored_once(cluster: tuple[Host, Host], train: Train) -> None:
    head, worker = cluster
    training = train(head, max_env_steps=2000)
    assert training.finish() == 0, training.said
    stored = training.check_rows()
    assert {source: len(steps) for source, steps in stored.steps.items()} == {
        source: steps for source, steps in steps_made(training.counts).items() if source[0] == 1
    }
    assert training.summary["cluster"]["rows_lost"] == 0
    assert stored.of_machine(1) == stored.rows >= 2000
    check_nothing_left(training, head, worker)


def test_an_agent_that_is_killed_and_a_link_that_is_cut_cost_no_row_that_had_left(
    cluster: tuple[Host, Host], train: Train
) -> None:
    head, worker = cluster
    training = train(head)
    training.kept_up = (worker,)
    training.wait_for_rows("worker1")
    assert worker.kill("ray::AgentShell")
    training.wait_for_event("worker1 is lost")
    training.wait_for_rows("worker1")
    worker.cut()
    training.wait_for_event("worker1 is lost", count=2)
    worker.restore()
    training.wait_for_rows("worker1")
    training.stop()
    stored = training.check_rows()
    processes = {source[:3] for source in stored.steps}
    assert len({pid for _, pid, _ in processes}) == 3
    # What was sampled while nobody listened is counted too, but for the last milliseconds of a killed agent.
    made = sum(steps for source, steps in steps_made(training.counts).items() if source[0] == 1)
    unheard = made - training.summary["cluster"]["rows_sampled"]
    assert 0 <= unheard < MOST_UNHEARD, training.summary
    check_nothing_left(training, head, worker)


def test_a_cluster_that_cannot_be_used_is_one_line_and_exit_code_2(
    hosts: Hosts, cluster: tuple[Host, Host], tmp_path: Path
) -> None:
    _, worker = cluster
    stranger = hosts.add("stranger")
    for host, address, said in (
        (stranger, "auto", "ray start"),
        (stranger, f"{worker.address}:1", "nothing answers"),
        (worker, "auto", "no other machine has a free CPU"),
    ):
        words = ("train", "Pendulum-v1", "--cluster", address, "--run-dir", str(tmp_path / "run"), "--no-dashboard")
        command = host.start(*SPREEZE, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            _, errors = command.communicate(timeout=120)
        except subprocess.TimeoutExpired as error:
            host.kill("spreeze train")
            pytest.fail(f"it goes on with --cluster {address}: {error.stdout!r}")
        assert (command.returncode, said in errors) == (2, True), errors
        assert len(errors.splitlines()) == 1, errors


def test_the_relay_carries_rows_and_every_one_is_checked(cluster: tuple[Host, Host], tmp_path: Path) -> None:
    head, _ = cluster
    path = tmp_path / "relay.json"
    words = ("bench", "cluster", "--row-bytes", "172", "--seconds", "0.2", "--json", str(path))
    head.run(*SPREEZE, *words, timeout_s=120)
    result = json.loads(path.read_text())
    assert result["machines"] == 1
    (figures,) = result["figures"]
    assert figures["row_bytes"] == 172
    assert figures["rows"] > 0
