"""What each ablation compares: its variants, by the flags of `spreeze train`, and the figures it shows of them.

In: the command line's settings and the machine. Out: lists of variants; columns of tables and panels of pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

FREE = ("--min-updates-per-step", "0")  # samplers never wait for the learner: all that they make has to be carried
ONE_LEARNER = ("--split", "no")
ONE_THREAD = ("--learner-threads", "1")  # which number is the fastest is found by trying, and may differ by chance
STATIC = ("--no-adapt",)

Probe = Literal["row latency", "weight latency"]


@dataclass(frozen=True)
class Variant:
    """One way to run."""

    name: str
    flags: tuple[str, ...] = ()
    series: str = ""
    """What it shares with others that differ from it in a number alone."""
    x: str = ""
    """That number, or what else it is called in a picture."""
    cores: int | None = None
    """It may use no more of them."""
    start: str = ""
    """What it starts from instead of the defaults, such as samplers=4,batch_size=512."""
    transport: str = ""
    """What it uses instead of ring and files: queue, or memory for weights."""


@dataclass(frozen=True)
class Column:
    """A figure of every run."""

    header: str
    key: str
    form: str = ",.0f"
    is_relative: bool = False
    """To the baseline's in the same repeat."""


@dataclass(frozen=True)
class Hardware:
    """What variants depend on."""

    cores: int
    gpus: int


Variants = Callable[[Any, Hardware], list[Variant]]


@dataclass(frozen=True)
class Ablation:
    """One question to the product, asked by one of its switches."""

    about: str
    rows: str
    """What the rows of its table are."""
    variants: Variants
    columns: tuple[Column, ...]
    panels: tuple[str, ...]
    """Keys of the columns that are drawn."""
    values: tuple[str, ...] = ()
    """What is swept by default. This and both lengths suit two cores."""
    skip_s: float = 6.0
    seconds: float = 18.0
    probe: Probe | None = None


COLUMNS = {
    "steps": Column("env steps/s", "sampling_hz"),
    "updates": Column("updates/s", "update_hz"),
    "updates ratio": Column("updates/s, ratio", "update_hz", ".2f", is_relative=True),
    "actor": Column("actor updates/s", "actor_update_hz"),
    "frames": Column("update frames/s", "update_frame_hz"),
    "objective": Column("objective", "objective"),
    "objective ratio": Column("objective, ratio", "objective", ".2f", is_relative=True),
    "intake": Column("learner's time on intake", "ingest_share", ".1%"),
    "waiting": Column("samplers' time waiting for room", "ring_wait_share", ".1%"),
    "row": Column("row from step to pool, ms", "row_latency_ms", ".2f"),
    "row 99": Column("99th percentile, ms", "row_latency_p99_ms", ".2f"),
    "exchange": Column("time on the exchange", "exchange_share", ".1%"),
    "publishing": Column("learner's time on publishing", "publish_share", ".2%"),
    "lag": Column("policy lag, ms", "policy_lag_ms"),
    "publication": Column("one publication, ms", "publish_ms", ".3f"),
    "use": Column("publication to use, ms", "weight_latency_ms", ".3f"),
    "use 99": Column("99th percentile, ms", "weight_latency_p99_ms", ".3f"),
    "samplers": Column("samplers at the end", "num_samplers"),
    "batch": Column("batch at the end", "batch_size"),
    "cpu": Column("CPU %", "cpu_percent"),
    "gpu": Column("GPU %", "gpu_percent"),
    "solved": Column("seconds to {target}", "time_to_target_s", ".1f"),
}


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(COLUMNS[name] for name in names)


def plugged(name: str, transports: dict[str, str], *flags: str) -> Variants:
    """Use one learner on one thread with each transport, for each value of the last flag."""
    shared = (*STATIC, *ONE_LEARNER, *ONE_THREAD, *flags)
    return lambda asked, _: [
        Variant(name.format(series, value), (*shared, value), series, value, transport=transport)
        for value in asked.values
        for series, transport in transports.items()
    ]


def swept(*flags: str) -> Variants:
    """Give each value to the last flag."""
    return lambda asked, _: [Variant(value, (*STATIC, *flags, value), "", value) for value in asked.values]


