"""An agent with real samplers in this process, and no Ray: what the head would ask it is asked here."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest

from spreeze.adapt.plan import plan_processes
from spreeze.channels.weights import WeightsChannel
from spreeze.cluster.agent import Agent
from spreeze.cluster.orders import AgentOrder, HeadState
from spreeze.cluster.relay import Block, Inbox
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.facts import find_spaces
from spreeze.host.hardware import Machine

GUARD_S = 120.0
SAMPLERS = 2


class Head:
    """Sends pulses to an agent, and takes its blocks."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.inbox = agent, Inbox()
        self.state = HeadState(updates=0, steps_elsewhere=0, steps_ahead=0, envs_at_work=8, samplers=SAMPLERS)
        self.report = agent.pulse(self.state)
        self.rows = list[np.ndarray[Any, Any]]()
        self.has_all = False

    def turn(self) -> None:
        self.report = self.agent.pulse(self.state)
        block = self.agent.next_block(self.inbox.last + 1, self.inbox.last)
        if block is not None and not block.number:
            self.has_all = True
        elif block is not None and (rows := self.inbox.accept(Block(*block))) is not None:
            self.rows.append(rows)

    def until(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GUARD_S
        while not is_there():
            assert time.monotonic() < deadline
            self.turn()


def order_of(folder: Path, env: Any = None, samplers: int = SAMPLERS, **fields: Any) -> bytes:
    """Return what an agent is ordered to do: sample Pendulum, as fast as it can. folder: for a log."""
    free = {"envs_per_sampler": 4, "min_updates_per_step": 0.0, "max_updates_per_step": None}
    config = Config("Pendulum-v1").replace(**{"device": "cpu", **free, **fields})
    config = plan_processes(config, Machine(cores=2, memory_bytes=2**33, gpus=())).config
    config = config.replace(ring_rows=1024, max_sampler_mb=4096, backend="gymnasium", env_threads="no")
    config = config.replace(stagger_episodes="no")
    spaces = find_spaces(EnvSpec("Pendulum-v1"), folder / "log")
    order = AgentOrder("here", config, EnvSpec("Pendulum-v1", factory=env), spaces, "gaussian", samplers)
    return bytes(cloudpickle.dumps(order))


@pytest.fixture
def make_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Head]]:
    """Return what makes an agent; its process, which is this one, does not end with it."""
    exited, heads = list[threading.Event](), list[Head]()

    def make(env: Any = None, **fields: Any) -> Head:
        event = threading.Event()
        exited.append(event)
        monkeypatch.setattr(Agent, "_exit", lambda _self: event.set())
        monkeypatch.setattr("spreeze.cluster.agent.HUNG_S", 0.0)  # it may hang: it is the one of all tests
        heads.append(Head(Agent(order_of(tmp_path, env, **fields))))
        return heads[-1]

    yield make
    for head, event in zip(heads, exited, strict=True):
        head.agent._is_over.set()
        head.agent._heard_at = 0.0  # as if its head had ended long ago
        assert event.wait(GUARD_S)
        assert not head.agent._folder.exists()


def children(parent: int | None = None) -> list[psutil.Process]:
    """The samplers that are there. parent: of this process, or of another one."""
    there = list[psutil.Process]()
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            there += [child] if "sampler" in child.cmdline() else []
    return there


def forking(folder: str) -> Callable[[], Any]:
    """Return what makes environments that start a process each, in a session of its own, and leave its number."""

    def make() -> Any:
        import subprocess
        from pathlib import Path

        import gymnasium

        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(folder, str(child.pid)).touch()
        return gymnasium.make("Pendulum-v1")

    return make


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Path]:
    """Return the folder for the numbers of what environments start, none of which outlives the test."""
    folder = tmp_path / "numbers"
    folder.mkdir()
    yield folder
    for process in started_in(folder):
        process.kill()


def started_in(folder: Path) -> list[psutil.Process]:
    """The processes that environments have started, and that still run."""
    found = list[psutil.Process]()
    for path in folder.iterdir():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(path.name)))
    return list(filter(is_running, found))


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # of a parent that reaps nobody
    except psutil.NoSuchProcess:
        return False


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rows_of_all_samplers_arrive_to_the_last_and_the_agent_says_how_many(
    make_head: Callable[..., Head], numbers: Path
) -> None:
    head = make_head(env=forking(str(numbers)))
    head.until(lambda: head.report.has_stepped and head.report.samplers == SAMPLERS)
    assert len(started_in(numbers)) >= SAMPLERS
    head.until(lambda: head.inbox.rows > 500)
    folder = head.agent._folder
    assert folder.exists()
    finishing = threading.Thread(target=head.agent.finish)
    finishing.start()
    head.until(lambda: head.has_all)
    finishing.join()
    report = head.agent.pulse(head.state)
    assert report.rows_written == report.env_steps == head.inbox.rows
    assert np.isfinite(np.concatenate(head.rows)).all()
    assert (children(), folder.exists()) == ([], False)
    wait_until(lambda: not started_in(numbers))


