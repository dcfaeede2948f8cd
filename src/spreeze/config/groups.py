"""The configuration: one tree of frozen dataclasses, with defaults and validation.

Every leaf has a name of its own, so a flag (`--batch-size`), a keyword of `spreeze.train` (`batch_size`)
and a key of a config file all name the same field. "auto" means: choose it for this machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from spreeze.config.fields import (
    flag,
    numeric,
    require_at_least,
    require_device,
    require_finite,
    require_positive,
    require_within,
)
from spreeze.errors import ConfigError

Auto = Literal["auto"]
Backend = Literal["auto", "gymnasium", "mujoco", "envpool"]
LearnerRole = Literal["all", "critic", "actor"]
"""Of a learner: all of it, or one side of two."""


@dataclass(frozen=True)
class EnvironmentConfig:
    """What is trained on."""

    env_module: tuple[str, ...] = ()
    """Python modules to import first, for packages that register their environments on import."""
    env_kwargs: str = "{}"
    """Arguments of the environment, as a JSON object: '{"forward_reward_weight": 2}'."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps, instead of after the environment's own limit."""
    backend: Backend = "auto"
    """How samplers step: Gymnasium's environments one by one; together, with the same rows, where they are one of its
    five MuJoCo robots (mujoco); or EnvPool's of the same id, a batch in C++. auto: mujoco where it can be."""

    def __post_init__(self) -> None:
        try:
            kwargs = json.loads(self.env_kwargs)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"--env-kwargs is not JSON ({error}): write it like '{{\"gravity\": 9.81}}', in single quotes"
            ) from None
        if not isinstance(kwargs, dict):
            raise ConfigError(
                f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.81}}', not {self.env_kwargs}"
            )
        require_at_least(self, "max_episode_steps", 1)


@dataclass(frozen=True)
class LimitsConfig:
    """When to stop: whichever comes first. With none of them, training runs until Ctrl-C."""

    max_seconds: float | None = None
    """Stop after this many seconds, counted from the start of the command."""
    max_env_steps: int | None = None
    """Stop after this many environment steps, over all samplers."""
    max_updates: int | None = None
    """Stop after exactly this many updates."""
    target_return: float | None = None
    """Stop once the mean return of an evaluation reaches this."""

    def __post_init__(self) -> None:
        require_positive(self, "max_seconds")
        require_at_least(self, "max_env_steps", 1)
        require_at_least(self, "max_updates", 1)
        require_finite(self, "target_return")


@dataclass(frozen=True)
class SamplingConfig:
    """How experience is collected."""

    samplers: int | Auto = "auto"
    """Sampling processes."""
    envs_per_sampler: int | Auto = "auto"
    """Environments that one sampler steps together, with one pass through the policy for all of them."""
    warmup_steps: int = 1000
    """Environment steps with random actions, over all samplers, before the first update."""
    exploration: float | Auto = "auto"
    """Noise that actions are explored with: its standard deviation for a deterministic policy (td3, ddpg), a factor
    of the policy's own for a stochastic one (sac). With --exploration-high, that of the calmest environment."""
    exploration_high: float | Auto = "auto"
    """Noise of the wildest environment; all have noise between, no two the same."""
    transport: Literal["shm", "queue"] = "shm"
    """How transitions reach the learner: shared memory, or a multiprocessing queue for comparison."""
    ring_rows: int | Auto = "auto"
    """Transitions that fit between one sampler and the learner before the sampler has to wait."""
    hang_s: float = 120.0
    """Seconds without a sign of life after which a process that plays (sampler, evaluator, viewer) counts as hanging,
    and another takes its place: more than the slowest reset or step takes."""
    max_sampler_mb: int | Auto = "auto"
    """Memory of one sampler, in MB, beyond which another takes its place, so that an environment may leak. auto: half
    of what is free at the start, divided by the most samplers there may be, and at least 1024."""

    def __post_init__(self) -> None:
        require_positive(self, "hang_s")
        require_at_least(self, "max_sampler_mb", 1)
        require_at_least(self, "samplers", 1)
        require_at_least(self, "envs_per_sampler", 1)
        require_at_least(self, "warmup_steps", 1)
        require_at_least(self, "ring_rows", 1)
        require_at_least(self, "exploration", 0)
        require_at_least(self, "exploration_high", 0)
        low, high = self.exploration, self.exploration_high
        if high != "auto" and low != "auto" and high < low:
            raise ConfigError(f"--exploration-high {high} is below --exploration {low}: exchange them")


