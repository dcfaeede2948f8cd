"""Toy tasks, registered on import: some that work, many that misbehave."""

from __future__ import annotations

import ctypes
import inspect
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

EPISODE_STEPS = 20
# Which process of a run this is: the environment may misbehave in one of them only.
ROLE = sys.argv[1] if Path(sys.argv[0]).name == "worker_main.py" else "supervise"

if os.environ.get("TOY_NOISE"):
    print("noise on stdout at import")
    print("noise on stderr at import", file=sys.stderr)


class Point(gymnasium.Env[Any, Any]):
    """A point on a line: it starts at 1, is pushed by up to 0.2 a step, and loses its squared distance from 0.

    Every episode starts at the same place, so that a policy's return does not depend on the seed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, bonus: float = 0.0, step_s: float = 0.0, count_dir: str | None = None) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._position = 1.0
        self._bonus, self._step_s = bonus, step_s
        self._steps = 0
        # One byte a step, in a file for each process: what was really played, whatever the run says.
        self._count = None
        if count_dir is not None:
            path = Path(count_dir) / f"{ROLE}-{os.getpid()}"
            self._count = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._position = 1.0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._step_s:
            time.sleep(self._step_s)
        if self._count is not None:
            os.write(self._count, b".")
        self._steps += 1
        self._position += 0.2 * self._push(action)
        return self._observe(), self._bonus - self._position**2, False, False, {}

    def _push(self, action: NDArray[np.float32]) -> float:
        return float(np.clip(action, -1.0, 1.0)[0])

    def _observe(self) -> Any:
        return np.array([self._position], np.float32)


class SlowEvaluation(Point):
    """Takes its time in the evaluator."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if ROLE == "evaluator":
            time.sleep(0.25)
        return super().step(action)


class ConstructorRaises(Point):
    def __init__(self) -> None:
        raise RuntimeError("the scene\nfile is missing")


class ConstructorExits(Point):
    def __init__(self) -> None:
        raise SystemExit("no licence")


class ConstructorRaisesInSampler(Point):
    def __init__(self) -> None:
        super().__init__()
        if ROLE == "sampler":
            raise RuntimeError("no licence left")


class MissingPackage(Point):
    def __init__(self) -> None:
        raise gymnasium.error.DependencyNotInstalled("toyphysics is not installed, run `pip install toyphysics`")


class StepRaises(Point):
    """Raises after a number of steps, in samplers only."""

    def __init__(self, after_steps: int = 0) -> None:
        super().__init__()
        self._after_steps = after_steps

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if ROLE == "sampler" and self._steps >= self._after_steps:
            raise ZeroDivisionError("the wheel fell off")
        return super().step(action)


class ResetRaises(Point):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        del seed, options
        raise LookupError("no start position")


class LyingSpace(Point):
    """Says three numbers, gives one."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)


class LyingStep(LyingSpace):
    """Gives three numbers from reset and one from step: NumPy would copy it into all three."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(3, np.float32), {}


class NotANumber(Point):
    """Observes nothing but NaN."""

    def _observe(self) -> Any:
        return np.array([np.nan], np.float32)


