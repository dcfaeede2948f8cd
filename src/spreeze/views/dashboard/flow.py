"""How transitions and weights flow through a run, what each process does now, and which one is the bottleneck.

In: the newest lines of metrics.jsonl, the newest evaluation, the config. Out: a `Flow`, which the page draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from spreeze.views.amounts import number
from spreeze.views.dashboard.formatting import count, score, seconds, share
from spreeze.views.machines import count_machines, link_that_waits
from spreeze.views.punctuality import WAITS, waits_for_person

WINDOW_S = 10.0  # waits come in bursts; over a shorter window the bottleneck would change with every line
MIN_WAIT_SHARE = 0.05  # less is noise of processes that share cores
BUSY_PERCENT = 95.0

NodeKey = Literal["samplers", "rings", "replay", "learner", "weights", "evaluator", "viewer"]


@dataclass(frozen=True)
class Node:
    """A box in the drawing of the flow."""

    key: NodeKey
    title: str
    lines: tuple[str, ...]
    level: float | None = None
    """How full it is, 0 to 1."""
    is_bottleneck: bool = False


@dataclass(frozen=True)
class Edge:
    """An arrow from one box to another."""

    source: NodeKey
    target: NodeKey
    label: str = ""
    moves: bool = False


@dataclass(frozen=True)
class Flow:
    """The whole drawing."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    sentence: str
    """The bottleneck, in one sentence."""

    def as_properties(self) -> dict[str, Any]:
        """Return the flow as JSON for flow.js."""
        return asdict(self)


@dataclass(frozen=True)
class Waits:
    """Shares of the last WINDOW_S that processes have spent waiting."""

    rings: float = 0.0
    """Samplers, for room in the rings."""
    ratio: float = 0.0
    """Samplers, because of min_updates_per_step."""
    learner: float = 0.0
    """The learner, for the warm-up or because of max_updates_per_step."""


@dataclass(frozen=True)
class Bottleneck:
    """Which process makes the others wait, and how that shows."""

    node: NodeKey | None
    sentence: str


def recent_waits(lines: Sequence[Mapping[str, Any]], window_s: float = WINDOW_S) -> Waits:
    """Compare the newest line with the one a window before it."""
    newest = lines[-1] if lines else None
    end_s = number(newest, "wall_s")
    if newest is None or end_s is None:
        return Waits()
    first = next((line for line in lines if (number(line, "wall_s") or 0.0) >= end_s - window_s), newest)
    passed_s = end_s - (number(first, "wall_s") or 0.0)
    if passed_s <= 0:
        return Waits()

    def waited(name: str, processes: float) -> float:
        spent_s = (number(newest, name) or 0.0) - (number(first, name) or 0.0)
        return min(1.0, max(0.0, spent_s / (passed_s * max(1.0, processes))))

    samplers = number(newest, "num_samplers") or 1.0
    return Waits(
        waited("ring_wait_s", samplers),
        waited("ratio_wait_s", samplers),
        waited("learner_wait_s", 1.0),
    )


def find_bottleneck(newest: Mapping[str, Any] | None, waits: Waits) -> Bottleneck:
    """Find the process that makes others wait."""
    if newest is None:
        return Bottleneck(None, "nothing has been measured yet")
    if waits_for_person(newest.get("realtime")):
        return Bottleneck("samplers", WAITS)
    if not number(newest, "updates"):
        return Bottleneck(None, "warming up: samplers fill the replay before the first update")
    longest = max(waits.rings, waits.ratio, waits.learner)
    if longest >= MIN_WAIT_SHARE:
        if longest == waits.learner:
            return Bottleneck(
                "samplers",
                f"the learner waits {share(longest)} of the time, to stay within max_updates_per_step: "
                "the samplers are the bottleneck",
            )
        if longest == waits.rings and (host := link_that_waits(newest.get("cluster"))):
            return Bottleneck(
                "rings",
                f"samplers wait for room in the rings {share(longest)} of the time, those on {host} for the link: "
                f"the link to {host} is the bottleneck",
            )
        if longest == waits.rings:
            return Bottleneck(
                "learner",
                f"samplers wait for room in the rings {share(longest)} of the time: the learner is the bottleneck",
            )
        return Bottleneck(
            "learner",
            f"samplers wait {share(longest)} of the time, to keep to min_updates_per_step: "
            "the learner is the bottleneck",
        )
    if (number(newest, "gpu_percent") or 0.0) >= BUSY_PERCENT:
        return Bottleneck("learner", "no process waits, and the GPU is busy: the learner is the bottleneck")
    if (number(newest, "cpu_percent") or 0.0) >= BUSY_PERCENT:
        return Bottleneck(None, "no process waits, and all cores are busy: the CPU is the bottleneck")
    return Bottleneck(None, "no process waits: samplers and learner run at full speed")


