"""Runs an algorithm's updates on batches drawn from the replay: one by one, or several at once as a CUDA graph.

A graph holds everything of its updates, from the draw to the target networks, and costs the host one launch. It is
captured once for each batch size and compared with the eager updates, on real rows, before it is used.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Literal, Protocol

import torch
from torch import Tensor

from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.channels.control import RecordEvent
from spreeze.errors import one_line
from spreeze.learning.replay import Replay

UPDATES_PER_LAUNCH = 8
# How far parameters may be from where the eager updates bring them, as a share of how far those move. Adam's first
# steps have the size of the learning rate whatever the gradient's: where it is nearly 0, rounding may turn its sign.
# Seen with products in bfloat16: 0.03 to 0.09. A wrong gradient gives 1 and more.
GUARD_TOLERANCE = 0.3

Engine = Literal["auto", "eager", "graph", "fused", "bfloat16"]


class Updates(Protocol):
    """Runs updates."""

    @property
    def figures(self) -> Tensor:
        """What the last update reported, in the order of the algorithm's figures, on the device."""
        ...

    @property
    def is_steady(self) -> bool:
        """Whether nothing is being prepared that would make updates faster."""
        ...

    def ready(self, batch_size: int) -> bool:
        """Return whether updates of this size can start soon; if not, prepare them while others run."""
        ...

    def launch(self, batch_size: int, most: int) -> int:
        """Start at most `most` updates; return how many."""
        ...


class EagerUpdates:
    """One update at a time, each operation launched by the host."""

    def __init__(self, algorithm: Algorithm, replay: Replay) -> None:
        self._algorithm, self._replay = algorithm, replay
        self._terms: Terms | None = None

    @property
    def figures(self) -> Tensor:
        """What the last update reported."""
        assert self._terms is not None, "no update yet"
        return self._algorithm.report(self._terms)

    @property
    def is_steady(self) -> bool:
        """Nothing is ever prepared."""
        return True

    def ready(self, _batch_size: int) -> bool:
        """Nothing needs to be."""
        return True

    def launch(self, batch_size: int, _most: int) -> int:
        """Run one update, with the algorithm's own operations."""
        terms = self._algorithm.update(self._replay.draw(batch_size))
        # Detached: a graph of autograd that is kept alive belongs to this stream, and no capture may meet it.
        self._terms = {name: term.detach() for name, term in terms.items()}
        return 1


