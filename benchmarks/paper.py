"""The headline of the Spreeze paper beside what this implementation reaches, each with its hardware.

In: a result of `spreeze bench throughput` on a GPU, and one of `spreeze tune` on a CPU. Out: a Markdown table.
"""

from __future__ import annotations

from typing import Any

from shown import markdown

# The abstract of arXiv 2312.06126 has the rates, "on a personal desktop"; hardware and tasks are as summaries of its
# experiments give them.
PAPER_SAMPLING_HZ = 15_000
PAPER_UPDATE_FRAME_HZ = 370_000
PAPER_HARDWARE = "a desktop with 12 cores and one GPU"


def table(gpu: dict[str, Any], cpu: dict[str, Any]) -> str:
    """Rates while both go on: environment steps a second, and transitions a second that updates are made of."""
    training, adapted = gpu["training"], cpu["adapted"]
    rows = [
        [
            'the paper, "up to"',
            PAPER_HARDWARE,
            "PyBullet tasks",
            "",
            f"{PAPER_SAMPLING_HZ:,}",
            f"{PAPER_UPDATE_FRAME_HZ:,}",
        ],
        [
            "Spreeze",
            f"{gpu['cores']} cores, one NVIDIA H200",
            gpu["env"],
            f"{training['batch_size']:,}",
            f"{training['sampling_hz']:,.0f}",
            f"{training['update_frame_hz']:,.0f}",
        ],
        [
            "Spreeze, as adapted",
            f"{cpu['cores']} cores, no GPU",
            cpu["env"],
            f"{adapted['settings']['batch_size']:,}",
            f"{adapted['sampling_hz']:,.0f}",
            f"{adapted['update_frame_hz']:,.0f}",
        ],
    ]
    return markdown(("system", "hardware", "task", "batch", "env steps/s", "update frames/s"), rows)
