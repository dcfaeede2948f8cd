"""What befalls machines in long runs, one thing at a time: it costs their own unsent rows and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_training import Train
from hosts import Host, Hosts
from test_training import check_nothing_left

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def cluster(hosts: Hosts) -> list[Host]:
    """A head and two machines, which each test leaves as it found them."""
    return hosts.add_cluster(workers=2)


def kill_raylet(worker: Host) -> None:
    worker.kill_raylet()
    worker.restart_ray()
    worker.wait_for_ray()


def lose_power(worker: Host) -> None:
    worker.die()
    worker.boot()
    worker.restart_ray()
    worker.wait_for_ray()


def hang(worker: Host) -> None:
    assert worker.kill("ray::AgentShell", signal.SIGSTOP)


def leave_and_come_back(worker: Host) -> None:
    worker.kill("ray.scripts.scripts", signal.SIGTERM)
    worker.restart_ray()
    worker.wait_for_ray()


@pytest.mark.parametrize("fault", [kill_raylet, lose_power, hang, leave_and_come_back])
def test_a_machine_that_is_lost_is_used_again_when_it_is_back_and_the_other_goes_on(
    cluster: list[Host], train: Train, fault: Callable[[Host], None]
) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    training.wait_for_rows("worker2")
    fault(worker)
    training.wait_for_event("worker1 is lost")
    training.wait_for_rows("worker2")
    training.wait_for_event("worker1 samples again")
    training.wait_for_rows("worker1")
    training.stop()
    stored = training.check_rows()
    assert stored.of_machine(1) + stored.of_machine(2) == stored.rows
    known = {machine["name"] for machine in training.journal("metrics")[-1]["cluster"]["machines"]}
    assert known == {"worker1", "worker2"}
    check_nothing_left(training, head, worker, other)


def test_a_link_that_is_down_for_a_moment_costs_nothing(cluster: list[Host], train: Train) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    worker.cut()
    time.sleep(1.0)  # the fault itself: much shorter than the head's patience
    worker.restore()
    training.wait_for_rows("worker1")
    training.stop()
    training.check_rows()
    assert training.events("worker1 is lost") == []
    check_nothing_left(training, head, worker, other)


def test_a_sampler_that_is_killed_on_another_machine_is_replaced_there_and_none_of_its_rows_is_lost(
    cluster: list[Host], train: Train
) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    assert worker.kill("worker_main sampler")
    training.wait_for_event("sampler")
    training.wait_for_rows("worker1")
    training.stop()
    training.check_rows()
    assert training.events("worker1 is lost") == []
    assert training.summary["cluster"]["rows_lost"] == 0
    check_nothing_left(training, head, worker, other)


def test_a_gateway_that_is_killed_is_replaced_and_counts_on(cluster: list[Host], train: Train) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    assert head.kill("worker_main gateway")
    training.wait_for_event("gateway")
    for name in ("worker1", "worker2"):
        training.wait_for_rows(name)
    training.stop()
    training.check_rows()
    check_nothing_left(training, head, worker, other)


def test_without_its_control_service_the_run_goes_on_with_its_own_samplers(hosts: Hosts, train: Train) -> None:
    head, worker = hosts.add_cluster(workers=1)
    training = train(head, samplers=1)
    training.wait_for_rows("worker1")
    head.kill_control_service()
    training.wait_for_event("nothing answers at")  # Ray ends the gateway, and the next one finds no cluster
    before = training.journal("metrics")[-1]["env_steps"]
    training.wait_until(lambda: training.journal("metrics")[-1]["env_steps"] > before + 1000, "steps of its own")
    training.stop()
    check_nothing_left(training, head, worker)


def test_nothing_is_left_on_any_host_when_the_supervisor_is_killed_and_resume_goes_on(
    cluster: list[Host], train: Train
) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1", more=2000)
    training.wait_until(lambda: list((training.run_dir / "checkpoint").glob("*.json")), "a checkpoint")
    training.supervisor().kill()
    training.finish()
    check_nothing_left(training, head, worker, other)
    resumed = train(head, "resume", str(training.run_dir), "--cluster", "auto", "--quiet")
    resumed.wait_for_rows("worker1")
    resumed.wait_for_rows("worker2")
    resumed.stop()
    check_nothing_left(resumed, head, worker, other)


def test_a_machine_that_joins_in_the_middle_is_used(hosts: Hosts, cluster: list[Host], train: Train) -> None:
    head, worker, _ = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    late = hosts.add("worker3")
    late.begin_ray(head)
    late.wait_for_ray()
    training.wait_for_rows("worker3")
    training.stop()
    assert training.check_rows().of_machine(3) > 0
    check_nothing_left(training, head, worker, late)
    late.die()


def test_an_environment_that_fails_elsewhere_is_reported_with_its_machine_and_traceback(
    cluster: list[Host], train: Train, tmp_path: Path
) -> None:
    head, *_ = cluster
    training = train(head, env_kwargs={"count_dir": str(tmp_path / "counts"), "fails_on": "worker1"})
    training.wait_for_rows("worker2")
    training.wait_for_event("worker1")
    found = [event for event in training.journal("events") if "worker1" in event["reason"] and "traceback" in event]
    assert any("there are no steps on worker1" in event["traceback"] for event in found)
    training.wait_for_rows("worker2")
    training.stop()
    assert training.check_rows().of_machine(1) == 0


def test_a_machine_without_the_package_is_named_and_the_run_goes_on_without_it(
    hosts: Hosts, cluster: list[Host], train: Train, tmp_path: Path
) -> None:
    head, *_ = cluster
    # Its processes see a Spreeze of another version, as after an upgrade of the head alone.
    metadata = tmp_path / "other" / "spreeze-9.9.9.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: spreeze\nVersion: 9.9.9\n")
    stranger = hosts.add("worker4")
    stranger.begin_ray(head, environment={"PYTHONPATH": f"{tmp_path / 'other'}:{os.environ['PYTHONPATH']}"})
    stranger.wait_for_ray()
    training = train(head)
    training.wait_for_event("worker4 has spreeze 9.9.9")
    training.wait_for_rows("worker1")
    training.stop()
    assert training.check_rows().of_machine(4) == 0
    stranger.die()


def test_ctrl_c_in_a_terminal_ends_everything(cluster: list[Host], train: Train) -> None:
    head, worker, other = cluster
    training = train(head)
    training.wait_for_rows("worker1")
    training.supervisor().send_signal(signal.SIGINT)
    assert training.finish() == 130
    training.check_rows()
    check_nothing_left(training, head, worker, other)


def test_the_example_trains_on_two_nodes_of_one_machine(hosts: Hosts, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "cluster_on_one_machine.py"
    host = hosts.add("alone")
    words = ("Pendulum-v1", "--samplers", "0", "--max-env-steps", "2000", "--run-dir", str(tmp_path / "run"))
    quiet = ("--no-dashboard", "--no-video", "--device", "cpu")
    process = host.start(
        sys.executable, str(example), *words, *quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said.decode()
    assert host.processes("spreeze") + host.processes("/ray/") == []
    assert host.run("ls", "/run").split() == ["mount"]