class GraphUpdates:
    """Updates captured as CUDA graphs: for each batch size one of a single update and one of several."""

    def __init__(self, algorithm: Algorithm, replay: Replay, operations: Operations) -> None:
        self.operations = operations
        self._algorithm, self._replay = algorithm, replay
        self._graphs: dict[tuple[int, int, int], torch.cuda.CUDAGraph] = {}  # by batch size, count and phase
        self.compared: set[int] = set()
        """Batch sizes whose updates were found to be as the eager ones; kernels differ between sizes."""
        self._pool = torch.cuda.graph_pool_handle()
        # Outside the graphs' own memory, which another graph may use for something else.
        self.figures = torch.zeros(len(algorithm.figures), device=algorithm.device)

    @property
    def is_steady(self) -> bool:
        """Nothing is prepared while updates run."""
        return True

    def ready(self, _batch_size: int) -> bool:
        """A new size is captured at its first launch."""
        return True

    def launch(self, batch_size: int, most: int) -> int:
        """Start several updates, or one where there may not be several."""
        count = UPDATES_PER_LAUNCH if most >= UPDATES_PER_LAUNCH else 1
        phase = self._algorithm.phase
        key = (batch_size, count, phase)
        if key not in self._graphs:
            self._graphs[key] = self._capture(batch_size, count)
        self._graphs[key].replay()
        self._algorithm.phase = (phase + count) % self._algorithm.actor_delay
        return count

    def deviation(self, batch_size: int) -> float:
        """Return how far captured updates are from the eager ones, after as many as one launch has.

        Both start from an untrained state and draw the same rows and noise; the state is left as it was. Untrained,
        because there all updates have the same direction: later their gradients are mostly noise, and Adam makes
        steps of one size of them, so that rounding alone moves parameters by half of what the updates do. The
        result is a share of the distance that the eager updates move the parameters, the largest of all networks.
        """
        algorithm, seed = self._algorithm, torch.cuda.initial_seed()
        random_state = torch.cuda.get_rng_state()
        operations = algorithm.operations
        state, phase = algorithm.state(), algorithm.phase
        before = [tensor.clone() for tensor in state]
        untrained = algorithm.blank_copy(PLAIN)
        origin = untrained.state()

        def rewind(to: list[Tensor]) -> None:
            for tensor, kept in zip(state, to, strict=True):
                tensor.copy_(kept)
            algorithm.phase = algorithm.actor_delay - 1  # the actor's turn: its step is to be compared too
            torch.cuda.manual_seed(seed)

        try:
            rewind(origin)
            algorithm.operations = PLAIN
            for _ in range(UPDATES_PER_LAUNCH):
                algorithm.update(self._replay.draw(batch_size))
            eager = [tensor.clone() for tensor in algorithm.parameters()]
            rewind(origin)
            self._warm_up(batch_size)
            rewind(origin)
            torch.cuda.empty_cache()  # a graph has memory of its own
            self.launch(batch_size, UPDATES_PER_LAUNCH)
            captured = [tensor.clone() for tensor in algorithm.parameters()]
        finally:
            rewind(before)
            torch.cuda.set_rng_state(random_state)
            algorithm.operations, algorithm.phase = operations, phase
        shares = [
            (mine - theirs).norm() / (theirs - start).norm().clamp_min(1e-12)
            for mine, theirs, start in zip(captured, eager, untrained.parameters(), strict=True)
        ]
        return float(torch.stack(shares).max())  # a NaN in one of them is the result

    def _warm_up(self, batch_size: int) -> None:
        # Kernels are compiled and loaded, and workspaces made, at their first use: not possible during a capture.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with self._own_operations(), torch.cuda.stream(stream):
            for _ in range(self._algorithm.actor_delay):  # one of each kind
                self._algorithm.update(self._replay.draw(batch_size))
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, batch_size: int, count: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may continue to use the GPU meanwhile.
        with self._own_operations(), torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            for _ in range(count):
                terms = self._algorithm.update(self._replay.draw(batch_size))
            self.figures.copy_(self._algorithm.report(terms))
        return graph

    @contextlib.contextmanager
    def _own_operations(self) -> Iterator[None]:
        """Let the algorithm compute with these operations, and PyTorch's own products round their factors to tf32.

        tf32 has 10 bits of mantissa and doubles their speed.
        """
        operations, allow_tf32 = self._algorithm.operations, torch.backends.cuda.matmul.allow_tf32
        self._algorithm.operations, torch.backends.cuda.matmul.allow_tf32 = self.operations, True
        try:
            yield
        finally:
            self._algorithm.operations, torch.backends.cuda.matmul.allow_tf32 = operations, allow_tf32