class StepHangs(Point):
    """Never returns from a sampler's step, and leaves a file when it has begun."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self._marker = Path(marker)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if ROLE == "sampler":
            self._marker.touch()
            _hang()
        return super().step(action)


class ConstructorHangs(Point):
    """Never returns from its constructor in one role, and leaves a file when it has begun."""

    def __init__(self, marker: str, role: str = "environment") -> None:
        super().__init__()
        if role == ROLE:
            Path(marker).touch()
            _hang()


class TakesOver(Point):
    """Does to its process what it should not: ignores signals, changes the folder, leaves a thread behind."""

    def __init__(self) -> None:
        super().__init__()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        threading.Thread(target=_hang).start()


class Ends(Point):
    """Ends its process, or never returns: from its constructor, or from a step."""

    def __init__(self, how: str, where: str = "constructor") -> None:
        super().__init__()
        ways = {"exit": lambda: os._exit(7), "crash": lambda: ctypes.string_at(0), "hang": _hang}
        self._end = {**ways, "hang in C": _hang_in_c}[how]
        self._is_in_step = where == "step"
        if not self._is_in_step:
            print("no licence server", flush=True)
            self._end()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._is_in_step:
            self._end()
        return super().step(action)


class Segfault(Point):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if ROLE == "sampler":
            ctypes.string_at(0)
        return super().step(action)


class Exits(Point):
    def __init__(self, code: int = 7) -> None:
        super().__init__()
        self._code = code

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if ROLE == "sampler":
            os._exit(self._code)
        return super().step(action)


class Faulty(Point):
    """Has faults in one role, each in one process: a way to fail, and after how many resets or steps of which.

    What a fault is for one process, it is for its successor too while the list lasts: ["raise", "hang"] makes two
    processes fail, and the third one works. A file in the folder stands for each fault that has happened.
    """

    _is_spent: ClassVar[bool] = False  # of this process: the other environments in it work

    def __init__(
        self,
        folder: str,
        faults: list[str],
        where: str = "step",
        after: int = 0,
        role: str = "sampler",
        step_s: float = 0.0,
        count_dir: str | None = None,
    ) -> None:
        super().__init__(step_s=step_s, count_dir=count_dir)
        self._folder, self._faults = Path(folder), faults if role == ROLE else []
        self._where, self._calls_left = where, after
        self._leaked: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._fail_at("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._fail_at("step")
        return super().step(action)

    def _fail_at(self, where: str) -> None:
        if where != self._where or not self._faults or Faulty._is_spent:
            return
        self._calls_left -= 1
        if self._calls_left >= 0:
            return
        Faulty._is_spent = True
        fault = self._next_fault()
        if fault == "raise":
            raise ZeroDivisionError("the wheel fell off")
        if fault == "segfault":
            ctypes.string_at(0)
        if fault == "exit":
            os._exit(7)
        if fault == "hang":
            _hang()
        if fault == "leak":
            self._leaked.append(np.ones(2**27, np.uint8))
            self._step_s = 0.05  # so that it is looked at before the run is over

    def _next_fault(self) -> str | None:
        for number, fault in enumerate(self._faults):
            try:
                os.close(os.open(self._folder / f"fault-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue  # another process had it
            return fault
        return None


class BadData(Point):
    """Gives a bad number as its reward or its observation at each Nth step of a sampler."""

    def __init__(self, value: str, field: str = "reward", every: int = 1) -> None:
        super().__init__()
        self._value, self._field, self._every = float(value), field, every

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        if ROLE == "sampler" and self._steps % self._every == 0:
            if self._field == "reward":
                reward = self._value
            else:
                observation = np.array([self._value], np.float32)
        return observation, reward, *rest  # type: ignore[return-value]


EVALUATING = ("evaluator.py", "evaluate.py")  # the evaluator, and `spreeze evaluate`


class BadEvaluation(Point):
    """Gives a bad reward in the first evaluation, in some of its episodes, and never again."""

    made = 0
    """How many of these the evaluator has."""

    def __init__(self, value: str, episodes: int = 1, step_s: float = 0.0) -> None:
        super().__init__(step_s=step_s)
        # By who makes it: in a serial run all roles share a process.
        is_evaluated = any(Path(frame.filename).name in EVALUATING for frame in inspect.stack(0))
        self._value = float(value) if is_evaluated and BadEvaluation.made < episodes else None
        BadEvaluation.made += is_evaluated
        self._resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._resets += 1
        self._steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        # The first reset is of a batch that is made.
        if self._value is not None and self._resets == 2 and self._steps == 1:
            reward = self._value
        return observation, reward, *rest  # type: ignore[return-value]


class OddObservation(Point):
    """Gives something else than its space says, from reset or from step."""

    def __init__(self, odd: Any, where: str = "step") -> None:
        super().__init__()
        self._odd, self._where = odd, where

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return self._odd if self._where == "reset" else observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, *rest = super().step(action)
        return self._odd if self._where == "step" else observation, *rest  # type: ignore[return-value]


class MixedActions(Point):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Dict({"push": spaces.Box(-1, 1, (1,)), "grip": spaces.Discrete(2)})


class UnboundedActions(Point):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class ImageObservations(Point):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)


class DictObservations(Point):
    def __init__(self) -> None:
        super().__init__()
        position = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.observation_space = spaces.Dict({"position": position, "side": spaces.Discrete(2)})

    def _observe(self) -> Any:
        return {"position": np.array([self._position], np.float32), "side": int(self._position > 0)}


class TupleObservations(Point):
    def __init__(self) -> None:
        super().__init__()
        position = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.observation_space = spaces.Tuple((position, spaces.MultiBinary(2)))

    def _observe(self) -> Any:
        return np.array([self._position], np.float32), np.array([self._position > 0, 1], np.int8)


class AsymmetricActions(Point):
    """Refuses every action outside its bounds, by however little, or of another type."""

    def __init__(self) -> None:
        super().__init__()
        # Half their difference plus their mean is beyond either, by rounding.
        self.action_space = spaces.Box(np.array([-0.5], np.float32), np.array([1.9], np.float32))

    def _push(self, action: NDArray[np.float32]) -> float:
        assert self.action_space.contains(action), f"{action!r} is outside {self.action_space}"
        return float(action[0])


class NotesSeeds(Point):
    """Notes every seed it is given, in a file for each process."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._path = Path(folder) / f"{ROLE}-{os.getpid()}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            with self._path.open("a") as file:
                file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


