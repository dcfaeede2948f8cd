"""Spreeze: asynchronous reinforcement learning on one desktop.

    import spreeze

    result = spreeze.train("Pendulum-v1", target_return=-200)
    policy = spreeze.load_policy(result.run_dir)
    action = policy(observation)

Importing this module imports nothing at all: `__main__` has to be the first that does.
"""

TYPE_CHECKING = False  # as in typing: type checkers take it to be true
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from spreeze.config import Config
    from spreeze.policy.file import Policy
    from spreeze.runs.result import Result

    __version__: str

__all__ = ["Config", "load_policy", "resume", "train"]


def __getattr__(name: str) -> "Any":
    if name == "Config":
        from spreeze.config import Config

        return Config
    if name == "__version__":
        from spreeze.host.version import VERSION

        return VERSION
    raise AttributeError(f"module 'spreeze' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "Config", "__version__"})


def train(env: "str | Callable[..., Any] | Config", **config: "Any") -> "Result":
    """Train a policy and return what was reached.

    env: an id that Gymnasium knows, a callable that returns an environment, or a whole Config.
    config: any setting of `spreeze train --help`, by its name: batch_size=256, max_seconds=60. algo may be a class.
    """
    import time

    from spreeze.cluster import GATEWAY
    from spreeze.supervision.train import train_from_python

    return train_from_python(env, config, time.monotonic(), GATEWAY)


def resume(
    run_dir: "str | Path",
    env: "Callable[..., Any] | None" = None,
    algo: "Any" = None,
    *,
    without_replay: bool = False,
    cluster: "str | None" = None,
    **settings: "Any",
) -> "Result":
    """Continue a run that has stopped, from its newest checkpoint, and return what was reached.

    env, algo: the callable and the class that the run was trained with, if they were passed as such.
    without_replay: continue with the networks alone, and collect transitions first as at a start.
    cluster: "auto", or HOST:PORT of the head of a Ray cluster whose machines are used too.
    settings: max_seconds, max_env_steps, max_updates, target_return, which replace those of before; and quiet,
    dashboard, open, keep_dashboard, video, video_every, for this session.
    """
    import time
    from pathlib import Path

    from spreeze.cluster import GATEWAY
    from spreeze.supervision.train import resume_from_python

    return resume_from_python(Path(run_dir), env, algo, without_replay, settings, time.monotonic(), cluster, GATEWAY)


def load_policy(path: "str | Path", which: "str | int | None" = None) -> "Policy":
    """Load a trained policy from a run folder or from a weights file.

    which: of the versions in a run folder, "best", "last" or one by its number. None: the best; or the newest, with a
    line on stderr, where too little was evaluated to say which is best.
    It is called with an observation, or a batch of them, and returns actions in the environment's own range.
    """
    from spreeze.policy.file import load_policy as load

    return load(path, which=which)
