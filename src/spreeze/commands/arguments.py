"""What each command takes, apart from `train`, whose flags are the config: a dataclass, with a docstring per flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spreeze.config import Auto, Backend
from spreeze.config.fields import require_positive
from spreeze.errors import ConfigError


@dataclass(frozen=True)
class EvaluateArguments:
    """Play episodes with the policy of a run and print mean and spread of their returns."""

    run: str
    """Run folder, or a weights file inside one."""
    episodes: int = 20
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    which: str | None = None
    """Version to use: best, last or its number. Default: the best, or the newest where too little was evaluated to
    say which is best."""
    json: str | None = None
    """Also write the returns to this file."""


@dataclass(frozen=True)
class ResumeArguments:
    """Continue a run that has stopped, from its newest checkpoint, as if it had never stopped."""

    run: str
    """Run folder."""
    max_seconds: float | None = None
    """Stop after this many seconds, including those before the stop, without the pause."""
    max_env_steps: int | None = None
    """Stop after this many environment steps, including those before the stop."""
    max_updates: int | None = None
    """Stop after this many updates, including those before the stop."""
    target_return: float | None = None
    """Stop when the mean return of an evaluation reaches this value."""
    without_replay: bool = False
    """Continue with the networks alone: leave saved transitions out, and collect as many as in the warm-up first."""
    cluster: str | None = None
    """Use the machines of a Ray cluster too: HOST:PORT of its head, or auto. They are not remembered from before."""
    quiet: bool = False
    """Print only errors. This flag and those below hold for this session; without them it is shown as before."""
    dashboard: bool = False
    """Serve a dashboard of the run on this machine."""
    open: bool = False
    """Open the dashboard in the browser."""
    keep_dashboard: bool = False
    """Keep the dashboard after the end of the run, until Ctrl-C."""
    video: bool = False
    """Record the best policy at the end, to videos/best.mp4."""
    video_every: int = 0
    """Record every Nth evaluated version, to videos/eval-VERSION.mp4. 0: none."""


@dataclass(frozen=True)
class WatchArguments:
    """Show the policy of a run: in a window if there is a screen, else on a web page served by this machine."""

    run: str
    """Run folder, or a weights file inside one."""
    which: str | None = None
    """Version to show: best, last or its number. Default: of a run that has ended, as in `spreeze evaluate`; of a run
    under way, the newest at the start of each episode."""
    version: int | None = None
    """The same as --which with the number of a version."""
    best: bool = False
    """The same as --which best."""
    episodes: int | None = None
    """Episodes to play. Default: until Ctrl-C, and one for --record."""
    seed: int = 0
    """Seed of the episodes."""
    record: str | None = None
    """Write a video to this file, and show nothing: FILE.mp4."""
    open: bool = False
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        if sum((self.which is not None, self.version is not None, self.best)) > 1:
            raise ConfigError("--which, --version and --best choose the same thing: give one of them")

    @property
    def chosen(self) -> str | int | None:
        """The version that is chosen."""
        return "best" if self.best else self.version if self.which is None else self.which


@dataclass(frozen=True)
class ExportArguments:
    """Copy the policy of a run into one file that spreeze.load_policy can use anywhere, without torch."""

    run: str
    """Run folder, or a weights file inside one."""
    out: str = "policy.safetensors"
    """File to write."""
    which: str | None = None
    """Version to use: best, last or its number. Default: the best, or the newest where too little was evaluated to
    say which is best."""


@dataclass(frozen=True)
class DashboardArguments:
    """Show runs in the browser, from their folders alone: those under way and those that have ended."""

    runs: tuple[str, ...]
    """Run folders, or folders that hold them. Default: all runs under ./runs, newest first."""
    port: int = 0
    """Port of the page; 0 takes the first that is free from 8420 on."""
    host: str = "127.0.0.1"
    """Address that the page is served at. With another one, other machines can connect, with the printed token."""
    open: bool = False
    """Open the page in the browser."""


@dataclass(frozen=True)
class PlotArguments:
    """Draw learning curves for a paper: median and quartiles over runs that differ by their seed only."""

    runs: tuple[str, ...]
    """Run folders, finished or not."""
    out: str = "curves.png"
    """Picture to write: .png, .svg or .pdf."""
    x: Literal["wall_s", "env_steps", "both"] = "both"
    """What returns are drawn against: wall time, environment steps, or both side by side."""
    title: str | None = None
    """Title of the picture; by default the environment, where there is one."""


@dataclass(frozen=True)
class DoctorArguments:
    """Play a few steps of an environment, print what is wrong with it and how to fix that. Without ENV: print what
    Spreeze finds on this machine, what works, and how to fix what does not. With --cluster alone: print what each
    machine of a Ray cluster has."""

    env: str
    """Environment id."""
    env_module: tuple[str, ...] = ()
    """Python modules to import first, if they register the environment on import; this flag and those below are as in
    `spreeze train`."""
    env_kwargs: str = "{}"
    """Keyword arguments of the environment, as a JSON object."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps. None: the environment's own limit."""
    hang_s: float = 120.0
    """End the examination after this many seconds: a call that has not returned by then is an error."""

    def __post_init__(self) -> None:
        require_positive(self, "hang_s")