class Forks(Point):
    """Starts processes of its own, as simulators do: in its process group, out of it, and out of its session."""

    def __init__(self, marker_dir: str, dies: bool = False) -> None:
        super().__init__()
        self._dies = dies
        if ROLE == "supervise":
            raise AssertionError("an environment in the supervisor")
        for leave in (lambda: None, os.setpgrp, os.setsid, _orphan_itself):
            if os.fork() == 0:
                leave()
                Path(marker_dir, f"{ROLE}-{os.getpid()}").touch()
                while True:
                    time.sleep(60)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._dies and ROLE == "sampler" and self._steps > 60:
            os._exit(3)
        return super().step(action)


def _orphan_itself() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)


class FewSeats(Point):
    """Can be made only so often in samplers; the next one fails, after it has said so and was let go on."""

    def __init__(self, folder: str, seats: int, waits: bool = False) -> None:
        super().__init__()
        if ROLE == "sampler":
            taken = Path(folder) / f"seat-{os.getpid()}-{time.monotonic_ns()}"
            taken.touch()
            if len(list(Path(folder).glob("seat-*"))) > seats:
                (Path(folder) / "no-seat").touch()
                while waits and not (Path(folder) / "go-on").exists():
                    time.sleep(0.01)
                raise RuntimeError("no seat is left")


class Drawn(Point):
    """Draws itself, of odd height and width, in episodes of a fifth of a second; and misbehaves in one role."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 100}

    def __init__(
        self,
        render_mode: str | None = None,
        misbehaviour: str = "",
        role: str = "viewer",
        marker: str | None = None,
        count_dir: str | None = None,
        step_s: float = 0.0,
    ) -> None:
        super().__init__(count_dir=count_dir, step_s=step_s)
        self.render_mode = render_mode
        self._misbehaviour = misbehaviour if role == ROLE else ""
        self._marker = marker

    def render(self) -> Any:
        if self._misbehaviour and self._marker is not None:
            Path(self._marker).touch()
        if self._misbehaviour == "raise":
            raise RuntimeError("the canvas is torn")
        if self._misbehaviour == "hang":
            _hang()
        if self._misbehaviour == "nothing":
            return None
        if self._misbehaviour == "message":  # as a process with more to say would send them
            os.write(
                int(sys.argv[3]), b'{"kind": "address", "url": "http://127.0.0.1:1/?token=x"}\n{"kind": "stop"}\n'
            )
        picture = np.full((31, 33, 3), 40, np.uint8)
        picture[:, int(np.clip(16 + 8 * self._position, 0, 32))] = 255
        return picture


def _hang_in_c() -> None:
    """Wait where no signal reaches Python."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _hang()


def _hang() -> None:
    while True:
        time.sleep(3600)


LIMITED: dict[str, type[Point]] = {
    "Toy/Point-v0": Point,
    "Toy/SlowEvaluation-v0": SlowEvaluation,
    "Toy/ConstructorRaises-v0": ConstructorRaises,
    "Toy/ConstructorExits-v0": ConstructorExits,
    "Toy/ConstructorRaisesInSampler-v0": ConstructorRaisesInSampler,
    "Toy/MissingPackage-v0": MissingPackage,
    "Toy/StepRaises-v0": StepRaises,
    "Toy/ResetRaises-v0": ResetRaises,
    "Toy/LyingSpace-v0": LyingSpace,
    "Toy/LyingStep-v0": LyingStep,
    "Toy/NotANumber-v0": NotANumber,
    "Toy/StepHangs-v0": StepHangs,
    "Toy/ConstructorHangs-v0": ConstructorHangs,
    "Toy/TakesOver-v0": TakesOver,
    "Toy/Ends-v0": Ends,
    "Toy/Segfault-v0": Segfault,
    "Toy/Exits-v0": Exits,
    "Toy/Faulty-v0": Faulty,
    "Toy/BadData-v0": BadData,
    "Toy/BadEvaluation-v0": BadEvaluation,
    "Toy/OddObservation-v0": OddObservation,
    "Toy/MixedActions-v0": MixedActions,
    "Toy/UnboundedActions-v0": UnboundedActions,
    "Toy/ImageObservations-v0": ImageObservations,
    "Toy/DictObservations-v0": DictObservations,
    "Toy/TupleObservations-v0": TupleObservations,
    "Toy/AsymmetricActions-v0": AsymmetricActions,
    "Toy/NotesSeeds-v0": NotesSeeds,
    "Toy/FewSeats-v0": FewSeats,
    "Toy/Forks-v0": Forks,
    "Toy/Drawn-v0": Drawn,
}
for env_id, kind in LIMITED.items():
    gymnasium.register(env_id, entry_point=kind, max_episode_steps=EPISODE_STEPS)
gymnasium.register("Toy/Endless-v0", entry_point=Point)
