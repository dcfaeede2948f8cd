"""A run that consists of a dashboard alone: `python live_run.py RUN_DIR MESSAGES_FD [flags as JSON]`.

Frames are drawn here, as a viewer would. What the dashboard says goes to the descriptor. A line on stdin ends it.
"""

from __future__ import annotations

import io
import json
import math
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from PIL import Image, ImageDraw

from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel, MessageWriter
from spreeze.channels.frames import FramesChannel, FrameWriter
from spreeze.channels.listener import ListenerChannel
from spreeze.config import Config
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.port import bind
from spreeze.views.dashboard.process import run

SLOT = 3


def draw(frames: FrameWriter) -> None:
    number = 0
    while True:
        number += 1
        picture = Image.new("RGB", (480, 360), (238, 242, 245))
        angle = math.sin(number / 8) * 0.6
        x, y = 240 + 140 * math.sin(angle), 190 - 140 * math.cos(angle)
        pen = ImageDraw.Draw(picture)
        pen.line((240, 190, x, y), fill=(190, 80, 60), width=18)
        pen.ellipse((230, 180, 250, 200), fill=(40, 50, 60))
        content = io.BytesIO()
        picture.save(content, "JPEG")
        published_at = time.monotonic() - 3.0
        frames.write(content.getvalue(), 12_087, -1234.5 - number, number, published_at)
        time.sleep(0.04)  # as an environment of 25 frames a second


def main() -> None:
    run_dir, messages_fd = Path(sys.argv[1]), int(sys.argv[2])
    fields: dict[str, Any] = {"dashboard_port": 0, **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}")}
    control, frames = ControlChannel(), FramesChannel()
    if fields.pop("draws", True):
        threading.Thread(target=draw, args=(frames.writer(),), daemon=True).start()

    def end() -> None:
        sys.stdin.readline()
        control.dismiss(SLOT)

    threading.Thread(target=end, daemon=True).start()
    config = Config("Pendulum-v1").replace(dashboard=True, **fields)
    host, door = config.watching.dashboard_host, ListenerChannel()
    listener = bind(host, config.watching.dashboard_port)
    door.open(listener, Access(host, 0).token)
    channels = SimpleNamespace(control=control, frames=frames, listener=door)
    spec = SimpleNamespace(slot=SLOT, config=config, run_dir=run_dir, channels=channels)
    run(cast(Brief, spec), MessageWriter(messages_fd))


if __name__ == "__main__":
    main()
