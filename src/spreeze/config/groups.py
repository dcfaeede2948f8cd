"""The groups of the configuration: frozen dataclasses with defaults and validation.

Their types are marked with the section of `spreeze train --help` that lists a setting (`sections.py`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

from spreeze.algorithms.spec import Auto, LearnerRole
from spreeze.config.fields import (
    require_at_least,
    require_device,
    require_finite,
    require_positive,
    require_within,
)
from spreeze.config.sections import Algorithm, Expert, Hardware, Learning, MostUsed
from spreeze.errors import ConfigError

Backend = Literal["auto", "gymnasium", "mujoco", "envpool"]

MAX_LAG_EXCHANGES = 8  # a side may make the updates of so many exchanges with the same copy of the other's parameters


@dataclass(frozen=True)
class EnvironmentConfig:
    """The environment to train on."""

    env_module: tuple[str, ...] = ()
    """Python modules to import first, if they register the environment on import."""
    env_kwargs: str = "{}"
    """Keyword arguments of the environment, as a JSON object: '{"forward_reward_weight": 2}'."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps. None: the environment's own limit."""
    backend: Backend = "auto"
    """Library that steps the environments: Gymnasium, one environment at a time; mujoco, Gymnasium's MuJoCo robots in
    batches with the same transitions; or EnvPool. auto: mujoco if it supports the environment."""
    env_threads: Expert[Literal["auto", "yes", "no"]] = "auto"
    """Step each environment in a thread of its own, so that those that wait (a simulator behind a socket, a sleep)
    wait side by side. auto: where that was measured to help at the start."""

    def __post_init__(self) -> None:
        try:
            kwargs = json.loads(self.env_kwargs, parse_constant=_refuse_constant)
        except ValueError as error:
            raise ConfigError(
                f"--env-kwargs is not JSON ({error}): write it like '{{\"gravity\": 9.81}}', in single quotes"
            ) from None
        if not isinstance(kwargs, dict):
            raise ConfigError(
                f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.81}}', not {self.env_kwargs}"
            )
        require_at_least(self, "max_episode_steps", 1)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")  # json.loads takes it, and config.json must be JSON for everybody


@dataclass(frozen=True)
class LimitsConfig:
    """When to stop. The first limit that is reached ends the run; without a limit it runs until Ctrl-C."""

    max_seconds: MostUsed[float | None] = None
    """Stop after this many seconds, counted from the start of the command."""
    max_env_steps: MostUsed[int | None] = None
    """Stop after this many environment steps of all samplers."""
    max_updates: int | None = None
    """Stop after exactly this many updates."""
    target_return: MostUsed[float | None] = None
    """Stop when the mean return of an evaluation reaches this value."""

    def __post_init__(self) -> None:
        require_positive(self, "max_seconds")
        require_at_least(self, "max_env_steps", 1)
        require_at_least(self, "max_updates", 1)
        require_finite(self, "target_return")


@dataclass(frozen=True)
class SamplingConfig:
    """How samplers collect transitions."""

    samplers: MostUsed[int | Auto] = "auto"
    """Number of sampler processes on this machine. 0: all of them are on other machines, with --cluster."""
    envs_per_sampler: Hardware[int | Auto] = "auto"
    """Number of environments that each sampler steps as one batch."""
    warmup_steps: Learning[int] = 1000
    """Environment steps of all samplers, with random actions, before the first update."""
    exploration: Algorithm[float | Auto] = "auto"
    """Exploration noise. Of a deterministic policy: standard deviation of the noise on actions. Of a Gaussian one:
    factor on its own standard deviation. Of dqn: probability of a random choice. With --exploration-high: the lowest
    noise of all environments."""
    exploration_high: Expert[Algorithm[float | Auto]] = "auto"
    """Highest exploration noise. Each environment has its own noise between --exploration and this."""
    ring_rows: Expert[Hardware[int | Auto]] = "auto"
    """Transitions that the ring of one sampler holds. A sampler waits while its ring is full."""
    realtime: Expert[Hardware[float | None]] = None
    """Steps per second of one real robot, or whatever else exists once and does not wait: one environment in one
    sampler, each step at its deadline. None: as fast as possible."""
    stagger_episodes: Expert[Literal["auto", "yes", "no"]] = "auto"
    """Shorten the first episode of each environment by another amount, so that a sampler's episodes do not all end in
    the same step. auto: where a reset takes long."""
    hang_s: Expert[Hardware[float]] = 120.0
    """Restart a sampler, evaluator or viewer that shows no sign of life for this many seconds. Must be longer than
    the slowest reset or step."""
    stall_s: Expert[Hardware[float]] = 20.0
    """Warn when there was no environment step, or no update after the warm-up, for this many seconds."""
    max_sampler_mb: Expert[Hardware[int | Auto]] = "auto"
    """Restart a sampler that uses more memory than this, in MB. auto: half of the memory that is free at the start,
    divided by the maximum number of samplers, and at least 1024."""

    def __post_init__(self) -> None:
        require_positive(self, "hang_s")
        require_positive(self, "stall_s")
        require_positive(self, "realtime")
        require_at_least(self, "max_sampler_mb", 1)
        require_at_least(self, "samplers", 0)
        require_at_least(self, "envs_per_sampler", 1)
        require_at_least(self, "warmup_steps", 1)
        require_at_least(self, "ring_rows", 1)
        require_at_least(self, "exploration", 0)
        require_at_least(self, "exploration_high", 0)
        low, high = self.exploration, self.exploration_high
        if high != "auto" and low != "auto" and high < low:
            raise ConfigError(f"--exploration-high {high} is below --exploration {low}: exchange them")