@dataclass(frozen=True)
class DoctorClusterArguments:
    """Print what each other machine of a Ray cluster has, and whether a run can use it."""

    cluster: str = "auto"
    """HOST:PORT of its head, or auto for the cluster that this machine is in."""


@dataclass(frozen=True)
class TuneArguments:
    """Measure the throughput of samplers x batch size, let a run adapt, and compare what it chose with the best."""

    env: str
    """Environment id."""
    samplers: tuple[int, ...] = ()
    """Numbers of samplers to measure. Default: from one to more than there are cores."""
    batch_sizes: tuple[int, ...] = ()
    """Batch sizes to measure. Default: all that an adaptation may choose from."""
    samples: int = 4
    """Samples of half a second for each pair of settings, in each of two rounds."""
    adapt_seconds: float = 45.0
    """Seconds that the run may adapt, from its start on."""
    device: str = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:N."""
    json: str | None = None
    """Also write the figures to this file."""
    picture: str | None = None
    """Also draw them to this file, as a heat map: .png, .svg or .pdf."""


@dataclass(frozen=True)
class BenchSamplingArguments:
    """Measure one sampler (policy, channel, reader) against the bare environment loop, in one run."""

    env: str
    """Environment id."""
    seconds: float = 2.0
    """Length of each measurement."""
    repeats: int = 7
    """Measurements of each kind, taken in turn."""
    envs_per_sampler: int | None = None
    """Environments of the sampler. Default: as many as a free-running one has, and 256 with EnvPool."""
    backend: Backend = "auto"
    """Library that steps the environments, as in `spreeze train`. The bare loop always uses Gymnasium."""
    json: str | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class BenchThroughputArguments:
    """Measure a training against the machine: bare environment loops on all cores, and the learner alone."""

    env: str
    """Environment id."""
    seconds: float = 10.0
    """Length of each of the three measurements."""
    json: str | None = None
    """Also write the figures to this file."""
    samplers: int | Auto = "auto"
    """Sampling processes of the training; this flag and those below are as in `spreeze train`."""
    envs_per_sampler: int | Auto = "auto"
    """Environments that one sampler steps together."""
    backend: Backend = "auto"
    """Library that steps the environments. Bare loops always use Gymnasium."""
    batch_size: int | Auto = "auto"
    """Transitions in one update."""
    device: str = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:N."""
    min_updates_per_step: float | Auto = "auto"
    """Minimum of updates per environment step. Samplers wait below it. 0: they never wait."""


@dataclass(frozen=True)
class BenchClusterArguments:
    """Measure how many rows arrive from the other machines of a Ray cluster, if their samplers cost nothing."""

    cluster: str = "auto"
    """HOST:PORT of the cluster's head, or auto for the cluster that this machine is in."""
    row_bytes: tuple[int, ...] = (172, 3000)
    """Sizes of a transition: HalfCheetah-v5 has 172 bytes, Humanoid-v5 2,864."""
    seconds: float = 5.0
    """Length of each measurement."""
    json: str | None = None
    """Also write the figures to this file."""

    def __post_init__(self) -> None:
        if min(self.row_bytes, default=0) < 32 or any(size % 4 for size in self.row_bytes):
            raise ConfigError("--row-bytes must be multiples of 4, and at least 32")
        require_positive(self, "seconds")


@dataclass(frozen=True)
class BenchLearnerArguments:
    """Measure updates without samplers, with each update engine: eager, CUDA graphs, or these with Triton kernels."""

    device: str = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:N."""
    batch_sizes: tuple[int, ...] = (256, 1024, 4096, 8192, 32768)
    """Transitions in one update."""
    obs_dim: int = 17
    """Size of an observation; the default is HalfCheetah's."""
    act_dim: int = 6
    """Size of an action."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    algo: str = "sac"
    """Algorithm that is updated, as in `spreeze train`."""
    seconds: float = 2.0
    """Length of each measurement."""
    json: str | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class BenchSplitArguments:
    """Measure the critic step and the actor step of an update and their exchange: would two devices pay?"""

    actor_device: str = "auto"
    """Device of the actor. auto: the second GPU, or else the first, or the CPU."""
    critic_device: str = "auto"
    """Device of the critics. auto: the first GPU, or the CPU."""
    batch_sizes: tuple[int, ...] = (256, 1024, 8192)
    """Transitions in one update."""
    obs_dim: int = 17
    """Size of an observation; the default is HalfCheetah's."""
    act_dim: int = 6
    """Size of an action."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    algo: str = "sac"
    """Algorithm that is updated, as in `spreeze train`."""
    exchange_updates: int = 128
    """Updates from one exchange to the next, as in `spreeze train`."""
    seconds: float = 1.0
    """Length of each measurement."""
    json: str | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class BenchSolveArguments:
    """Measure how long it takes to reach a return: a run for each task and seed, one after the other."""

    tasks: str | None = None
    """TOML file with the tasks: env, threshold and limit_s of each, and optionally name, algo and flags."""
    seeds: int = 3
    """Runs of each task, with the seeds 0, 1, 2 and so on."""
    json: str | None = None
    """Also write all runs, with their evaluations, to this file."""
    picture: str | None = None
    """Also draw the learning curves to this file: .png, .svg or .pdf."""
    runs: str | None = None
    """Keep the run folders in this folder. Default: they are deleted."""
