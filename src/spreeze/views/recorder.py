"""The recorder process: records one version of the policy as a video, during the training or after it."""

from __future__ import annotations

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.errors import NotRenderable
from spreeze.host.own_files import make_own_folder
from spreeze.host.priority import lower_priority
from spreeze.policy.file import load_policy
from spreeze.views.rendering import open_stage
from spreeze.views.video import record

NICENESS = 19  # during the training


def run(brief: Brief, messages: MessageWriter) -> None:
    """Record the ordered video."""
    order = brief.video
    assert order is not None
    if not order.is_awaited:
        lower_priority(NICENESS)
    try:
        stage = open_stage(brief.env)
        make_own_folder(order.target.parent, brief.run_dir)
        policy = load_policy(order.weights, brief.run_dir)
        made = record(stage, policy, [order.seed], order.target, max_work_s=order.max_work_s, root=brief.run_dir)
    except NotRenderable as error:
        messages.record_event("video", f"there is no video: {error}")
        return
    messages.record_event(
        "video",
        f"{order.target.name} shows an episode of return {made.returns[0]:.1f}",
        path=str(order.target),
        frames=made.frames,
        fps=made.fps,
        returns=made.returns,
    )
    stage.close()
