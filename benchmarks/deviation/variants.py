"""Every deviation that can be switched: what a run of it has that a run with Spreeze's defaults does not have.

docs/algorithms/*.md list the deviations; a row there names its variant by the name here.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from session import SPREEZE

STEPS, WARM_UP = 5000, 1000
NO_WARM_UP = 64  # as many as a batch
# Of a run, unless its variant says otherwise. Small networks and one update per step, so that a run takes seconds.
SHARED = (
    f"--max-env-steps={STEPS}",
    "--samplers=1",
    "--envs-per-sampler=8",
    "--eval-episodes=2",
    "--batch-size=64",
    "--max-updates-per-step=1",
)
PAGES = {
    "common": "what all algorithms do differently: SAC unless it says otherwise",
    "sac": "SAC",
    "td3": "TD3",
    "ddpg": "DDPG",
    "dqn": "DQN",
}
NARROW = (64, 64)
CART_POLE_EVALUATIONS = "--eval-episodes=5"  # its episodes are short at first
PENDULUM, CART_POLE = "Pendulum-v1", "CartPole-v1"
ENDING, DIGITS = "deviating_envs:EndingPendulum-v1", "deviating_envs:PendulumDigits-v1"
NOISE = (sys.executable, str(Path(__file__).with_name("other_noise.py")))


@dataclass(frozen=True)
class Variant:
    """One line of a table."""

    page: str
    name: str
    algo: str
    """A built-in algorithm, or the class of one that exists only here."""
    base: str | None
    """The variant that it differs from in one thing; None for one that others differ from."""
    flags: tuple[str, ...] = ()
    env: str = PENDULUM
    hidden: tuple[int, ...] = NARROW
    noise: str = ""
    """A kind of `other_noise.py`."""
    cost: float = 1.0
    """How long an update takes, compared with one of TD3."""

    def words(self, seed: int) -> tuple[str, ...]:
        """Return what follows `train`."""
        widths = ("--hidden", *map(str, self.hidden))
        return (self.env, f"--algo={self.algo}", f"--seed={seed}", *SHARED, *self.flags, *widths)

    def program(self) -> tuple[str, ...]:
        return (*NOISE, self.noise) if self.noise else SPREEZE

    def how(self) -> str:
        """Say what makes the difference, apart from the task: flags, a class or a kind of noise."""
        flags = [flag.replace("=", " ") for flag in self.flags if flag != CART_POLE_EVALUATIONS]
        if self.hidden != NARROW:
            flags.append(f"--hidden {' '.join(map(str, self.hidden))}")
        parts = [f"`{' '.join(flags)}`"] if flags else []
        if ":" in self.algo:
            parts.append(f"`{self.algo.partition(':')[2]}`")
        if self.noise:
            parts.append(f"noise `{self.noise}`")
        return ", ".join(parts) or "-"


def own(module: str, name: str) -> str:
    return f"deviation.{module}:{name}"


def _common() -> list[Variant]:
    def sac(name: str, algo: str = "sac", *flags: str, env: str = PENDULUM, base: str = "sac") -> Variant:
        return Variant("common", name, algo, base, flags, env, cost=1.5)

    no_wait = f"--warmup-steps={NO_WARM_UP}"
    # As many updates as after the usual warm-up.
    same_updates = f"--max-updates-per-step={(STEPS - WARM_UP) / (STEPS - NO_WARM_UP):.4f}"
    bfloat16 = Variant("common", "bfloat16", "sac", "sac", ("--update-engine=bfloat16",), cost=1.5)
    ddpg = Variant("common", "ddpg, no random actions first", "ddpg", "ddpg", (no_wait, same_updates))
    units = ("--exploration=0.05", "--exploration-high=0.2", "--target-noise=0.1", "--target-noise-clip=0.25")
    return [
        sac("one environment", "sac", "--envs-per-sampler=1"),
        sac("policies of up to 100 updates ago", own("continuous", "LaggingSac")),
        sac("a larger rate for a batch of 256", "sac", "--batch-size=256", base="sac, batch 256"),
        sac("a time limit ends", env=ENDING),
        ddpg,
        Variant("common", "td3, noise in the environment's units", "td3", "td3", units),
        Variant("common", "td3, critics see the environment's units", own("continuous", "UnitsTd3"), "td3"),
        Variant("common", "td3, mean of squares", own("continuous", "SquaresTd3"), "td3"),
        sac("TensorFlow's initial weights", own("continuous", "GlorotSac")),
        bfloat16,
    ]


def _sac() -> list[Variant]:
    def sac(name: str, algo: str = "sac", *flags: str, base: str | None = "sac") -> Variant:
        return Variant("sac", name, algo, base, flags, cost=2.0 if "256" in name else 1.5)

    def discrete(name: str, base: str | None, *flags: str) -> Variant:
        return Variant("sac", name, "sac", base, (CART_POLE_EVALUATIONS, *flags), CART_POLE, cost=1.5)

    return [
        sac("sac", base=None),
        sac("learning rate 0.0003", "sac", "--learning-rate=0.0003"),
        sac("sac, batch 256", "sac", "--batch-size=256", "--learning-rate-batch=256"),
        sac("tau 0.005", "sac", "--tau=0.005"),
        sac("alpha for log alpha", own("continuous", "AlphaSac")),
        sac("initial temperature 1", "sac", "--initial-temperature=1"),
        sac("entropy of actions drawn for it", own("continuous", "FreshEntropySac")),
        sac("no bounds of the log standard deviation", own("continuous", "UnboundedSac")),
        sac("returns of three steps", "sac", "--n-step=3"),
        sac(
            "returns of three steps with entropy",
            own("continuous", "EntropyBetweenSac"),
            "--n-step=3",
            base="returns of three steps",
        ),
        discrete("discrete sac", None),
        discrete("target entropy 0.98 of random", "discrete sac", f"--target-entropy={0.98 * math.log(2):.4f}"),
    ]


def _td3() -> list[Variant]:
    wide = (256, 256)
    return [
        Variant("td3", "td3", "td3", None),
        Variant("td3", "td3, hidden 256 256", "td3", None, hidden=wide, cost=3.0),
        Variant("td3", "td3, hidden 400 300", "td3", "td3, hidden 256 256", hidden=(400, 300), cost=4.0),
        Variant("td3", "td3, batch 100", "td3", "td3", ("--batch-size=100",), cost=1.2),
        Variant("td3", "td3, tau 0.005", "td3", "td3", ("--tau=0.005",)),
        Variant("td3", "noise 0.1 everywhere", "td3", "td3", ("--exploration=0.1", "--exploration-high=0.1")),
        Variant("td3", "unclipped target actions", own("continuous", "UnclippedTd3"), "td3"),
    ]


def _ddpg() -> list[Variant]:
    def ddpg(name: str, algo: str = "ddpg", *flags: str, noise: str = "") -> Variant:
        return Variant("ddpg", name, algo, "ddpg", flags, noise=noise)

    return [
        Variant("ddpg", "ddpg", "ddpg", None),
        ddpg("Ornstein-Uhlenbeck noise", noise="ornstein-uhlenbeck"),
        ddpg("weight decay 0.01", own("continuous", "DecayDdpg")),
        ddpg("actor's learning rate 0.0001", own("continuous", "SlowActorDdpg")),
        ddpg("tau 0.001", "ddpg", "--tau=0.001"),
        Variant("ddpg", "ddpg, hidden 256 256", "ddpg", None, hidden=(256, 256), cost=2.0),
        Variant("ddpg", "ddpg, hidden 400 300", "ddpg", "ddpg, hidden 256 256", hidden=(400, 300), cost=3.0),
        ddpg("action in the second layer", own("continuous", "LateActionDdpg")),
        ddpg("layer norm", "ddpg", "--layer-norm"),
        ddpg("normalised observations", "ddpg", "--normalise-observations"),
        ddpg("last layers within 0.003", own("continuous", "SmallLastDdpg")),
        ddpg("mean of squares", own("continuous", "SquaresDdpg")),
    ]


def _dqn() -> list[Variant]:
    def cart_pole(name: str, algo: str = "dqn", base: str | None = "dqn", noise: str = "") -> Variant:
        return Variant("dqn", name, algo, base, (CART_POLE_EVALUATIONS,), CART_POLE, noise=noise)

    def digits(name: str, algo: str = "dqn", base: str | None = "dqn, two components", noise: str = "") -> Variant:
        return Variant("dqn", name, algo, base, env=DIGITS, noise=noise)

    return [
        cart_pole("dqn", base=None),
        cart_pole("copies of the target", own("discrete", "CopyingDqn")),
        cart_pole("Huber loss", own("discrete", "HuberDqn")),
        cart_pole("falling exploration", noise="falling"),
        cart_pole("gradient clipped at 10", own("discrete", "ClippedDqn")),
        digits("dqn, two components", base=None),
        digits("components random at once", noise="joint"),
        digits("shared layers' gradient scaled", own("discrete", "SharedLayersDqn")),
    ]


VARIANTS: dict[str, Variant] = {
    variant.name: variant for variant in [*_common(), *_sac(), *_td3(), *_ddpg(), *_dqn()]
}
