"""Make a moving picture of a training: the robot at a few moments, next to the learning curve up to each of them.

    python examples/training_picture.py --env HalfCheetah-v5 --seconds 120 --out docs/images/training.webp

Trains in a process of its own and keeps every version of the weights, then plays the versions that were evaluated
nearest to the wanted moments. A run folder that is already there is drawn again without training. Needs the extra
"plot"; without a screen, MuJoCo draws with EGL.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import spreeze

Picture = NDArray[np.uint8]  # (height, width, 3)

HEIGHT, ROBOT_WIDTH, CURVE_WIDTH = 320, 360, 360  # pixels
SKIPPED_STEPS = 40  # of an episode, so that a robot that can run already does
GROWING_SHARE = 0.4  # of a clip, in which the curve grows from the clip before
POLL_S = 0.2  # a training publishes four versions per second and keeps the newest eight
QUALITY = 62  # of lossy WebP: 180 frames of HalfCheetah-v5 take less than 1.5 MB
BLUE, GREY = "#0072B2", "#555555"


@dataclass(frozen=True)
class Evaluation:
    """One line of evaluations.jsonl."""

    wall_s: float
    version: int
    mean_return: float


def main() -> None:
    """Train unless the run is there, then draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="HalfCheetah-v5", help="one of Gymnasium's MuJoCo robots")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--moments", type=float, nargs="+", default=[0, 20, 40, 80, 120], help="seconds to show")
    parser.add_argument("--clip-seconds", type=float, default=1.8, help="how long each moment is shown")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/training-picture"))
    parser.add_argument("--out", type=Path, default=Path("training.webp"), help=".webp or .gif")
    args = parser.parse_args()

    versions = args.run_dir.with_name(args.run_dir.name + "-versions")
    if not args.run_dir.exists():
        train(args.env, args.seconds, args.seed, args.run_dir, versions)
    evaluations = read_evaluations(args.run_dir)
    kept = [evaluation for evaluation in evaluations if weights_file(versions, evaluation.version).exists()]
    shown = [min(kept, key=lambda evaluation: abs(evaluation.wall_s - moment)) for moment in args.moments]
    frames, fps = draw_clips(args.env, evaluations, shown, versions, args.clip_seconds)
    frames[0].save(
        args.out,
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 / fps),
        loop=0,
        quality=QUALITY,
        method=6,
    )
    print(f"{args.out}: {len(frames)} frames, {args.out.stat().st_size / 1e6:.2f} MB")


# --- the training -----------------------------------------------------------------------------------------------


def train(env: str, seconds: float, seed: int, run_dir: Path, versions: Path) -> None:
    """Train with the command line, and keep each version of the weights before the run removes it."""
    versions.mkdir(parents=True)
    command = [sys.executable, "-m", "spreeze", "train", env, "--max-seconds", f"{seconds}", "--seed", f"{seed}"]
    command += ["--run-dir", f"{run_dir}", "--no-dashboard", "--no-video", "--quiet"]
    with subprocess.Popen(command) as training:
        while training.poll() is None:
            time.sleep(POLL_S)
            keep_versions(run_dir, versions)
    keep_versions(run_dir, versions)
    if training.returncode != 0:
        sys.exit(training.returncode)


def keep_versions(run_dir: Path, versions: Path) -> None:
    """Link the weights that are there now: their files are never changed, only replaced by newer ones."""
    for file in run_dir.glob("weights/policy-*.safetensors"):
        kept = versions / file.name
        if not kept.exists():
            try:
                os.link(file, kept)
            except FileNotFoundError:
                continue  # removed by the run after glob has seen it


def weights_file(versions: Path, version: int) -> Path:
    """Return the path of a version that was kept."""
    return versions / f"policy-{version:08}.safetensors"


def read_evaluations(run_dir: Path) -> list[Evaluation]:
    """Read the learning curve of a run."""
    lines = (run_dir / "evaluations.jsonl").read_text().splitlines()
    return [Evaluation(line["wall_s"], line["version"], line["mean_return"]) for line in map(json.loads, lines)]


# --- the picture ------------------------------------------------------------------------------------------------


