"""The variants that do as the papers do: each differs from the default in what it is meant to."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from making import make
from torch import Tensor

from spreeze.algorithms import Batch, FlatParameters
from spreeze.algorithms.algorithm import Algorithm
from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.dqn import Dqn
from spreeze.algorithms.kernels.operations import squashed_gaussian
from spreeze.algorithms.sac import Sac
from spreeze.algorithms.td3 import Td3
from spreeze.sampling.exploration import NOISE_STEPS, ChoiceExploration, Exploration

torch.set_num_threads(1)  # at these sizes a second thread only waits for the first
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OBS_DIM, ACT_DIM, ROWS = 3, 2, 32
CHOICES = (3, 2)


def load(name: str) -> ModuleType:
    sys.path[:0] = [str(BENCHMARKS)]
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module", autouse=True)
def _search_path() -> Iterator[None]:
    """Leave the search path as it was: the scripts extend it for each other."""
    before = list(sys.path)
    yield
    sys.path[:] = before


def batch_of(discrete: bool = False, reward: float = 1.0, n_step: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        torch.randn(ROWS, OBS_DIM, generator=generator),
        torch.ones(ROWS, ACT_DIM, dtype=torch.int32)
        if discrete
        else torch.rand(ROWS, ACT_DIM, generator=generator) * 2 - 1,
        reward * torch.randn(ROWS, generator=generator),
        torch.randn(ROWS, OBS_DIM, generator=generator),
        torch.zeros(ROWS),
        torch.full((ROWS,), 0.99**n_step),
    )


def continuous(name: str, **shared: Any) -> Any:
    kind = getattr(load("deviation.continuous"), name) if isinstance(name, str) else name
    return make(kind, OBS_DIM, ACT_DIM, **{"tau": 0.1, "learning_rate": 1e-3, **shared})


def discrete(name: str, **shared: Any) -> Any:
    kind = getattr(load("deviation.discrete"), name) if isinstance(name, str) else name
    return make(kind, OBS_DIM, ACT_DIM, choices=CHOICES, **{"tau": 0.1, "learning_rate": 1e-3, **shared})


def updated(algorithm: Algorithm, times: int = 1, **about: Any) -> dict[str, Tensor]:
    """Make updates of one batch with the same noise for all algorithms; return the figures of the last."""
    generator = torch.Generator().manual_seed(2)
    terms: Any = {}
    for _ in range(times):
        terms = algorithm.update(batch_of(**about), generator)
    return dict(terms)


# --- SAC -------------------------------------------------------------------------------------------------------


def test_samplers_act_with_a_policy_of_some_updates_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load("deviation.continuous"), "UPDATES_PER_VERSION", 3)
    sac = continuous("LaggingSac")
    first = sac.policy()["actor.0.weight"].clone()
    updated(sac, 2)
    torch.testing.assert_close(sac.policy()["actor.0.weight"], first)
    updated(sac)
    torch.testing.assert_close(sac.policy()["actor.0.weight"], sac.actor.frozen["actor.0.weight"])
    assert not torch.equal(sac.policy()["actor.0.weight"], first)


def test_the_temperature_itself_takes_the_step_and_stays_positive() -> None:
    sac, usual = continuous("AlphaSac"), continuous(Sac)
    updated(sac)
    updated(usual)
    alpha = sac.temperature.flat.exp().item()
    assert abs(alpha - 0.2) == pytest.approx(1e-3, rel=1e-3)  # Adam's first step, of alpha
    assert abs(usual.temperature.flat.exp().item() - 0.2) == pytest.approx(2e-4, rel=1e-2)  # and of its logarithm
    torch.testing.assert_close(sac.actor.flat, usual.actor.flat)
    sac.learning_rate = 0.1  # it goes down, past 0 if nothing kept it
    updated(sac, 5)
    assert 0 < sac.temperature.flat.exp().item() < 0.01
    assert sac.alpha in sac.networks()


def test_the_entropy_of_the_temperature_is_of_other_actions() -> None:
    sac, usual = continuous("FreshEntropySac"), continuous(Sac)
    assert updated(sac)["entropy"].item() != updated(usual)["entropy"].item()
    torch.testing.assert_close(sac.actor.flat, usual.actor.flat)


def test_the_standard_deviation_has_no_bounds() -> None:
    free = load("deviation.parts").squashed_gaussian_without_bounds
    noise = torch.ones(1, 1)
    inside, outside = torch.tensor([[0.1, -1.0]]), torch.tensor([[0.1, -7.0]])
    for ours, theirs in zip(free(inside, noise), squashed_gaussian(inside, noise), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert free(outside, noise)[1].item() == pytest.approx(squashed_gaussian(outside, noise)[1].item() + 2, abs=0.02)
    sac = continuous("UnboundedSac")
    updated(sac)
    assert sac.operations.squashed_gaussian is free


def test_weights_begin_as_those_of_tensorflow() -> None:
    sac = continuous("GlorotSac")
    weight = sac.critic.frozen["critic.1.weight"]  # 16 to 16
    assert 0.9 * (6 / 32) ** 0.5 < weight.abs().max().item() <= (6 / 32) ** 0.5
    assert not sac.actor.frozen["actor.0.bias"].any()
    torch.testing.assert_close(sac.target_critic.flat, sac.critic.flat)


def test_steps_between_get_their_entropy() -> None:
    ours, usual = continuous("EntropyBetweenSac"), continuous(Sac)
    assert updated(ours)["critic_loss"].item() == pytest.approx(
        updated(usual)["critic_loss"].item()
    )  # there are none
    ours, usual = continuous("EntropyBetweenSac"), continuous(Sac)
    batch, noise, targets = batch_of(n_step=3), torch.randn(ROWS, ACT_DIM), {}
    for sac in (ours, usual):
        loss_of = sac.critic_loss
        sac.critic_loss = lambda batch, target, sac=sac, loss_of=loss_of: (
            targets.update({sac: target}) or loss_of(batch, target)
        )
        sac.update_critic(batch, noise)
    _, log_pi = usual.sample_action(usual.actor.frozen, batch.next_observation, noise)
    between = 0.2 * (0.99 + 0.99**2) * -log_pi.mean()
    torch.testing.assert_close(targets[ours] - targets[usual], between.expand(ROWS), rtol=1e-4, atol=1e-5)


# --- TD3 and DDPG ----------------------------------------------------------------------------------------------


def test_target_actions_may_leave_the_bounds() -> None:
    td3, usual = continuous("UnclippedTd3"), continuous(Td3)
    for algorithm in (td3, usual):
        algorithm.target_actor.frozen["actor.2.bias"].fill_(9.0)
    observation, noise = torch.zeros(4, OBS_DIM), torch.ones(4, ACT_DIM)
    torch.testing.assert_close(usual.next_action(observation, noise), torch.ones(4, ACT_DIM))
    torch.testing.assert_close(td3.next_action(observation, noise), torch.full((4, ACT_DIM), 1.2), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("name", "kind"), [("SquaresTd3", Td3), ("SquaresDdpg", Ddpg)])
def test_the_loss_of_critics_is_without_the_half(name: str, kind: type[Algorithm]) -> None:
    ours, usual = continuous(name), continuous(kind)
    assert updated(ours)["critic_loss"].item() == pytest.approx(2 * updated(usual)["critic_loss"].item())


def test_critics_see_actions_in_the_units_of_the_environment() -> None:
    ours, usual = continuous("UnitsTd3"), continuous(Td3)
    for critic in (usual.critic, usual.target_critic):  # the same function of twice the action
        critic.frozen["critic.0.weight"][:, OBS_DIM:] *= 2
    found, expected = updated(ours), updated(usual)
    for figure in ("critic_loss", "q_mean"):
        torch.testing.assert_close(found[figure], expected[figure])
    ours.update_actor(batch_of(), torch.zeros(ROWS, ACT_DIM))
    action = ours.deterministic_action(ours.actor.frozen, batch_of().observation)
    first = {name: tensor[:1] for name, tensor in ours.critic.frozen.items()}
    again = ours.update_actor(batch_of(), torch.zeros(ROWS, ACT_DIM))["actor_loss"]
    torch.testing.assert_close(again, -ours.values(first, batch_of().observation, 2 * action).mean())


def test_the_critics_weights_decay() -> None:
    ours, usual = continuous("DecayDdpg"), continuous(Ddpg)
    squares = ours.critic.flat.square().sum().item()
    more = updated(ours)["critic_loss"].item() - updated(usual)["critic_loss"].item()
    assert more == pytest.approx(0.5 * 0.01 * squares, rel=1e-3)
    assert ours.critic.flat.grad is not None
    assert not torch.equal(ours.critic.flat, usual.critic.flat)


def test_the_actor_has_a_tenth_of_the_rate() -> None:
    ddpg = continuous("SlowActorDdpg")
    for rate in (1e-3, 2e-3):
        ddpg.learning_rate = rate
        rates = [ddpg.optimisers[name].learning_rate for name in ("critic", "actor")]
        assert rates == pytest.approx([rate, 0.1 * rate])
    assert ddpg.learning_rate == 2e-3
    assert continuous("SlowActorDdpg").optimisers["actor"].learning_rate == pytest.approx(1e-4)


def test_last_layers_begin_small() -> None:
    ddpg, usual = continuous("SmallLastDdpg"), continuous(Ddpg)
    for network in ("actor", "critic"):
        tensors, others = getattr(ddpg, network).frozen, getattr(usual, network).frozen
        assert 0.001 < tensors[f"{network}.2.weight"].abs().max().item() <= 0.003
        torch.testing.assert_close(tensors[f"{network}.1.weight"], others[f"{network}.1.weight"])
    torch.testing.assert_close(ddpg.target_actor.flat, ddpg.actor.flat)


def test_the_action_enters_in_the_second_layer() -> None:
    ddpg = continuous("LateActionDdpg")
    shapes = [tuple(ddpg.critic.frozen[f"critic.{i}.weight"].shape) for i in range(3)]
    assert shapes == [(1, OBS_DIM, 16), (1, 16 + ACT_DIM, 16), (1, 16, 1)]
    parts, batch = ddpg.critic.frozen, batch_of()
    first = (batch.observation @ parts["critic.0.weight"][0] + parts["critic.0.bias"][0]).relu()
    second = torch.cat([first, batch.action], -1) @ parts["critic.1.weight"][0] + parts["critic.1.bias"][0]
    q = second.relu() @ parts["critic.2.weight"][0] + parts["critic.2.bias"][0]
    torch.testing.assert_close(ddpg.values(parts, batch.observation, batch.action)[0], q[:, 0])
    before = [network.flat.clone() for network in ddpg.networks()]
    updated(ddpg, 2)
    assert all(not torch.equal(network.flat, was) for network, was in zip(ddpg.networks(), before, strict=True))


# --- DQN -------------------------------------------------------------------------------------------------------


def test_the_target_network_is_a_copy_of_some_updates_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load("deviation.discrete"), "UPDATES_PER_COPY", 3)
    dqn = discrete("CopyingDqn")
    first = dqn.target_critic.flat.clone()
    updated(dqn, 2, discrete=True)
    torch.testing.assert_close(dqn.target_critic.flat, first)
    updated(dqn, discrete=True)
    torch.testing.assert_close(dqn.target_critic.flat, dqn.critic.flat)


def test_the_gradient_of_an_error_is_at_most_1() -> None:
    q, target = torch.tensor([[0.5, 3.0]], requires_grad=True), torch.zeros(2)
    loss = load("deviation.parts").huber(q, target)
    assert loss.item() == pytest.approx((0.125 + 2.5) / 2)
    (gradient,) = torch.autograd.grad(loss, q)
    torch.testing.assert_close(gradient, torch.tensor([[0.25, 0.5]]))
    ours, usual = discrete("HuberDqn"), discrete(Dqn)
    losses = [updated(algorithm, discrete=True, reward=20.0)["critic_loss"] for algorithm in (ours, usual)]
    assert losses[0] < 0.5 * losses[1]


def gradient_of(network: FlatParameters) -> Tensor:
    assert network.flat.grad is not None
    return network.flat.grad


def test_the_gradient_is_at_most_so_long() -> None:
    for reward, is_clipped in ((1.0, False), (1e4, True)):
        ours, usual = discrete("ClippedDqn"), discrete(Dqn)
        for algorithm in (ours, usual):
            updated(algorithm, discrete=True, reward=reward)
        theirs = gradient_of(usual.critic)
        assert (theirs.norm() > 10) == is_clipped
        torch.testing.assert_close(gradient_of(ours.critic), theirs * (10 / theirs.norm()).clamp(max=1))


def test_the_gradient_of_shared_layers_is_scaled() -> None:
    ours, usual = discrete("SharedLayersDqn"), discrete(Dqn)
    for algorithm in (ours, usual):
        updated(algorithm, discrete=True)
    for name, tensor in ours.critic.trainable.items():
        share = 1.0 if name.startswith("critic.2.") else 1 / 3
        torch.testing.assert_close(tensor.grad, share * usual.critic.trainable[name].grad)


# --- noise and environments ------------------------------------------------------------------------------------


def noise_of(kind: str, scale: float, blocks: int) -> Any:
    noise, rng = load("deviation.other_noise"), np.random.default_rng(0)
    of_all = np.full((2, 1), scale, np.float32)
    choosing = issubclass(noise.KINDS[kind], ChoiceExploration)
    made: Exploration = (
        ChoiceExploration(of_all, (3, 3), rng, "greedy") if choosing else Exploration(of_all, ACT_DIM, rng)
    )
    made.__class__ = noise.KINDS[kind]
    return np.stack([next(made.noise).copy() for _ in range(blocks * NOISE_STEPS)])


def test_noise_drifts() -> None:
    drawn = noise_of("ornstein-uhlenbeck", 0.1, blocks=100)
    assert drawn.shape == (100 * NOISE_STEPS, 2, ACT_DIM)
    assert drawn.std() == pytest.approx(0.2 / (1 - 0.85**2) ** 0.5, rel=0.1)
    left, right = drawn[:-1].ravel(), drawn[1:].ravel()  # over the ends of blocks too
    assert np.corrcoef(left, right)[0, 1] == pytest.approx(0.85, abs=0.03)


def test_random_choices_become_fewer() -> None:
    drawn = noise_of("falling", 0.0, blocks=20)
    is_random = drawn >= 0
    assert is_random[:8].mean() > 0.9
    assert is_random[600:].mean() == pytest.approx(0.1, abs=0.03)


def test_components_are_random_at_once() -> None:
    is_random = noise_of("joint", 0.4, blocks=20) >= 0
    assert (is_random[..., 0] == is_random[..., 1]).all()
    assert is_random.mean() == pytest.approx(0.4, abs=0.05)


def test_environments_end_and_choose_as_they_say() -> None:
    sys.path[:0] = [str(BENCHMARKS / "environments")]
    envs = importlib.import_module("deviating_envs")
    ending, digits = envs.make_ending(), envs.make_digits()
    ending.reset(seed=0)
    ends = [ending.step(np.zeros(1, np.float32))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(True, False)]
    assert [digits.action(choice)[0] for choice in ([0, 0], [1, 1], [2, 2])] == pytest.approx([-2.0, 0.0, 2.0])


# --- the script ------------------------------------------------------------------------------------------------


def test_every_variant_differs_from_one_that_is_there() -> None:
    variants = load("deviation.variants").VARIANTS
    assert len({variant.words(0) + variant.program() for variant in variants.values()}) == len(variants)
    for variant in variants.values():
        module, _, name = variant.algo.partition(":")
        assert not name or issubclass(getattr(load(module), name), Algorithm)
        if variant.base is not None:
            base = variants[variant.base]
            assert (variant.words(0), variant.noise) != (base.words(0), base.noise)


def test_the_pages_name_every_variant_and_no_other() -> None:
    pages = (BENCHMARKS.parent / "docs" / "algorithms").glob("*.md")
    lines = [line for page in pages for line in page.read_text().splitlines() if "#measured): *" in line]
    named = {name for line in lines for name in re.findall(r"\*([^*]+)\*", line.rpartition(" | ")[2])}
    variants = load("deviation.variants").VARIANTS
    assert named == {variant.name for variant in variants.values() if variant.base is not None}


def run_of(name: str, seed: int, *returns: float) -> dict[str, Any]:
    deviations = load("deviations")
    evaluations = [[i, 1000 * (i + 1), 1, value] for i, value in enumerate(returns)]
    return {**deviations.key_of(deviations.VARIANTS[name], seed), "evaluations": evaluations, "failed": None}


def test_a_difference_is_told_only_where_all_runs_are_apart() -> None:
    deviations = load("deviations")
    runs = [run_of("td3", seed, -1000, -1000, -1000, -100 - seed, -100 - seed) for seed in range(3)]
    runs += [run_of("td3, tau 0.005", seed, -1000, -1000, -1000, -900, -900) for seed in range(3)]
    runs += [run_of("td3, batch 100", seed, -1000, -1000, -1000, -100, -150 * seed - 1) for seed in range(3)]
    runs += [{**run_of("td3, batch 100", 3, -9000), "words": "of an earlier variant"}]
    shown = deviations.td3(json.loads(json.dumps({"runs": runs})))
    assert "| **td3** | - | Pendulum-v1 | 3 | -101 (-102 to -100) |" in shown
    assert "| `--tau 0.005` | Pendulum-v1 | 3 | -900 (-900 to -900) |" in shown
    assert shown.count("| td3 | final return lower, mean lower |") == 1
    assert shown.count("| td3 | they overlap |") == 1
    assert "hidden" not in shown  # has no runs
    few = [run for run in runs if run["seed"] == 0]
    assert deviations.td3({"runs": few}).count("| td3 | too few runs |") == 2


@pytest.mark.full
def test_runs_of_each_kind_of_variant_are_made_once_and_kept(tmp_path: Path) -> None:
    import subprocess

    names = ["Huber loss", "Ornstein-Uhlenbeck noise", "components random at once", "a time limit ends"]
    words = ["--seeds", "1", "--jobs", "2", "--json", str(tmp_path / "d.json"), "--only", *names, "--train-args"]
    words += ["--max-env-steps", "130", "--warmup-steps", "100", "--batch-size", "8"]
    command = [sys.executable, str(BENCHMARKS / "deviations.py"), *words]
    for _ in range(2):
        finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert finished.returncode == 0, finished.stderr
    runs = json.loads((tmp_path / "d.json").read_text())["runs"]
    assert {run["variant"] for run in runs} == {*names, "dqn", "ddpg", "dqn, two components", "sac"}
    assert len(runs) == 8
    assert all(run["failed"] is None and run["updates"] > 0 for run in runs)
