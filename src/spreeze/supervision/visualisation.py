"""What shows a run besides the terminal: dashboard, viewer and videos, where they are wanted and installed.

In: the config, measurements and evaluations. Out: optional processes and orders for videos, each at the right moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil

from spreeze.channels.weights import kept_weights, version_path
from spreeze.config import Config
from spreeze.errors import UsageError
from spreeze.host.installed import is_installed
from spreeze.host.own_files import is_own_file
from spreeze.runs.records import Evaluation, Measurement
from spreeze.supervision.run_workers import RunWorkers
from spreeze.supervision.video_orders import VideoOrders
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.port import bind

NO_DASHBOARD = 'there is no dashboard: it needs NiceGUI, pip install "spreeze[dashboard]"'


class Visualisation:
    """What is started, when, for people to see a run."""

    def __init__(
        self,
        workers: RunWorkers,
        config: Config,
        videos: VideoOrders,
        record_event: Callable[[str, str], None],
        draws: bool = True,
    ) -> None:
        """draws: whether the environment may draw pictures; if not, no process is started for a video."""
        self._workers, self._config, self._videos = workers, config, videos
        self._record_event, self._draws = record_event, draws
        self._waits_for_dashboard = self._waits_for_view = False
        self.address = ""
        """Of the dashboard, if there is one."""

    def open_page(self, show_address: Callable[[str], None]) -> None:
        """Open the dashboard's port, so that its address is known from the start. `measured` starts its process."""
        watching = self._config.watching
        if not watching.dashboard:
            return
        if not all(map(is_installed, ("nicegui", "spreeze.views.dashboard.process"))):
            self._record_event("dashboard", NO_DASHBOARD)
            return
        try:
            listener = bind(watching.dashboard_host, watching.dashboard_port, "--dashboard-port")
        except UsageError as error:
            self._record_event("warning", f"there is no dashboard, and the run continues: {error}")
            return
        access = Access(watching.dashboard_host, listener.getsockname()[1])
        self._workers.channels.listener.open(listener, access.token)
        self.address = access.address
        show_address(self.address)
        self._waits_for_dashboard, self._waits_for_view = True, watching.view

    def measured(self, measurement: Measurement) -> None:
        """Start what is due: after the first figures, so that nothing slows the start of the training."""
        self.require_page()
        if self._waits_for_view and measurement.updates > 0:
            self._waits_for_view = False
            self._workers.add_optional("viewer")

    def require_page(self) -> None:
        """Start the dashboard if the run was too short for it."""
        if self._waits_for_dashboard:
            self._waits_for_dashboard = False
            self._workers.add_optional("dashboard")

    @property
    def has_page(self) -> bool:
        """Whether there is a dashboard, and its process lives."""
        return any(map(_lives, self._workers.pids_by_role().get("dashboard", [])))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Order a video of what the evaluator has kept for one: each Nth version, where that is wanted."""
        kept = version_path(kept_weights(self._videos.run_dir), evaluation.version)
        if self._draws and self._config.watching.video_every and is_own_file(kept, self._videos.run_dir):
            self._videos.order(kept, f"eval-{evaluation.version:08d}.mp4")

    def turn(self) -> None:
        """Bring videos forward."""
        self._videos.turn()

    def finish(self) -> None:
        """Record the best policy, and wait for all videos."""
        best = self._videos.run_dir / "best" / "policy.safetensors"
        self._videos.wait()
        if not self._config.watching.video or not is_own_file(best, self._videos.run_dir):
            return
        if not self._draws:
            self._record_event("video", f"there is no video: {self._config.env} does not draw pictures")
            return
        self._videos.order(best, "best.mp4", is_last=True)
        self._videos.wait()

    def close(self) -> None:
        """Give up what is not ready."""
        self._videos.close()


def _lives(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
