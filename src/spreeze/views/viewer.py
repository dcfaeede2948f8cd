"""The viewer process: plays the newest policy in real time and writes pictures of it to the frame channel.

It must cost little: it has a low priority, and takes at most MAX_MACHINE_SHARE of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.weights import WeightsReader
from spreeze.errors import NotRenderable
from spreeze.host.hardware import usable_cores
from spreeze.host.priority import lower_priority
from spreeze.policy.file import Policy
from spreeze.views.rendering import Stage, jpeg, open_stage

# Lower than the training's, but not the lowest: on two busy cores, 19 allows no picture in six seconds, and 10 the
# two or three per second that its share pays for.
NICENESS = 10
STARTING_NICENESS = 5  # while it imports and finds a renderer, one or two seconds of work, once
# While a picture is drawn, a learner of two threads on two cores waits with both: it loses twice this share.
MAX_MACHINE_SHARE = 0.02
SCALE = 0.75  # of pictures, where that can be chosen
MAX_FPS = 20.0  # more cannot be seen in a small picture
BURST_S = 0.1  # of CPU time that can be saved up: enough for an expensive picture
MAX_LATE_S = 1.0  # further behind real time, it plays in slow motion instead of skipping
MAX_CATCH_UP_S = 0.2  # of steps between two pictures: steps of 200 ms would leave six seconds between them
MAX_EPISODE_S = 60.0  # without a time limit, an environment would never begin again
POLL_S = 0.05  # for the first version, and for CPU time to spend
FRESH_S = 2.0  # how often to look for a newer version: to read a network of 256 x 256 takes 2 ms
# An episode is given up once the policy has had so many times the updates that it had at its beginning: what came of
# the old policy's actions says little about the new one. Episodes begin at 10 s of training, at 15, 23, 34, 51, ...
MUCH_NEWER = 1.5
MIN_EPISODE_S = 5.0  # less of an episode shows nothing
MIN_RESETS = 5  # an episode is played for at least so many times what its reset took


class Allowance:
    """CPU time that may be spent: a share of the elapsed time, of which at most BURST_S is saved up."""

    def __init__(
        self, share: float, now: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._share, self._now, self._used = share, now, used
        self._seen_at, self._used_before, self._balance_s = now(), used(), 0.0

    def is_spent(self) -> bool:
        """Return whether there is no CPU time left to spend."""
        now, used = self._now(), self._used()
        earned = self._share * (now - self._seen_at)
        self._balance_s = min(BURST_S, self._balance_s + earned - (used - self._used_before))
        self._seen_at, self._used_before = now, used
        return self._balance_s < 0


@dataclass(frozen=True)
class Playing:
    """A policy, and when and after how many updates it was published."""

    policy: Policy
    published_at: float
    updates: int


class Newest:
    """The newest version, looked for every FRESH_S."""

    def __init__(self, reader: WeightsReader) -> None:
        self._reader, self._looked_at = reader, float("-inf")
        self.playing: Playing | None = None

    def look(self) -> bool:
        """Take a newer version if there is one and it is time to look for it; return whether there was."""
        now = time.monotonic()
        if now - self._looked_at < FRESH_S and self.playing is not None:
            return False
        self._looked_at = now
        if (found := self._reader.newest()) is None:
            return False
        updates = found.metadata.get("updates", "")
        self.playing = Playing(
            Policy(found.tensors, found.metadata), found.published_at, int(updates) if updates.isdecimal() else 0
        )
        return True


def starts_over(before: Playing, now: Playing, played_s: float, reset_s: float) -> bool:
    """Return whether an episode that began with one version is given up for a newer one."""
    return played_s >= max(MIN_EPISODE_S, MIN_RESETS * reset_s) and now.updates >= MUCH_NEWER * before.updates


def run(brief: Brief, messages: MessageWriter) -> None:
    """Play the newest version, episode after episode, until dismissed."""
    control = brief.channels.control

    def leaving() -> bool:
        control.beat(brief.slot)
        return control.dismissed(brief.slot)

    leaving()
    lower_priority(STARTING_NICENESS)
    try:
        stage = open_stage(brief.env, beat=lambda: control.beat(brief.slot))
        lower_priority(NICENESS)
        _show(brief, stage, leaving)
    except NotRenderable as error:
        messages.record_event("view", f"there is no live view: {error}")
        return
    stage.close()


def _show(brief: Brief, stage: Stage, leaving: Callable[[], bool]) -> None:
    # The 3 makes these seeds different from every sampler's and the evaluator's.
    seeds = np.random.Generator(np.random.PCG64([brief.config.seed, 0, 3]))
    newest, frames = Newest(brief.channels.weights.reader()), brief.channels.frames.writer()
    allowance = Allowance(MAX_MACHINE_SHARE * usable_cores())
    turn_s = max(1.0 / stage.fps, 1.0 / MAX_FPS)
    is_plain = False
    while not leaving():
        newest.look()
        if (playing := newest.playing) is None:
            time.sleep(POLL_S)  # until the first version is there
            continue
        began_with, reset_at = playing, time.monotonic()
        stage.begin(playing.policy, int(seeds.integers(2**31)))
        played_from = began_at = shown_at = time.monotonic()
        while True:
            frames.write(
                jpeg(stage.picture()), stage.version, stage.episode_return, stage.episode_steps, playing.published_at
            )
            if not is_plain:
                is_plain = True
                stage.draw_plainly(SCALE)
                # The first picture may cost as much as ten seconds allow: a new allowance, so that no pause follows.
                allowance = Allowance(MAX_MACHINE_SHARE * usable_cores())
            if stage.is_over or stage.episode_steps > MAX_EPISODE_S * stage.fps:
                break
            shown_at = _wait(shown_at + turn_s, allowance, leaving)
            if leaving():
                return
            if newest.look() and newest.playing is not None:
                playing = newest.playing
                stage.use(playing.policy)
                if starts_over(began_with, playing, shown_at - played_from, played_from - reset_at):
                    break
            began_at = max(began_at, shown_at - MAX_LATE_S - stage.episode_steps / stage.fps)
            _catch_up(stage, shown_at - began_at, leaving)


def _wait(until: float, allowance: Allowance, leaving: Callable[[], bool]) -> float:
    """Wait until the next picture is due and there is CPU time for it; return the time."""
    while (late_s := time.monotonic() - until) < 0 or allowance.is_spent():
        if leaving():
            break
        time.sleep(min(POLL_S, max(-late_s, 0.001 if late_s < 0 else POLL_S)))  # leaves the core to other processes
    return time.monotonic()


def _catch_up(stage: Stage, episode_s: float, leaving: Callable[[], bool]) -> None:
    """Take the steps that are due at this time of the episode, at least one, and no more than there is time for."""
    due = max(stage.episode_steps + 1, int(episode_s * stage.fps))
    ends_at = time.monotonic() + MAX_CATCH_UP_S
    while stage.episode_steps < due and not stage.is_over:
        stage.step()
        if leaving() or time.monotonic() >= ends_at:
            return
