"""What Gymnasium's own checker has to say about an environment.

In: an `EnvSpec`. Out: those of its complaints that `examine` does not look into itself.
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.findings import Finding, text_of
from spreeze.environments.make import make_env

MAX_S = 2.0
# What `examine` says more precisely, what is no error in training, and what is about our own wrapper.
KNOWN = re.compile(
    r"unwrapped version|infinity|normalized space|seed|np_random|random|determinis|although similar|observation"
    r"|\bobs\b|reward|boolean|dictionary|`options`|reset with options|step API|Casting|2-tuple|five element|render",
    re.IGNORECASE,
)
NEW = re.compile(r"maximum and minimum values are equal|low value is greater", re.IGNORECASE)


class _TimeIsUp(Exception):
    pass


class _Timed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends a check that takes too long: a step may take a second."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._deadline = time.monotonic() + MAX_S

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._look_at_the_clock()
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._look_at_the_clock()
        return super().step(action)

    def _look_at_the_clock(self) -> None:
        if time.monotonic() > self._deadline:
            raise _TimeIsUp


def find_complaints(spec: EnvSpec) -> tuple[Finding, ...]:
    """Run Gymnasium's checker on an environment that `examine` could play; return its complaints, as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        complaints = _check(spec)
    complaints = [*(str(each.message) for each in caught if issubclass(each.category, UserWarning)), *complaints]
    plain = [_plain(complaint) for complaint in complaints]
    new = [each for each in dict.fromkeys(plain) if NEW.search(each) or not KNOWN.search(each)]
    fix = "see Gymnasium's documentation: https://gymnasium.farama.org/api/env/"
    return tuple(Finding(f"Gymnasium's checker says: {each}", fix, is_note=True) for each in new)


def _check(spec: EnvSpec) -> list[str]:
    """Run the checker; return what it raised, or the environment."""
    env = None
    try:
        env = make_env(spec)
        check_env(_Timed(env), skip_render_check=True, skip_close_check=True)
    except (KeyboardInterrupt, MemoryError):
        raise
    except (_TimeIsUp, SystemExit):
        return []
    except AssertionError as error:
        return [str(error)]
    except BaseException as error:
        return [text_of(error)]
    finally:
        if env is not None:
            _close(env)
    return []


def _close(env: gymnasium.Env[Any, Any]) -> None:
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return


def _plain(complaint: str) -> str:
    """Return a complaint on one line, without the colours and the mark that Gymnasium gives its warnings."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    return " ".join(text.split()).removeprefix("WARN: ")
