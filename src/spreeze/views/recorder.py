"""Records one version of the policy as a video, beside the training or after it."""

from __future__ import annotations

from spreeze.channels.brief import ChildSpec
from spreeze.channels.control import MessageWriter
from spreeze.errors import NotRenderable
from spreeze.host.priority import give_way
from spreeze.policy.file import load_policy
from spreeze.views.rendering import open_stage
from spreeze.views.video import record

NICENESS = 19


def run(spec: ChildSpec, messages: MessageWriter) -> None:
    """Record the video that is ordered."""
    film = spec.film
    assert film is not None
    give_way(NICENESS)
    try:
        stage = open_stage(spec.env)
        film.target.parent.mkdir(parents=True, exist_ok=True)
        made = record(stage, load_policy(film.weights), [film.seed], film.target, max_work_s=film.max_work_s)
    except NotRenderable as error:
        messages.send("event", event="video", reason=f"there is no video: {error}")
        return
    messages.send(
        "event",
        event="video",
        reason=f"{film.target.name} shows an episode of return {made.returns[0]:.1f}",
        path=str(film.target),
        frames=made.frames,
        fps=made.fps,
        returns=made.returns,
    )
    stage.close()