def describe_flow(
    recent: Sequence[Mapping[str, Any]],
    evaluation: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    *,
    is_running: bool,
    viewer: str,
) -> Flow:
    """Make the flow from the newest lines. viewer: the text in the viewer's box."""
    newest = recent[-1] if recent else None
    waits = recent_waits(recent)
    bottleneck = find_bottleneck(newest, waits)
    nodes = (
        _samplers(newest, waits),
        _rings(newest, waits),
        _replay(newest, config),
        _learner(newest, waits),
        Node("weights", "Weights", _weights_lines(newest, evaluation, config)),
        _evaluator(evaluation),
        Node("viewer", "Viewer", (viewer,)),
    )
    samples, learns = (is_running and bool(number(newest, name)) for name in ("sampling_hz", "update_hz"))
    lag = number(newest, "policy_lag_s")
    edges = (
        Edge("samplers", "rings", moves=samples),
        Edge("rings", "replay", moves=samples),
        Edge("replay", "learner", moves=learns),
        Edge("learner", "weights", moves=learns),
        Edge("weights", "evaluator", moves=learns),
        Edge("weights", "viewer", moves=learns and viewer == "live"),
        Edge("weights", "samplers", f"policy lag {seconds(lag)}", learns),
    )
    marked = tuple(Node(node.key, node.title, node.lines, node.level, node.key == bottleneck.node) for node in nodes)
    return Flow(marked, edges, bottleneck.sentence)


def _samplers(newest: Mapping[str, Any] | None, waits: Waits) -> Node:
    many = number(newest, "num_samplers")
    title = "Samplers" if many is None else f"{many:.0f} sampler{'' if many == 1 else 's'}"
    waiting = f"waiting {share(min(1.0, waits.rings + waits.ratio))}"
    if waits_for_person((newest or {}).get("realtime")):
        waiting = WAITS
    machines = count_machines((newest or {}).get("cluster"))
    elsewhere = (f"on {machines} other machine{'' if machines == 1 else 's'} too",) if machines else ()
    return Node("samplers", title, (f"{count(number(newest, 'sampling_hz'))} env steps/s", waiting, *elsewhere))


def _rings(newest: Mapping[str, Any] | None, waits: Waits) -> Node:
    fill = number(newest, "ring_fill")
    first = "one per sampler" if fill is None else f"{share(fill)} full"
    return Node("rings", "Rings", (first, f"no room {share(waits.rings)}"), _level(fill))


def _replay(newest: Mapping[str, Any] | None, config: Mapping[str, Any]) -> Node:
    rows, room = number(newest, "replay_rows"), number(config, "replay_rows")
    level = rows / room if rows is not None and room else None
    of_room = f"of {count(room)}" if room else "size unknown"
    return Node("replay", "Replay", (f"{count(rows)} rows", of_room), _level(level))


def _learner(newest: Mapping[str, Any] | None, waits: Waits) -> Node:
    frames, batch = number(newest, "update_frame_hz"), number(newest, "batch_size")
    lines = (
        f"{count(number(newest, 'update_hz'))} updates/s",
        f"× {count(batch)} = {count(frames)}/s" if batch else f"{count(frames)} transitions/s",
    )
    waiting = (f"waiting {share(waits.learner)}",) if waits.learner >= 0.005 else ()
    return Node("learner", "Learner", (*lines, *waiting))


def _weights_lines(
    newest: Mapping[str, Any] | None, evaluation: Mapping[str, Any] | None, config: Mapping[str, Any]
) -> tuple[str, ...]:
    version = number(evaluation, "version")
    interval = number(config, "publish_interval_s")
    none = "none evaluated yet" if number(newest, "updates") else "no version yet"
    lines = [none if version is None else f"version {version:,.0f}"]
    if interval is not None:
        lines.append(f"one every {seconds(interval)}")
    return tuple(lines)


def _evaluator(evaluation: Mapping[str, Any] | None) -> Node:
    mean, std = number(evaluation, "mean_return"), number(evaluation, "std_return")
    if mean is None:
        return Node("evaluator", "Evaluator", ("no evaluation yet",))
    return Node("evaluator", "Evaluator", (f"return {score(mean)}", f"± {score(std)}"))


def _level(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))