def draw_clips(
    env: str, evaluations: Sequence[Evaluation], shown: Sequence[Evaluation], versions: Path, clip_seconds: float
) -> tuple[list[Image.Image], float]:
    """Draw a clip for each evaluation in `shown`; return the frames and how many there are in a second."""
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # read when Gymnasium imports MuJoCo's renderer
    stage = gymnasium.make(env, render_mode="rgb_array", width=ROBOT_WIDTH, height=HEIGHT, camera_name="track")
    fps = float(stage.metadata["render_fps"])
    curve = CurvePanel(env, evaluations)
    frames: list[Image.Image] = []
    drawn_s = 0.0
    for evaluation in shown:
        clip = play(stage, spreeze.load_policy(weights_file(versions, evaluation.version)), round(fps * clip_seconds))
        for i, robot in enumerate(clip):
            grown = min(1.0, (i + 1) / (GROWING_SHARE * len(clip)))
            panel = curve.draw(drawn_s + grown * (evaluation.wall_s - drawn_s))
            frame = Image.fromarray(np.hstack([robot, panel]))
            write_caption(frame, evaluation)
            frames.append(frame)
        drawn_s = evaluation.wall_s
    stage.close()
    return frames, fps


def play(stage: gymnasium.Env[Any, Any], policy: Any, frames: int) -> list[Picture]:
    """Play one episode from its start and return pictures of it."""
    observation, _ = stage.reset(seed=0)
    pictures = []
    for step in range(SKIPPED_STEPS + frames):
        observation, *_ = stage.step(policy(observation))
        if step >= SKIPPED_STEPS:
            pictures.append(np.asarray(stage.render(), np.uint8))
    return pictures


def write_caption(frame: Image.Image, evaluation: Evaluation) -> None:
    """Write over the robot how long it was trained, and the return that the evaluator has measured then."""
    draw = ImageDraw.Draw(frame)
    lines = ((f"after {evaluation.wall_s:.0f} s of training", 20), (f"return {evaluation.mean_return:,.0f}", 17))
    top = 12
    for text, size in lines:
        draw.text((14, top), text, "white", ImageFont.load_default(size), stroke_width=1, stroke_fill="black")
        top += size + 6


class CurvePanel:
    """The learning curve up to a moment, on axes that fit all of it."""

    def __init__(self, title: str, evaluations: Sequence[Evaluation]) -> None:
        dots_per_inch = 100
        self._seconds = np.array([evaluation.wall_s for evaluation in evaluations])
        self._returns = np.array([evaluation.mean_return for evaluation in evaluations])
        with mpl.rc_context({"font.size": 9, "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY}):
            figure = Figure((CURVE_WIDTH / dots_per_inch, HEIGHT / dots_per_inch), dots_per_inch)
            figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)  # inches
            self._axes = figure.add_subplot()
        self._axes.set_title(title, fontsize=10)
        self._axes.set(xlabel="seconds since the start of the command", ylabel="mean return of an evaluation")
        self._axes.set(xlim=(0, self._seconds[-1] * 1.03), ylim=_padded(self._returns))
        self._axes.spines[["top", "right"]].set_visible(False)
        self._axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        self._axes.grid(color="#E5E5E5", linewidth=0.6)
        (self._line,) = self._axes.plot([], [], color=BLUE, linewidth=2)
        (self._end,) = self._axes.plot([], [], "o", color=BLUE, markersize=7)
        self._canvas: Any = FigureCanvasAgg(figure)  # matplotlib has no types here

    def draw(self, until_s: float) -> Picture:
        """Return a picture of the curve up to a moment."""
        before = self._seconds < until_s
        end = np.interp(until_s, self._seconds, self._returns)
        self._line.set_data([*self._seconds[before], until_s], [*self._returns[before], end])
        self._end.set_data([until_s], [end])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba(), np.uint8)[:, :, :3]


def _padded(values: NDArray[np.float64]) -> tuple[float, float]:
    margin = 0.06 * float(np.ptp(values))
    return float(values.min()) - margin, float(values.max()) + margin


if __name__ == "__main__":
    main()