class AdvancingUpdates:
    """The fastest updates that are ready: captured ones first, those with fused kernels once they are compiled.

    Compiling takes seconds the first time, and happens in a thread while updates run. Captured updates are compared
    with eager ones before they are used, for each batch size again; what is wrong for a size is not used for it.
    """

    def __init__(self, algorithm: Algorithm, replay: Replay, use_fused: bool, record_event: RecordEvent) -> None:
        self._algorithm, self._replay, self._record_event = algorithm, replay, record_event
        self._eager = EagerUpdates(algorithm, replay)
        self._captured = [GraphUpdates(algorithm, replay, PLAIN)]  # the fastest first
        self._refused: set[tuple[str, int]] = set()
        self._last: Updates | None = None
        self._compiler = _Compiler(algorithm, replay) if use_fused else None
        self._compiled: set[int] = set()

    @property
    def figures(self) -> Tensor:
        """What the last update reported."""
        assert self._last is not None, "no update yet"
        return self._last.figures

    @property
    def is_steady(self) -> bool:
        """Whether updates run, and nothing is being compiled."""
        return self._last is not None and self._compiler is None

    def ready(self, batch_size: int) -> bool:
        """Return whether the kernels for this size are compiled; fused kernels have other tiles for other sizes."""
        if not self.is_steady:
            return False  # one preparation at a time
        if self._captured[0].operations is not PLAIN and batch_size not in self._compiled:
            self._compiler = _Compiler(self._algorithm, self._replay)
            self._compiler.start(batch_size)
            return False
        return True

    def launch(self, batch_size: int, most: int) -> int:
        """Start updates, the fastest that are ready."""
        if self._compiler is not None and self._compiler.is_done:
            self._take_compiled(self._compiler)
            self._compiler = None
        is_first = self._last is None
        self._last = self._updates_for(batch_size)
        if is_first and self._compiler is not None:
            self._compiler.start(batch_size)
        return self._last.launch(batch_size, most)

    def _take_compiled(self, compiler: _Compiler) -> None:
        self._compiled.add(compiler.batch_size)
        if compiler.operations is None:
            self._record_event("kernels", f"fused kernels cannot be used here: {compiler.failure}")
            fused = [updates.operations for updates in self._captured if updates.operations is not PLAIN]
            self._refused.update((operations.name, compiler.batch_size) for operations in fused)
        elif compiler.operations is not self._captured[0].operations:
            self._captured.insert(0, GraphUpdates(self._algorithm, self._replay, compiler.operations))

    def _updates_for(self, batch_size: int) -> Updates:
        for updates in self._captured:
            if batch_size in updates.compared or self._is_right(updates, batch_size):
                return updates
        return self._eager

    def _is_right(self, updates: GraphUpdates, batch_size: int) -> bool:
        name = updates.operations.name
        if (name, batch_size) in self._refused:
            return False
        deviation = updates.deviation(batch_size)
        comparison = f"captured updates of {batch_size} rows with {name} kernels: {deviation:.3f} from the eager ones"
        if deviation <= GUARD_TOLERANCE:
            updates.compared.add(batch_size)
            self._record_event("kernels", comparison)
            return True
        self._refused.add((name, batch_size))
        self._record_event("warning", f"{comparison}, more than {GUARD_TOLERANCE}: not used")
        return False


class _Compiler:
    """Compiles the fused kernels: runs an update of a copy that nobody needs, in a thread, on a stream of its own."""

    def __init__(self, algorithm: Algorithm, replay: Replay) -> None:
        self._algorithm, self._replay = algorithm, replay
        self._thread: threading.Thread | None = None
        self.batch_size = 0
        self.operations: Operations | None = None
        self.failure = ""

    def start(self, batch_size: int) -> None:
        """Begin."""
        self.batch_size = batch_size
        self._thread = threading.Thread(target=self._compile, args=(batch_size,), daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._thread is not None and not self._thread.is_alive()

    def _compile(self, batch_size: int) -> None:
        try:
            from spreeze.algorithms.kernels.fused import FUSED

            stream = torch.cuda.Stream()
            # Random numbers of its own: the default generator may be in a capture at this moment.
            generator = torch.Generator(self._algorithm.device)
            with torch.cuda.stream(stream):
                scratch = self._algorithm.blank_copy(FUSED)
                for _ in range(scratch.actor_delay):  # one of each kind
                    scratch.update(self._replay.draw(batch_size, generator), generator)
            stream.synchronize()
            self.operations = FUSED
        except Exception as error:  # without Triton, without a C compiler, on a GPU it does not know: the rest works
            self.failure = f"{type(error).__name__}: {one_line(error)}"


def make_updates(engine: Engine, algorithm: Algorithm, replay: Replay, record_event: RecordEvent) -> Updates:
    """Return the updates that the config asks for; on a CPU there is only one kind."""
    if engine == "eager" or algorithm.device.type != "cuda":
        return EagerUpdates(algorithm, replay)
    return AdvancingUpdates(algorithm, replay, engine != "graph", record_event)
