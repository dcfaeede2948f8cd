"""Leaves out what MuJoCo does in a step and no row depends on: its stopwatch, and a search for islands.

In: a process that steps MuJoCo, or a model. Out: the same rows bit by bit, sooner.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any


def stop_its_stopwatch() -> None:
    """Let MuJoCo, where this process has it, time the stages of its steps no more.

    Its Python bindings give it a clock that is read at every stage of every frame, for `MjData.timer` alone. They
    cannot take it away again, so the pointer to it is cleared in the library. A clock that somebody has set stays.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return
    # A version that has none of these, or keeps its clock elsewhere, keeps time.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if mujoco.get_mjcb_time() is None:
            library = ctypes.CDLL(mujoco._functions.__file__)  # looks in what it was linked with, too
            ctypes.c_void_p.in_dll(library, "mjcb_time").value = None


def skip_islands(model: Any) -> None:
    """Tell a model of one robot not to look for parts that could be solved on their own: one tree is one island.

    The mid phase of collisions could go too, since bodies have few geoms, but contacts then come in another order.
    """
    import mujoco

    flags = mujoco.mjtDisableBit
    if model.ntree == 1 and hasattr(flags, "mjDSBL_ISLAND"):  # in older versions they are off by default
        model.opt.disableflags |= int(flags.mjDSBL_ISLAND)