@dataclass(frozen=True)
class ClusterConfig:
    """Samplers on other machines, by Ray."""

    cluster: str | None = None
    """Use the machines of a Ray cluster too: HOST:PORT of its head, or auto for the cluster that this machine is in.
    Needs the extra "ray". None: this machine alone."""
    cluster_samplers: int | Auto = "auto"
    """Number of sampler processes on each other machine. auto: one for each of its free CPUs."""
    cluster_ship: Expert[bool] = False
    """Send the modules of --env-module to the other machines. Otherwise they must be installed there."""

    def __post_init__(self) -> None:
        require_at_least(self, "cluster_samplers", 1)
        if self.cluster is not None and self.cluster != "auto" and not _is_address(self.cluster):
            raise ConfigError(f"--cluster must be auto or HOST:PORT, such as 10.0.0.1:6379, not '{self.cluster}'")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host.strip()) and port.isdecimal() and 0 < int(port) < 65536


@dataclass(frozen=True)
class LearningConfig:
    """How the learner updates the policy."""

    batch_size: MostUsed[int | Auto] = "auto"
    """Transitions in one update."""
    replay_rows: int | Auto = "auto"
    """Capacity of the replay, in transitions. auto: one million, or fewer if memory is short."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: MostUsed[float] = 1e-3
    """Learning rate of Adam, for all networks."""
    learning_rate_batch: Expert[int | Auto] = "auto"
    """Batch size that --learning-rate applies to. For larger batches it grows with the square root of the ratio.
    auto: --batch-size if it is set, else its default."""
    gamma: float | Auto = "auto"
    """Discount factor. auto: 0.99, unless docs/recipes.md lists another for the environment."""
    tau: Algorithm[float | Auto] = "auto"
    """Fraction by which the target critics move towards the critics at each update."""
    n_step: int | Auto = "auto"
    """Number of steps of n-step returns. There is no off-policy correction, and no entropy bonus for the steps
    between."""
    actor_delay: Algorithm[int | Auto] = "auto"
    """Number of critic updates for each actor update."""
    normalise_observations: bool = False
    """Scale observations to mean 0 and variance 1."""
    layer_norm: bool = False
    """Use layer normalisation in the critics."""
    atoms: Algorithm[int] = 1
    """Atoms of distributional critics (C51). 1: critics with a single value."""
    value_range: Algorithm[tuple[float, float] | None] = None
    """Lowest and highest value (discounted return) of distributional critics. Required with --atoms."""
    min_updates_per_step: float | Auto = "auto"
    """Minimum of updates per environment step. Samplers wait below it. 0: they never wait."""
    max_updates_per_step: float | Auto | None = "auto"
    """Maximum of updates per environment step. The learner waits above it. auto: what was measured to learn well.
    None: it never waits."""
    device: MostUsed[str] = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:N."""
    split: Hardware[Literal["auto", "yes", "no"]] = "auto"
    """Train actor and critics in two processes. auto: only where that was measured to be faster."""
    actor_device: Hardware[str | None] = None
    """Device of the actor's process. Needs --critic-device. None: decided by --split."""
    critic_device: Hardware[str | None] = None
    """Device of the critics' process. Needs --actor-device."""
    exchange_updates: Expert[Hardware[int | Literal["lock-step"]]] = 128
    """Updates between two exchanges of parameters, if actor and critics have two processes. One process waits for the
    other after 8 times as many. lock-step: they take turns, which gives the same updates as one process."""
    learner_threads: Expert[Hardware[int | Auto]] = "auto"
    """CPU threads of the learner."""
    update_engine: Expert[Literal["auto", "eager", "graph", "fused", "bfloat16"]] = "auto"
    """Implementation of updates. GPU: eager, CUDA graphs (graph), or CUDA graphs with Triton kernels (fused). CPU:
    float32 (eager), or bfloat16. auto: the fastest."""
    publish_interval_s: Expert[float] = 0.25
    """Seconds between two published versions of the weights."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "replay_rows", "learner_threads", "learning_rate_batch", "n_step", "actor_delay"):
            require_at_least(self, name, 1)
        require_at_least(self, "exchange_updates", 1)
        require_at_least(self, "atoms", 1)
        self._check_value_range()
        for name in ("learning_rate", "publish_interval_s", "max_updates_per_step"):
            require_positive(self, name)
        require_within(self, "gamma", 0.0, 1.0)
        require_within(self, "tau", 0.0, 1.0)
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"--hidden needs one or more widths of at least 1, not {list(self.hidden)}")
        if self.device != "auto":
            require_device("device", self.device, "auto, cpu, cuda or cuda:N")
        for name in ("actor_device", "critic_device"):
            if (device := getattr(self, name)) is not None:
                require_device(name, device, "cpu, cuda or cuda:N")
        if (self.actor_device is None) != (self.critic_device is None):
            given, missing = ("actor", "critic") if self.critic_device is None else ("critic", "actor")
            raise ConfigError(f"--{given}-device needs --{missing}-device too; both may name the same device")
        if self.split == "no" and self.is_split:
            raise ConfigError(
                "--split no contradicts --actor-device and --critic-device: leave the one or the others out"
            )
        require_at_least(self, "min_updates_per_step", 0)
        low, high = self.min_updates_per_step, self.max_updates_per_step
        if low != "auto" and high != "auto" and high is not None and low > high:
            raise ConfigError(
                f"--min-updates-per-step {low} is above --max-updates-per-step {high}: "
                "both sides would wait for each other"
            )
        if self.batch_size != "auto" and self.replay_rows != "auto" and self.batch_size > self.replay_rows:
            raise ConfigError(
                f"--batch-size {self.batch_size} is more than --replay-rows {self.replay_rows}: "
                "lower the one or raise the other"
            )

    def _check_value_range(self) -> None:
        if self.value_range is not None and not all(map(math.isfinite, self.value_range)):
            raise ConfigError(f"--value-range must be two finite numbers, not {list(self.value_range)}")
        if self.atoms > 1 and (self.value_range is None or not self.value_range[0] < self.value_range[1]):
            raise ConfigError(f"--atoms {self.atoms} needs --value-range LOW HIGH, for example 0 1000")

    @property
    def is_lock_step(self) -> bool:
        """Whether actor and critics take turns."""
        return self.exchange_updates == "lock-step"

    @property
    def updates_per_exchange(self) -> int:
        """Updates of one side from one exchange to the next."""
        return 1 if self.exchange_updates == "lock-step" else self.exchange_updates

    @property
    def max_lag_updates(self) -> int:
        """Updates that one side may make with the same copy of the other's parameters, if they do not take turns."""
        return MAX_LAG_EXCHANGES * self.updates_per_exchange

    @property
    def is_split(self) -> bool:
        """Whether actor and critics learn in processes of their own."""
        return self.actor_device is not None and self.critic_device is not None

    @property
    def learner_roles(self) -> tuple[LearnerRole, ...]:
        """The roles of the learner's processes."""
        return ("critic", "actor") if self.is_split else ("all",)

    def device_of(self, role: LearnerRole) -> str:
        """Return the device of the learner process with this role."""
        device = {"all": self.device, "critic": self.critic_device, "actor": self.actor_device}[role]
        assert device is not None, "not split"
        return device