def adaptation_variants(arguments: Any, hardware: Hardware) -> list[Variant]:
    # Nobody would choose it: a GPU that is hardly used, or samplers that fight for the cores.
    count, batch_size = (1, 256) if hardware.gpus else (2 * hardware.cores, 512)
    bad = arguments.bad_start or f"samplers={count},batch_size={batch_size}"
    return [
        Variant("defaults, static", STATIC, "static", "defaults"),
        Variant("defaults, adapted", ("--fresh",), "adapted", "defaults"),
        Variant(f"{bad}, static", STATIC, "static", "bad start", start=bad),
        Variant(f"{bad}, adapted", ("--fresh",), "adapted", "bad start", start=bad),
        *(Variant(name, (*STATIC, *flags), "static", name) for name, flags in arguments.static),
    ]


def device_variants(_: Any, hardware: Hardware) -> list[Variant]:
    def apart(name: str, critic: str, actor: str) -> Variant:
        return Variant(name, (*STATIC, "--critic-device", critic, "--actor-device", actor), "", name)

    if not hardware.gpus:
        together = Variant("one process", (*STATIC, *ONE_LEARNER, "--device", "cpu"), "", "one process")
        return [together, apart("actor and critics apart", "cpu", "cpu")]
    variants = [
        Variant("one GPU", (*STATIC, *ONE_LEARNER, "--device", "cuda:0"), "", "one GPU"),
        apart("apart, on one GPU", "cuda:0", "cuda:0"),
    ]
    if hardware.gpus > 1:
        return [*variants, apart("apart, on two GPUs", "cuda:0", "cuda:1")]
    return [*variants, apart("critics on the GPU, actor on the CPU", "cuda:0", "cpu")]


def restricted_variants(arguments: Any, hardware: Hardware) -> list[Variant]:
    counts = [int(value) for value in arguments.values]
    return [Variant(f"{n} of {hardware.cores} cores", STATIC, "", f"{n} cores", cores=n) for n in counts]


ABLATIONS: dict[str, Ablation] = {
    "transport": Ablation(
        "transitions through shared memory, or through a multiprocessing queue",
        "transport, samplers",
        plugged("{0}, {1}", {"shm": "", "queue": "queue"}, *FREE, "--samplers"),
        columns("steps", "updates", "updates ratio", "intake", "waiting", "row", "row 99"),
        ("sampling_hz", "update_hz", "row_latency_ms"),
        values=("1", "2", "4"),
        seconds=8.0,
        probe="row latency",
    ),
    "batch": Ablation(
        "the size of a batch",
        "batch",
        swept("--batch-size"),
        columns("steps", "updates", "frames", "cpu", "gpu", "solved"),
        ("update_hz", "update_frame_hz", "time_to_target_s"),
        values=("64", "128", "256", "512"),
    ),
    "samplers": Ablation(
        "the number of samplers, with nobody waiting for the learner",
        "samplers",
        swept(*FREE, "--samplers"),
        columns("steps", "updates", "updates ratio", "cpu", "gpu", "lag", "solved"),
        ("sampling_hz", "update_hz", "time_to_target_s"),
        values=("1", "2", "4"),
    ),
    "adaptation": Ablation(
        "adaptation on or off, from the defaults and from a deliberately bad start",
        "start",
        adaptation_variants,
        columns("steps", "updates", "frames", "objective", "objective ratio", "samplers", "batch", "solved"),
        ("objective", "update_hz", "time_to_target_s"),
        skip_s=50.0,
        seconds=10.0,
    ),
    "devices": Ablation(
        "the learner on one device, or split into actor and critics",
        "learner",
        device_variants,
        columns("steps", "updates", "actor", "frames", "updates ratio", "exchange", "cpu", "gpu", "solved"),
        ("update_hz", "actor_update_hz", "time_to_target_s"),
    ),
    "restricted": Ablation(
        "fewer cores",
        "machine",
        restricted_variants,
        columns("steps", "updates", "frames", "updates ratio", "cpu", "gpu", "solved"),
        ("sampling_hz", "update_hz", "time_to_target_s"),
        values=("2", "1"),
    ),
    "weights": Ablation(
        "weights through files, or through shared memory",
        "transport, interval",
        plugged("{0}, every {1} s", {"file": "", "shm": "memory"}, "--publish-interval-s"),
        columns("steps", "updates", "updates ratio", "publishing", "lag", "publication", "use", "use 99"),
        ("update_hz", "publish_ms", "weight_latency_ms"),
        values=("0.25", "0.02"),
        seconds=8.0,
        probe="weight latency",
    ),
}


def baseline_of(variant: dict[str, Any], variants: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what a variant is compared with: the first of the same x, or the first of all if no two share one."""
    has_series = len({other["series"] for other in variants}) > 1
    return next(other for other in variants if other["x"] == variant["x"] or not has_series)