# An agent as on another machine, of an order in a file; it hears from its head as long as it lives.
AGENT = """
import sys, time
from pathlib import Path
from spreeze.cluster.agent import Agent
from spreeze.cluster.orders import HeadState
agent = Agent(Path(sys.argv[1]).read_bytes())
Path(sys.argv[2]).write_text(str(agent._folder))
while True:
    agent.pulse(HeadState(updates=0, steps_elsewhere=0, steps_ahead=0, envs_at_work=1, samplers=1))
    time.sleep(0.05)
"""


def test_nothing_of_an_agent_is_left_when_it_is_killed(tmp_path: Path, numbers: Path) -> None:
    order, told = tmp_path / "order", tmp_path / "folder"
    order.write_bytes(order_of(tmp_path, forking(str(numbers)), samplers=1, envs_per_sampler=1))
    agent = psutil.Popen([sys.executable, "-c", AGENT, str(order), str(told)])
    try:
        wait_until(lambda: bool(started_in(numbers)) or agent.poll() is not None)
        assert agent.poll() is None
        samplers = agent.children()
    finally:
        agent.kill()
        agent.wait()
    assert samplers
    wait_until(lambda: not started_in(numbers) and not any(map(is_running, samplers)))
    wait_until(lambda: not Path(told.read_text()).exists())


def test_samplers_keep_the_ratio_of_the_whole_run(make_head: Callable[..., Head]) -> None:
    head = make_head(warmup_steps=100, max_env_steps=10_000)
    head.state = head.state._replace(steps_elsewhere=10_000)  # others have made all steps of the run
    head.until(lambda: head.report.ratio_wait_s > 0)
    assert head.report.env_steps == 0
    head.state = head.state._replace(steps_elsewhere=9_000)
    head.until(lambda: head.report.env_steps >= 1000)
    assert head.report.env_steps <= 1000 + 4 * SAMPLERS


def test_a_sampler_that_dies_is_replaced_and_reported(make_head: Callable[..., Head]) -> None:
    head = make_head()
    head.until(lambda: head.report.has_stepped)
    killed = children()[0]
    killed.kill()
    warnings = list[tuple[str, str]]()

    def is_told() -> bool:
        warnings.extend(head.report.warnings)
        return any("killed by SIGKILL" in reason for reason, _ in warnings)

    head.until(is_told)
    head.until(lambda: head.report.samplers == SAMPLERS)
    assert killed not in children()


def test_an_environment_that_raises_is_reported_with_its_traceback(make_head: Callable[..., Head]) -> None:
    def broken() -> Any:
        raise ValueError("no power")

    head = make_head(env=broken)
    head.until(lambda: head.report.failure is not None)
    assert head.report.failure is not None
    reason, traceback = head.report.failure
    assert "no power" in reason
    assert "ValueError" in traceback
    assert head.report.samplers == 0


def test_samplers_end_when_the_head_is_not_heard(
    make_head: Callable[..., Head], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = make_head()
    head.until(lambda: head.report.has_stepped)
    there = children()
    assert there
    monkeypatch.setattr("spreeze.cluster.agent.LEASE_S", 0.0)
    assert psutil.wait_procs(there, GUARD_S)[1] == []


HANGING = """
import sys, threading
from pathlib import Path
from spreeze.cluster import agent
agent.HUNG_S, agent.LEASE_S = 0.5, float("inf")
kept = agent.Agent(Path(sys.argv[1]).read_bytes())
threading.Event().wait()
"""


def test_an_agent_that_hangs_is_killed_by_its_own_machine_with_its_samplers(tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.write_bytes(order_of(tmp_path))
    with subprocess.Popen([sys.executable, "-c", HANGING, str(order)]) as process:
        try:
            deadline = time.monotonic() + GUARD_S
            while not (there := children(process.pid)):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)  # for its first sampler
            process.send_signal(signal.SIGSTOP)
            assert process.wait(GUARD_S) == -signal.SIGKILL
        finally:
            process.kill()
    assert psutil.wait_procs(there, GUARD_S)[1] == []


def test_samplers_act_with_a_version_that_is_sent(make_head: Callable[..., Head], tmp_path: Path) -> None:
    head = make_head()
    folder = tmp_path / "run" / "weights"
    channel = WeightsChannel(folder)
    metadata = {"kind": "gaussian"}
    version = channel.writer().publish({"w": np.zeros(1, np.float32)}, metadata)
    content = (folder / f"policy-{version:08d}.safetensors").read_bytes()
    head.agent.take_weights(version, np.frombuffer(content, np.uint8))
    newest = head.agent._channels.weights.reader().newest()
    assert newest is not None
    assert (newest.version, newest.metadata["kind"]) == (version, "gaussian")