@dataclass(frozen=True)
class AdaptationConfig:
    """How a run adapts to the machine. It never changes a setting that has a number."""

    adapt: bool = True
    """Adapt samplers, batch size, learner threads and core placement during the run. --no-adapt keeps the values that
    are chosen at the start."""
    adapt_after_s: Expert[float] = 10.0
    """Seconds from the start of the run to the first attempt to adapt."""
    fresh: bool = False
    """Ignore what earlier runs of this task found on this machine."""
    pin_cores: Expert[Literal["auto", "yes", "no"]] = "auto"
    """Run learner and samplers on separate cores (Linux). auto: only if that was measured to be faster."""
    max_samplers: int | Auto = "auto"
    """Maximum number of samplers that adaptation tries. auto: twice the number of cores, and at least 4; for
    environments that wait, 8 per core."""
    max_batch_size: int | Auto = "auto"
    """Maximum batch size that adaptation tries. auto: 8192 on a GPU, 512 on a CPU."""

    def __post_init__(self) -> None:
        require_at_least(self, "adapt_after_s", 0)
        for name in ("max_samplers", "max_batch_size"):
            require_at_least(self, name, 1)


@dataclass(frozen=True)
class EvaluationConfig:
    """How the evaluator scores the policy."""

    eval_episodes: int = 10
    """Episodes of one evaluation, with the deterministic policy."""
    eval_interval_s: float = 1.0
    """Minimum of seconds between two evaluations. Longer if evaluations would take too much CPU time. A serial run
    counts steps instead: it makes as many between two evaluations as the last one had."""
    last_evaluation: Expert[bool] = True
    """Evaluate the newest version before the end of the run, for a few seconds at most. Not after Ctrl-C or SIGTERM,
    and not in a serial run."""

    def __post_init__(self) -> None:
        require_at_least(self, "eval_episodes", 1)
        require_at_least(self, "eval_interval_s", 0)


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints, from which `spreeze resume` continues a run."""

    checkpoint_interval_s: float = 300.0
    """Seconds between two checkpoints. There is also one at the end. 0: no checkpoints."""
    checkpoint_replay: bool = True
    """Include the replay in checkpoints. Without it a resumed run starts with an empty replay."""

    def __post_init__(self) -> None:
        require_at_least(self, "checkpoint_interval_s", 0)


@dataclass(frozen=True)
class OutputConfig:
    """Files and trackers that a run writes to."""

    run_dir: MostUsed[str | None] = None
    """Folder for the run, new or empty. None: runs/ENV-ALGO-TIME-PID."""
    quiet: bool = False
    """Print only errors."""
    tensorboard: bool = True
    """Write TensorBoard event files to RUN/tensorboard."""
    wandb: bool = False
    """Log to Weights & Biases. Needs `pip install wandb`."""


@dataclass(frozen=True)
class WatchingConfig:
    """Dashboard and videos. On the command line both are on by default."""

    dashboard: bool = False
    """Serve a dashboard of the run on this machine. Needs the extra "dashboard"."""
    dashboard_host: Expert[str] = "127.0.0.1"
    """Address of the dashboard. Other machines can only connect if it is not 127.0.0.1."""
    dashboard_port: Expert[int] = 0
    """Port of the dashboard. 0: any free port."""
    open: bool = False
    """Open the dashboard in the browser."""
    keep_dashboard: Expert[bool] = False
    """Keep the dashboard after the end of the run, until Ctrl-C. The exit code stays that of the run."""
    view: Expert[bool] = True
    """Show the policy in the dashboard."""
    video: bool = False
    """Record the best policy at the end, to videos/best.mp4. Needs the extra "video"."""
    video_every: int = 0
    """Record every Nth evaluated version, to videos/eval-VERSION.mp4. 0: none."""

    def __post_init__(self) -> None:
        require_within(self, "dashboard_port", 0, 65535)
        if self.keep_dashboard and not self.dashboard:
            raise ConfigError(
                "--keep-dashboard needs the dashboard: leave out --no-dashboard; in Python, add dashboard=True"
            )
        require_at_least(self, "video_every", 0)
        if not self.dashboard_host.strip():
            raise ConfigError("--dashboard-host must be an address of this machine, such as 127.0.0.1 or 0.0.0.0")


SHOWN = ("quiet", "dashboard", "open", "keep_dashboard", "video", "video_every")
"""Settings of what shows a run, which may be other ones in a session that resumes it."""
