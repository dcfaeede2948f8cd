"""The head's end of one agent: asks it for blocks and reports, and writes its rows into the ring of its machine.

In: answers of the agent. Out: rows in a ring, counters in a sampler's record and in the machine's. It waits for
nothing: rows that find no room stay here, and no more are asked for meanwhile.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from numpy.typing import NDArray

from spreeze.channels.machines import MachineState, settle
from spreeze.channels.transitions import RingChannel, Rows
from spreeze.cluster.demand import Waits
from spreeze.cluster.orders import PULSE_S, SILENCE_S, AgentReport, HeadState
from spreeze.cluster.relay import UNDER_WAY, Block, Inbox

HELLO_S, BEGIN_S = 30.0, 60.0  # for Ray to start a process there; for it to import Spreeze from a slow disk
BLOCK_S = 60.0  # for a few MB; an agent without rows answers twice per second that there are none
WEIGHTS_S = 20.0  # after this a version counts as lost on its way

Ref = Any
"""What Ray answers to a call, before the answer is there."""


class Stage(Enum):
    """How far an agent is."""

    GREETING = 1
    BEGINNING = 2
    WORKING = 3
    DELIVERING = 4
    """It has ended its samplers, and its last rows are under way."""
    DELIVERED = 5


class AgentFailed(Exception):
    """The agent is gone, or of no use; its text says why."""


class AgentLink:
    """One agent, from its start until it is lost or has delivered everything."""

    def __init__(
        self,
        actor: Any,
        take: Callable[[Ref], Any],
        channel: RingChannel,
        machine: NDArray[Any],
        sampler: NDArray[Any],
        packages: tuple[str, ...],
    ) -> None:
        """take: returns an answer that is there, or raises what has happened to it.

        machine, sampler: arrays of one, its records of `machines.MACHINE` and `metrics.SAMPLER`.
        """
        self.actor, self._take = actor, take
        self.stage = Stage.GREETING
        self.greeting: dict[str, Any] = {}
        """What it has answered to `hello`."""
        self.report: AgentReport | None = None
        self.warnings: list[tuple[str, str]] = []
        """Those that nobody has taken yet."""
        self._channel, self._writer = channel, channel.writer()
        self._machine, self._sampler = machine, sampler
        self._rows_before = channel.written() or 0
        self._sampled_before = int(machine["rows_sampled"][0])
        self._repeated_before = int(machine["rows_repeated"][0])
        self._before = {name: sampler[name][0].item() for name in (*_COUNTS, "env_steps")}
        self._inbox, self._written_blocks = Inbox(), 0
        self._blocks: deque[tuple[int, Ref]] = deque()
        """Questions for blocks that are under way, in order of their numbers."""
        self._held: Rows | None = None
        """Rows that have arrived and found no room."""
        self._heard_at = self._asked_at = time.monotonic()
        self._pulse_due_at, self._block_at = 0.0, math.inf
        self._learner_wait_before = float(machine["learner_wait_s"][0])
        self._link_wait_before = float(machine["link_wait_s"][0])
        self._learner_wait_s = self._link_wait_s = self._held_since = 0.0
        self.waits = Waits()
        self._weights: Ref | None = None
        self._weights_asked_at = 0.0
        self.version = 0
        """Of the weights, the newest that it was sent."""
        self._question: Ref | None = actor.hello.remote(packages)
        """A greeting, an order, a pulse or the request to finish; one at a time."""
        self._is_finishing = False

    # --- orders ------------------------------------------------------------------------------------------------

    def begin(self, order: bytes) -> None:
        """Let it start its samplers."""
        self.stage, self._asked_at = Stage.BEGINNING, time.monotonic()
        self._question = self.actor.begin.remote(order)

    def finish(self) -> None:
        """Let it end its samplers, and deliver what they have."""
        self._is_finishing = True

    @property
    def takes_weights(self) -> bool:
        """Whether a version may be sent: one at a time is under way."""
        return self.stage == Stage.WORKING and self._weights is None

    def send_weights(self, version: int, content: Ref) -> None:
        """Send a version; content: where Ray keeps it."""
        self.version, self._weights_asked_at = version, time.monotonic()
        self._weights = self.actor.take_weights.remote(version, [content])

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> list[Ref]:
        """All questions: Ray fetches what is asked for."""
        return [ref for ref in (self._question, self._weights) if ref is not None] + [ref for _, ref in self._blocks]

    @property
    def awaited(self) -> list[Ref]:
        """Those whose answers lead to something now: of blocks the first, if there is room for its rows."""
        first = [] if self._held is not None or not self._blocks else [self._blocks[0][1]]
        return [ref for ref in (self._question, self._weights) if ref is not None] + first

    def turn(self, ready: set[Ref], state: Callable[[int], HeadState]) -> None:
        """Take the answers that are there, and ask what is due. Raises AgentFailed.

        state: of the head, from the environment steps that this agent has reported.
        """
        now = time.monotonic()
        if self._question in ready:
            self._take_answer(now)
        if self._weights in ready or (self._weights is not None and now - self._weights_asked_at > WEIGHTS_S):
            self._take_weights_answer(self._weights in ready)
        self._write_held(now)
        while self._held is None and self._blocks and self._blocks[0][1] in ready:
            self._take_block(now)
        self._require_sign_of_life(now)
        if self.stage in (Stage.WORKING, Stage.DELIVERING):
            self._ask_for_blocks()
        if self.stage == Stage.WORKING and self._question is None:
            self._ask(now, state)

    def _take_answer(self, now: float) -> None:
        question, self._question = self._question, None
        answer = self._answer_to(question)
        self._heard_at = now
        if self.stage == Stage.GREETING:
            self.greeting = answer
        elif self.stage == Stage.BEGINNING:
            self.stage, self._block_at = Stage.WORKING, now
        elif answer is None:
            self.stage = Stage.DELIVERING
        else:
            self._machine["round_trip_s"] = now - self._asked_at
            self._count(AgentReport(*answer))

    def _answer_to(self, question: Ref) -> Any:
        try:
            return self._take(question)
        except Exception as error:
            raise AgentFailed(_cause_of(error)) from error

    def _take_weights_answer(self, is_there: bool) -> None:
        ref, self._weights = self._weights, None
        if is_there:
            self._answer_to(ref)

    def _ask(self, now: float, state: Callable[[int], HeadState]) -> None:
        if self._is_finishing:
            self._question, self._asked_at = self.actor.finish.remote(), now
        elif now >= self._pulse_due_at:
            self._pulse_due_at, self._asked_at = now + PULSE_S, now
            steps = 0 if self.report is None else self.report.env_steps
            self._question = self.actor.pulse.remote(tuple(state(steps)))

    def _require_sign_of_life(self, now: float) -> None:
        if self.stage == Stage.GREETING and now - self._asked_at > HELLO_S:
            raise AgentFailed(f"Ray has started no process there within {HELLO_S:g} s")
        if self.stage == Stage.BEGINNING and now - self._asked_at > BEGIN_S:
            raise AgentFailed(f"its agent has not begun within {BEGIN_S:g} s")
        if self.stage in (Stage.WORKING, Stage.DELIVERING) and now - self._heard_at > SILENCE_S:
            raise AgentFailed(f"it does not answer for {SILENCE_S:g} s")
        if self._held is None and self._blocks and now - self._block_at > BLOCK_S:
            raise AgentFailed(f"no block of rows has arrived for {BLOCK_S:g} s, although it answers")

    # --- rows --------------------------------------------------------------------------------------------------

    def _ask_for_blocks(self) -> None:
        if self._held is not None:
            return
        following = self._blocks[-1][0] + 1 if self._blocks else self._inbox.last + 1
        while len(self._blocks) < UNDER_WAY:
            self._blocks.append((following, self.actor.next_block.remote(following, self._written_blocks)))
            following += 1

    def _take_block(self, now: float) -> None:
        number, ref = self._blocks.popleft()
        answer = self._answer_to(ref)
        self._heard_at = self._block_at = now
        if answer is None:  # there was none in time: the same question again, before those that follow
            again = self.actor.next_block.remote(number, self._written_blocks)
            self._blocks.appendleft((number, again))
            return
        block = Block(*answer)
        self._count_sampled(block.written)
        if not block.number:
            self.stage = Stage.DELIVERED
            self._blocks.clear()
            return
        rows = self._inbox.accept(block)
        self._machine["rows_repeated"] = self._repeated_before + self._inbox.repeated
        if rows is not None:
            self._machine["bytes_arrived"] += rows.nbytes
            self._held, self._held_since = rows, now
            self._write_held(now)

    def _write_held(self, now: float) -> None:
        """Write what there is room for. The rows lie in Ray's memory: they are copied once, and let go."""
        if self._held is None:
            return
        self._held = self._held[self._writer.write_what_fits(self._held) :]
        waited_s = now - self._held_since
        if not len(self._held):
            self._held, self._written_blocks = None, self._inbox.last
            self._block_at, waited_s, self._learner_wait_s = now, 0.0, self._learner_wait_s + waited_s
        self._machine["learner_wait_s"] = self._learner_wait_before + self._learner_wait_s + waited_s

    # --- counters ----------------------------------------------------------------------------------------------

    def _count(self, report: AgentReport) -> None:
        self.report = report
        self.warnings += report.warnings
        sampler, machine, before = self._sampler, self._machine, self._before
        self._count_unheard(report.rows_before)
        self._count_sampled(report.rows_written)
        sampler["env_steps"] = before["env_steps"] + report.env_steps
        for name in _COUNTS:
            sampler[name] = before[name] + getattr(report, name)
        sampler["policy_published_at"] = report.policy_published_at
        if report.has_stepped and not sampler["first_step_at"][0]:
            sampler["first_step_at"] = time.monotonic()
        machine["samplers"], machine["envs"] = report.samplers, report.envs
        machine["state"] = MachineState.AT_WORK if report.has_stepped else MachineState.JOINING
        # What is blocked because the learner makes no room does not wait for the link.
        self._link_wait_s = max(self._link_wait_s, report.blocked_s - self._learner_wait_s)
        machine["link_wait_s"] = self._link_wait_before + self._link_wait_s
        self.waits = Waits(report.ratio_wait_s, report.ring_wait_s, self._link_wait_s, self._learner_wait_s)

    def _count_unheard(self, rows_before: int) -> None:
        """Count what the agent before this one has sampled and not reported, because it was killed or cut off."""
        unheard = rows_before - self._sampled_before
        if unheard > 0:
            self._sampled_before += unheard
            self._machine["rows_sampled"] += unheard
            self._machine["rows_lost"] += unheard
            self.warnings.append((f"{unheard} rows that it sampled before it was lost are lost too", ""))

    def _count_sampled(self, written: int) -> None:
        sampled = self._sampled_before + written
        self._machine["rows_sampled"] = max(int(self._machine["rows_sampled"][0]), sampled)

    def settle(self) -> int:
        """Let go of the agent; return how many rows were lost: sampled as far as is known, and not in the ring."""
        self._blocks.clear()
        self._held = self._question = self._weights = None
        return settle(self._channel, self._machine, self._sampler)


_COUNTS = ("episodes", "return_sum", "ring_wait_s", "ratio_wait_s")


def _cause_of(error: BaseException) -> str:
    """Return what has happened, in one line: Ray's own texts have many, with traces and addresses."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    first = lines[0] if lines else type(cause).__name__
    return f"{type(cause).__name__}: {first}"