@dataclass(frozen=True)
class LearningConfig:
    """How the policy is improved."""

    batch_size: int | Auto = "auto"
    """Transitions in one update."""
    replay_rows: int | Auto = "auto"
    """Transitions the replay holds before the oldest are overwritten; auto is a million, if they fit."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 1e-3
    """Adam's step size for the actor, the critics and the temperature."""
    learning_rate_batch: int | Auto = "auto"
    """Batch size that learning_rate is meant for: larger batches raise it by the square root of their ratio. auto is
    batch_size where that is set, and else its default: see docs/adaptation.md."""
    gamma: float | Auto = "auto"
    """Discount factor of future rewards; auto is 0.99 unless docs/recipes.md has a reason for another."""
    tau: float | Auto = "auto"
    """How far the target critics move towards the critics at each update."""
    n_step: int | Auto = "auto"
    """Environment steps whose rewards one transition adds up before it bootstraps. What was explored on the way is
    not corrected for, and with sac the entropy of the steps between is left out."""
    actor_delay: int | Auto = "auto"
    """Updates of the critics for each update of the actor."""
    normalise_observations: bool = False
    """Whether observations are scaled to mean 0 and variance 1, by all that was seen so far."""
    layer_norm: bool = False
    """Whether the critics' hidden layers are normalised."""
    atoms: int = 1
    """More than 1: critics give a distribution over as many values between value_low and value_high (C51)."""
    value_low: float = 0.0
    """Lowest value that such critics know; values are discounted sums of rewards."""
    value_high: float = 0.0
    """Highest value that such critics know."""
    target_noise: float = 0.2
    """TD3: standard deviation of the noise on the action that targets are of."""
    target_noise_clip: float = 0.5
    """TD3: how large that noise may be."""
    initial_temperature: float = 0.2
    """Entropy temperature to begin with; it is learned from there."""
    target_entropy: float | Auto = "auto"
    """Entropy that the temperature steers to; auto is minus the number of action dimensions."""
    min_updates_per_step: float | Auto = "auto"
    """Samplers wait when the learner falls below this many updates for each environment step. 0: never."""
    max_updates_per_step: float | None = None
    """The learner waits above this many updates for each environment step. None: never."""
    device: str = "auto"
    """Where the learner runs: auto, cpu, cuda or cuda:N."""
    split: Literal["auto", "yes", "no"] = "auto"
    """Whether actor and critics learn in processes of their own; auto: where that was measured to pay."""
    actor_device: str | None = None
    """Where the actor learns, in a process of its own; needs --critic-device. Default: where --split says."""
    critic_device: str | None = None
    """Where the critics learn, in a process of their own; needs --actor-device."""
    exchange: Literal["free", "lock-step"] = "free"
    """How actor and critics on two devices go together: each at its own rate, or in turns as on one device."""
    exchange_updates: int = 128
    """Updates from one exchange of parameters between the two devices to the next."""
    max_lag_updates: int = 1024
    """Updates that one side may make with the same copy of the other's parameters."""
    learner_threads: int | Auto = "auto"
    """CPU threads of the learner."""
    update_engine: Literal["auto", "eager", "graph", "fused"] = "auto"
    """How updates run. On a GPU: float32, one operation at a time (eager), captured as CUDA graphs (graph), or
    captured with kernels of our own (fused). On a CPU: float32 (eager), or what is fastest (auto)."""
    publish_interval_s: float = 0.25
    """Seconds between two versions of the weights."""
    weights_transport: Literal["file", "shm"] = "file"
    """How weights reach samplers, evaluator and viewer: files, or shared memory for comparison."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "replay_rows", "learner_threads", "learning_rate_batch", "n_step", "actor_delay"):
            require_at_least(self, name, 1)
        require_at_least(self, "exchange_updates", 1)
        require_at_least(self, "atoms", 1)
        for name in ("target_noise", "target_noise_clip"):
            require_at_least(self, name, 0)
        for name in ("value_low", "value_high"):
            require_finite(self, name)
        if self.atoms > 1 and not self.value_low < self.value_high:
            raise ConfigError(
                f"--atoms {self.atoms} needs the range of values: --value-low below --value-high, say 0 and 1000"
            )
        if self.max_lag_updates < self.exchange_updates:
            raise ConfigError(
                f"--max-lag-updates {self.max_lag_updates} must be at least --exchange-updates "
                f"{self.exchange_updates}: both sides would wait for each other"
            )
        for name in ("learning_rate", "initial_temperature", "publish_interval_s", "max_updates_per_step"):
            require_positive(self, name)
        require_finite(self, "target_entropy")
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
        if low != "auto" and high is not None and low > high:
            raise ConfigError(
                f"--min-updates-per-step {low} is above --max-updates-per-step {high}: "
                "both sides would wait for each other"
            )
        if self.batch_size != "auto" and self.replay_rows != "auto" and self.batch_size > self.replay_rows:
            raise ConfigError(
                f"--batch-size {self.batch_size} is more than --replay-rows {self.replay_rows}: "
                "lower the one or raise the other"
            )

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
    """How a run is fitted to the machine while it runs. What is set to a number above stays as it is set."""

    adapt: bool = True
    """Change samplers, batch size, learner threads and placement while the run goes on, where that measurably pays.
    --no-adapt keeps what is chosen at the start."""
    adapt_after_s: float = 10.0
    """Seconds from the start of a run until something is tried: what is over by then would only lose by it."""
    fresh: bool = False
    """Ignore what earlier runs of this task have found on this machine."""
    pin_cores: Literal["auto", "yes", "no"] = "auto"
    """Keep learner and samplers on cores of their own; auto: if that was measured to pay. Linux only."""
    min_samplers: int = 1
    """Fewest sampling processes to try."""
    max_samplers: int | Auto = "auto"
    """Most sampling processes to try; auto is twice the cores, and at least 4."""
    min_batch_size: int | Auto = "auto"
    """Smallest batch to try; auto is 256 on a GPU and 64 on a CPU."""
    max_batch_size: int | Auto = "auto"
    """Largest batch to try; auto is 8192 on a GPU and 512 on a CPU."""

    def __post_init__(self) -> None:
        require_at_least(self, "adapt_after_s", 0)
        for name in ("min_samplers", "max_samplers", "min_batch_size", "max_batch_size"):
            require_at_least(self, name, 1)
        for what in ("samplers", "batch_size"):
            low, high = numeric(self, f"min_{what}"), numeric(self, f"max_{what}")
            if low is not None and high is not None and low > high:
                raise ConfigError(
                    f"{flag(f'min_{what}')} {low:.0f} is above {flag(f'max_{what}')} {high:.0f}: "
                    "lower the one or raise the other"
                )


@dataclass(frozen=True)
class EvaluationConfig:
    """How versions of the policy are scored."""

    eval_episodes: int = 10
    """Episodes of one evaluation, played at once with the deterministic policy."""
    eval_interval_s: float = 1.0
    """Seconds from one evaluation to the next; more where evaluating would take too much of the CPU."""

    def __post_init__(self) -> None:
        require_at_least(self, "eval_episodes", 1)
        require_at_least(self, "eval_interval_s", 0)


@dataclass(frozen=True)
class CheckpointConfig:
    """What a run can be resumed from."""

    checkpoint_interval_s: float = 300.0
    """Seconds from one checkpoint to the next, and one at the end; 0 for none at all."""
    checkpoint_replay: bool = True
    """Save the replay too. Without it a resumed run starts with an empty one, and forgets for a while."""

    def __post_init__(self) -> None:
        require_at_least(self, "checkpoint_interval_s", 0)


@dataclass(frozen=True)
class OutputConfig:
    """Where results go."""

    run_dir: str | None = None
    """Folder of this run, new or empty. Default: runs/ENV-ALGO-TIME-PID."""
    quiet: bool = False
    """Print nothing but errors."""
    tensorboard: bool = True
    """Write event files for TensorBoard to RUN/tensorboard."""
    wandb: bool = False
    """Also log to Weights & Biases; needs `pip install wandb`."""


@dataclass(frozen=True)
class WatchingConfig:
    """How the run is shown beside the terminal. From the command line, dashboard and video are on."""

    dashboard: bool = False
    """Show the run on a web page of this machine; it needs the extra "dashboard"."""
    dashboard_host: str = "127.0.0.1"
    """Address that the page is served at. Another one than this lets other machines in."""
    dashboard_port: int = 0
    """Port of the page; 0 takes one that is free."""
    open: bool = False
    """Open the page in the browser."""
    view: bool = True
    """Show the policy at work on the page, at little cost."""
    video: bool = False
    """Record the best policy at the end, as videos/best.mp4; it needs the extra "video"."""
    video_every: int = 0
    """Also record each Nth evaluation's version, as videos/eval-VERSION.mp4. 0: none."""

    def __post_init__(self) -> None:
        require_within(self, "dashboard_port", 0, 65535)
        require_at_least(self, "video_every", 0)
        if not self.dashboard_host.strip():
            raise ConfigError("--dashboard-host must be an address of this machine, such as 127.0.0.1 or 0.0.0.0")
