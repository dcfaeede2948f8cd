from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from spreeze.channels.brief import Brief, VideoOrder
from spreeze.channels.control import MessageList
from spreeze.errors import NotRenderable
from spreeze.views import recorder


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_recorder_yields_to_the_training_but_not_once_that_has_ended(
    is_awaited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclasses.dataclass
    class Ordered:
        video: VideoOrder
        env: Any = None

    def refuse(_: object) -> None:
        raise NotRenderable("it is dark")

    lowered: list[int] = []
    monkeypatch.setattr(recorder, "lower_priority", lowered.append)
    monkeypatch.setattr(recorder, "open_stage", refuse)
    order = VideoOrder(tmp_path / "a", tmp_path / "a.mp4", 0, 1.0, is_awaited=is_awaited)
    recorder.run(cast(Brief, Ordered(order)), cast(Any, MessageList()))
    assert lowered == ([] if is_awaited else [recorder.NICENESS])
