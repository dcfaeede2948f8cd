"""The Triton kernels against PyTorch's own operations in float32, and against float64: each alone, then an update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from making import make, reported, update
from torch import Tensor

from spreeze.algorithms.batch import Batch
from spreeze.algorithms.critics import critic_loss
from spreeze.algorithms.kernels.operations import LOG_STD_MAX, LOG_STD_MIN, PLAIN, Adam, Operations
from spreeze.algorithms.networks import FlatParameters, Tensors
from spreeze.algorithms.sac import Sac, actor_loss, soft_target, temperature_loss
from spreeze.channels.transitions import RowLayout

TWINS = 2

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
# Factors in bfloat16 have 8 bits: each is wrong by 2^-9 at most, and the sum of many by about as much of its size.
PRODUCTS = 1e-2
# Single precision, with the GPU's fast exponential and logarithm.
TAILS = 1e-5

ROWS = (1, 7, 256, 1000, 8192)
SIZES = ((3, 1), (17, 6), (348, 17))
HIDDEN = ((64,), (256, 256), (300, 400, 200))
# Every number of rows with a small, the usual and an odd network; every network with a usual number of rows.
# All of all would compile a thousand kernels.
NETWORKS = [(rows, *sizes, hidden) for rows in ROWS for sizes, hidden in zip(SIZES, HIDDEN, strict=True)] + [
    (256, *SIZES[i], HIDDEN[j]) for i in range(3) for j in range(3) if i != j
]


@pytest.fixture(scope="module")
def fused() -> Operations:
    pytest.importorskip("triton")
    from spreeze.algorithms.kernels.fused import FUSED

    return FUSED


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def rms(tensor: Tensor) -> float:
    return tensor.double().square().mean().sqrt().item()


# --- layers -----------------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """What a layer gives, forward and backward."""

    y: Tensor
    dx: Tensor
    dw: Tensor
    db: Tensor


def layer_shapes(obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> Iterator[tuple[int, int, int, bool, bool]]:
    """Twins, inputs and outputs of each layer of both networks, whether it is the first, and whether the last."""
    for twins, ins, outs in ((1, obs_dim, 2 * act_dim), (TWINS, obs_dim + act_dim, 1)):
        widths = (ins, *hidden, outs)
        for i in range(len(widths) - 1):
            yield twins, widths[i], widths[i + 1], i == 0, i == len(widths) - 2


def parameters(twins: int, ins: int, outs: int) -> FlatParameters:
    """A layer of its own, with weights of the usual size."""
    shapes = {"w": (ins, outs), "b": (outs,)} if twins == 1 else {"w": (twins, ins, outs), "b": (twins, 1, outs)}
    layer = FlatParameters(shapes, DEVICE)
    layer.flat.copy_(normal(len(layer.flat), seed=ins * outs) / math.sqrt(ins))
    return layer


def exact_pass(x: Tensor, layer: FlatParameters, dz: Tensor, dtype: torch.dtype, square: bool = False) -> Pass:
    """PyTorch's product and its gradients, without the ReLU; of squares, to see how large sums of products are."""
    x, dz, w, b = (tensor.detach().to(dtype) for tensor in (x, dz, layer.frozen["w"], layer.frozen["b"]))
    if square:
        x, dz, w, b = x.square(), dz.square(), w.square(), b.square()
    leaves = [tensor.requires_grad_(True) for tensor in (x, w, b)]
    y = PLAIN.dense(x, w, b, False)
    y.backward(dz)
    dx, dw, db = (leaf.grad for leaf in leaves)
    assert dx is not None
    assert dw is not None
    assert db is not None
    return Pass(y.detach(), dx, dw, db)


def fused_pass(fused: Operations, x: Tensor, layer: FlatParameters, relu: bool, seed: int) -> tuple[Pass, Tensor]:
    """The same by the kernels, and the gradient behind the ReLU that it was given."""
    x = x.detach().requires_grad_(True)
    y = fused.dense(x, layer.trainable["w"], layer.trainable["b"], relu)
    dy = normal(*y.shape, seed=seed).to(y.dtype)
    y.backward(dy)
    dw, db = layer.trainable["w"].grad, layer.trainable["b"].grad
    assert x.grad is not None
    assert dw is not None
    assert db is not None
    # Where an output is nearly 0, rounding decides whether the ReLU lets its gradient through: its own output counts.
    dz = torch.where(y > 0, dy, 0) if relu else dy
    return Pass(y.detach(), x.grad, dw, db), dz


def check_layer(mine: Pass, x: Tensor, layer: FlatParameters, dz: Tensor, relu: bool) -> None:
    sizes = exact_pass(x, layer, dz, torch.float64, square=True)
    for dtype in (torch.float32, torch.float64):
        exact = exact_pass(x, layer, dz, dtype)
        exact = exact._replace(y=exact.y.relu() if relu else exact.y)
        for name, value, right, square in zip(Pass._fields, mine, exact, sizes, strict=True):
            assert value.shape == right.shape, name
            # The size that a sum of products with random signs has: a single one may be 0 by chance.
            assert rms(value.double() - right.double()) <= PRODUCTS * rms(square.sqrt()), (name, dtype)


@pytest.mark.parametrize(("rows", "obs_dim", "act_dim", "hidden"), NETWORKS)
def test_layers_and_their_gradients(
    fused: Operations, rows: int, obs_dim: int, act_dim: int, hidden: tuple[int, ...]
) -> None:
    for number, (twins, ins, outs, is_first, is_last) in enumerate(layer_shapes(obs_dim, act_dim, hidden)):
        # The first layer of the twins takes the same rows for both; what lies between layers is bfloat16.
        x = normal(rows, ins, seed=number) if is_first else normal(*[twins][: twins - 1], rows, ins, seed=number)
        x = x if is_first else x.relu().bfloat16()
        layer, relu = parameters(twins, ins, outs), not is_last

        mine, dz = fused_pass(fused, x, layer, relu, seed=number + 100)

        assert mine.y.dtype == (torch.bfloat16 if relu else torch.float32)
        assert mine.dx.dtype == x.dtype
        check_layer(mine, x, layer, dz, relu)


def test_observations_keep_more_digits_than_a_factor_has(fused: Operations) -> None:
    # 1000 + noise in bfloat16 is 1000: a joint's angle after many turns would be lost.
    layer = FlatParameters({"w": (8, 16), "b": (16,)}, DEVICE)
    layer.frozen["w"].copy_(torch.eye(8, 16))
    x = 1000 + normal(256, 8, seed=0)
    y = fused.dense(x, layer.frozen["w"], layer.frozen["b"], False)
    assert (y[:, :8] - x).abs().max() <= 1000 * 2**-16
    assert (y[:, 8:] == 0).all()


@pytest.mark.parametrize("twins", [1, TWINS])
@pytest.mark.parametrize("rows", [7, 256, 8192])
def test_gradients_of_parameters_add_up(fused: Operations, rows: int, twins: int) -> None:
    layer = parameters(twins, 17, 64)
    x, gradient = normal(rows, 17, seed=0), layer.flat.grad
    assert gradient is not None
    fused_pass(fused, x, layer, relu=True, seed=1)
    once = gradient.clone()
    assert once.abs().sum() > 0
    fused_pass(fused, x, layer, relu=True, seed=1)
    # Not to the bit: pieces of the batch are summed in whatever order they come.
    assert rms(gradient - 2 * once) <= 1e-5 * rms(once)
    layer.zero_grad()
    fused_pass(fused, x, layer, relu=True, seed=1)
    assert rms(gradient - once) <= 1e-5 * rms(once)


@pytest.mark.parametrize("twins", [1, TWINS])
def test_nothing_is_written_for_frozen_parameters(fused: Operations, twins: int) -> None:
    layer = parameters(twins, 23, 64)
    before = layer.flat.clone()
    gradient = layer.flat.grad
    assert gradient is not None
    gradient.fill_(7.0)
    x = normal(256, 23, seed=0).requires_grad_(True)
    y = fused.dense(x, layer.frozen["w"], layer.frozen["b"], True)
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert (gradient == 7.0).all()
    assert torch.equal(layer.flat, before)


def test_nothing_beside_a_layer_is_written(fused: Operations) -> None:
    # Tiles are larger than these sizes: what hangs over the edge must not reach a neighbour in the flat buffer.
    shapes = {"before": (64,), "w": (TWINS, 17, 33), "b": (TWINS, 1, 33), "after": (64,)}
    network = FlatParameters(shapes, DEVICE)
    network.frozen["w"].copy_(normal(TWINS, 17, 33, seed=0))
    fused_pass(fused, normal(1000, 17, seed=1), network, relu=True, seed=2)
    for name in ("before", "after"):
        gradient = network.trainable[name].grad
        assert gradient is not None
        assert (gradient == 0).all()
        assert (network.frozen[name] == 0).all()


@pytest.mark.parametrize("rows", [7, 256, 8192])
def test_columns_of_wider_rows_are_the_same_as_a_copy_of_them(fused: Operations, rows: int) -> None:
    wide, layer = normal(rows, 43, seed=0), parameters(TWINS, 23, 64)
    passes = []
    for x in (wide[:, 5:28], wide[:, 5:28].contiguous()):
        layer.zero_grad()
        y = fused.dense(x, layer.trainable["w"], layer.trainable["b"], True)
        y.backward(torch.ones_like(y))
        gradient = layer.flat.grad
        assert gradient is not None
        passes.append((y.detach(), gradient.clone()))
    assert torch.equal(passes[0][0], passes[1][0])
    assert rms(passes[0][1] - passes[1][1]) <= 1e-5 * rms(passes[1][1])


def test_gradients_that_are_no_whole_blocks_of_memory(fused: Operations) -> None:
    # The gradient of a sum is one number for all, with strides of 0.
    layer = parameters(TWINS, 17, 1)
    x = normal(256, 17, seed=0).requires_grad_(True)
    fused.dense(x, layer.trainable["w"], layer.trainable["b"], False).sum().backward()
    bias = layer.trainable["b"].grad
    assert x.grad is not None
    assert bias is not None
    assert bias.flatten().tolist() == [256.0, 256.0]
    expected = layer.frozen["w"].sum(0).squeeze(-1).expand(256, 17)
    assert rms(x.grad - expected) <= PRODUCTS * rms(expected)


# --- what comes after the last layer ----------------------------------------------------------------------------


def check_tail(mine: Tensor, exact: Tensor) -> None:
    assert mine.shape == exact.shape
    error = (mine.double() - exact.double()).abs().max().item()
    assert error <= TAILS * max(1.0, exact.abs().max().item())


def grown(*tensors: Tensor, dtype: torch.dtype) -> list[Tensor]:
    return [tensor.detach().to(dtype).requires_grad_(True) for tensor in tensors]


def gradient_of(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


DTYPES = (torch.float32, torch.float64)


@pytest.mark.parametrize("act_dim", [1, 6, 17])
@pytest.mark.parametrize("rows", ROWS)
def test_squashed_gaussian(fused: Operations, rows: int, act_dim: int) -> None:
    output, noise = normal(rows, 2 * act_dim, seed=0), normal(rows, act_dim, seed=1)
    output[:, act_dim:] = 2 * output[:, act_dim:] - 1.5  # some beyond each bound
    if rows >= 256:
        assert (output[:, act_dim:] < LOG_STD_MIN).any()
        assert (output[:, act_dim:] > LOG_STD_MAX).any()
    d_action, d_log_pi = normal(rows, act_dim, seed=2), normal(rows, seed=3)

    def both_ways(operations: Operations, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        (leaf,) = grown(output, dtype=dtype)
        action, log_pi = operations.squashed_gaussian(leaf, noise.to(dtype))
        torch.autograd.backward([action, log_pi], [d_action.to(dtype), d_log_pi.to(dtype)])
        return action.detach(), log_pi.detach(), gradient_of(leaf)

    mine = both_ways(fused, torch.float32)
    for dtype in DTYPES:
        for value, exact in zip(mine, both_ways(PLAIN, dtype), strict=True):
            check_tail(value, exact)


def test_squashed_gaussian_at_the_ends(fused: Operations) -> None:
    # Means up to where tanh is 1 in single precision, on both sides, and exactly 0; deviations at both bounds.
    means = torch.tensor([0.0, 1e-4, -1e-4, 5.0, -5.0, 20.0, -20.0, 100.0, -100.0])
    output = torch.stack([means.repeat(2), torch.tensor([LOG_STD_MIN, LOG_STD_MAX]).repeat_interleave(9)], 1)
    (mine,) = grown(output.to(DEVICE), dtype=torch.float32)
    (exact,) = grown(output.to(DEVICE), dtype=torch.float64)
    noise = torch.zeros(18, 1, device=DEVICE)
    for leaf, operations in ((mine, fused), (exact, PLAIN)):
        action, log_pi = operations.squashed_gaussian(leaf, noise.to(leaf.dtype))
        torch.autograd.backward([action, log_pi], [torch.ones_like(action), torch.ones_like(log_pi)])
    check_tail(gradient_of(mine), gradient_of(exact))
    for value, right in zip(
        fused.squashed_gaussian(mine.detach(), noise),
        PLAIN.squashed_gaussian(exact.detach(), noise.double()),
        strict=True,
    ):
        assert value.isfinite().all()
        check_tail(value, right)


def test_only_the_action_or_only_its_probability_may_be_used(fused: Operations) -> None:
    output, noise = normal(256, 12, seed=0), normal(256, 6, seed=1)
    for which in (0, 1):
        (mine,), (exact,) = grown(output, dtype=torch.float32), grown(output, dtype=torch.float64)
        fused.squashed_gaussian(mine, noise)[which].sum().backward()
        PLAIN.squashed_gaussian(exact, noise.double())[which].sum().backward()
        check_tail(gradient_of(mine), gradient_of(exact))


@pytest.mark.parametrize("rows", ROWS)
def test_soft_bootstrap(fused: Operations, rows: int) -> None:
    wide = normal(rows, 9, seed=0)
    reward, discount, terminated = wide[:, 2], wide[:, 4], wide[:, 7]  # as they lie in rows of the replay
    discount.copy_(discount.sigmoid())
    terminated.copy_(terminated > 0)
    q, log_pi, log_alpha = normal(TWINS, rows, seed=1), normal(rows, seed=2), torch.tensor([-1.3], device=DEVICE)
    apart = [column.contiguous() for column in (reward, discount, terminated)]
    for columns in ([reward, discount, terminated], apart):
        mine = fused.soft_bootstrap(q, log_pi, log_alpha, *columns)
        for dtype in DTYPES:
            inputs = [tensor.to(dtype) for tensor in (q, log_pi, log_alpha, *columns)]
            check_tail(mine, PLAIN.soft_bootstrap(*inputs))
        assert torch.equal(mine[terminated == 1], reward[terminated == 1])


@pytest.mark.parametrize("critics", [1, 3])
def test_tails_of_another_number_of_critics(fused: Operations, critics: int) -> None:
    """The smallest of all values counts, also where an algorithm declares more critics than two, or one."""
    rows, log_alpha = 256, torch.tensor([-1.3], device=DEVICE)
    (q,) = grown(normal(critics, rows, seed=1).sort(0, descending=True).values, dtype=torch.float32)
    log_pi, reward, zeros = normal(rows, seed=2), normal(rows, seed=3), torch.zeros(rows, device=DEVICE)
    target = fused.soft_bootstrap(q.detach(), log_pi, log_alpha, reward, zeros + 1, zeros)
    check_tail(target, reward + q.detach()[-1] - log_alpha.exp() * log_pi)
    loss = fused.soft_objective(q, log_pi, log_alpha)
    check_tail(loss.detach(), (log_alpha.exp() * log_pi - q.detach()[-1]).mean())
    loss.backward()
    check_tail(gradient_of(q)[-1], torch.full((rows,), -1 / rows, device=DEVICE))
    assert not gradient_of(q)[:-1].any()


def test_a_target_may_be_a_column_of_wider_rows(fused: Operations) -> None:
    q, column = normal(TWINS, 256, seed=0), normal(256, 9, seed=1)[:, 4]
    check_tail(fused.squared_error(q, column), PLAIN.squared_error(q, column))


@pytest.mark.parametrize("rows", ROWS)
def test_squared_error(fused: Operations, rows: int) -> None:
    q, target = normal(TWINS, rows, seed=0), 3 * normal(rows, seed=1)

    def both_ways(operations: Operations, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        (leaf,) = grown(q, dtype=dtype)
        loss = operations.squared_error(leaf, target.to(dtype))
        (loss * rows).backward()
        return loss.detach(), gradient_of(leaf)

    mine = both_ways(fused, torch.float32)
    for dtype in DTYPES:
        for value, exact in zip(mine, both_ways(PLAIN, dtype), strict=True):
            check_tail(value, exact)


@pytest.mark.parametrize("rows", ROWS)
def test_soft_objective(fused: Operations, rows: int) -> None:
    q, log_pi, log_alpha = normal(TWINS, rows, seed=0), normal(rows, seed=1), torch.tensor([-0.7], device=DEVICE)
    q[1, ::3] = q[0, ::3]  # each of these gets half of the gradient

    def both_ways(operations: Operations, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        values, logs = grown(q, log_pi, dtype=dtype)
        loss = operations.soft_objective(values, logs, log_alpha.to(dtype))
        (loss * rows).backward()
        return loss.detach(), gradient_of(values), gradient_of(logs)

    mine = both_ways(fused, torch.float32)
    check_tail(mine[1][:, ::3], torch.full_like(q[:, ::3], -0.5))
    for dtype in DTYPES:
        for value, exact in zip(mine, both_ways(PLAIN, dtype), strict=True):
            check_tail(value, exact)


@pytest.mark.parametrize("count", [1, 1000, 1024, 70_001])
def test_adam(fused: Operations, count: int) -> None:
    buffers = [normal(count + 100, seed=0) for _ in range(2)]  # others have their parameters behind it
    flats = [buffer[:count] for buffer in buffers]
    optimisers = []
    for flat in flats:
        flat.grad = torch.zeros_like(flat)
        optimisers.append(Adam(flat, 1e-3))
    start = flats[0].clone()
    exact, mean, square = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    sizes = torch.logspace(-6, 3, count, device=DEVICE)
    for step in range(1, 51):
        gradient = normal(count, seed=step) * sizes
        for optimiser, operations in zip(optimisers, (fused, PLAIN), strict=True):
            optimiser.gradient.copy_(gradient)
            operations.adam(optimiser)
        mean = 0.9 * mean + 0.1 * gradient.double()
        square = 0.999 * square + 0.001 * gradient.double().square()
        exact -= 1e-3 * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
    assert optimisers[0].steps.item() == 50
    assert (exact - start).abs().max() > 1e-3
    check_tail(flats[0], exact)
    check_tail(flats[0], flats[1])
    # Far below the size of a parameter, but what a run consists of.
    assert rms(flats[0] - exact) <= 1e-3 * rms(exact - start)
    assert torch.equal(buffers[0][count:], buffers[1][count:])


# --- losses, and the whole update -------------------------------------------------------------------------------


def make_sac(operations: Operations, obs_dim: int, act_dim: int, hidden: tuple[int, ...]) -> Sac:
    sac: Sac = make(Sac, obs_dim, act_dim, hidden, tau=0.02, device=DEVICE, seed=1, operations=operations)
    return sac


def make_batch(rows: int, obs_dim: int, act_dim: int, seed: int) -> Batch:
    """Columns of rows, as the replay gives them."""
    layout = RowLayout(obs_dim, act_dim)
    wide = normal(rows, layout.width, seed=seed)
    wide[:, layout.action].tanh_()
    wide[:, layout.terminated] = (wide[:, layout.terminated] > 1.5).float()
    wide[:, layout.discount] = 0.99
    return Batch(
        wide[:, layout.observation],
        wide[:, layout.action],
        wide[:, layout.reward],
        wide[:, layout.next_observation],
        wide[:, layout.terminated],
        wide[:, layout.discount],
    )


def in_double(network: Tensors, trainable: bool = False) -> dict[str, Tensor]:
    return {name: tensor.detach().double().requires_grad_(trainable) for name, tensor in network.items()}


def flat_gradient(network: Tensors) -> Tensor:
    return torch.cat([gradient_of(tensor).flatten() for tensor in network.values()])


@pytest.mark.parametrize(
    ("rows", "obs_dim", "act_dim", "hidden"),
    [(7, 3, 1, (64,)), (256, 17, 6, (256, 256)), (1000, 348, 17, (300, 400, 200)), (8192, 17, 6, (256, 256))],
)
def test_losses_and_their_gradients_are_those_of_float64(
    fused: Operations, rows: int, obs_dim: int, act_dim: int, hidden: tuple[int, ...]
) -> None:
    sac, batch = make_sac(fused, obs_dim, act_dim, hidden), make_batch(rows, obs_dim, act_dim, seed=5)
    noise = normal(2, rows, act_dim, seed=6)
    log_alpha = sac.temperature.frozen["log_temperature"]
    with torch.no_grad():
        target = soft_target(sac.target_critic.frozen, sac.actor.frozen, log_alpha, batch, noise[0], fused)
    loss_q, q = critic_loss(sac.critic.trainable, batch, target, fused)
    loss_q.backward()
    critic_gradient = flat_gradient(sac.critic.trainable)
    sac.critic.zero_grad()
    loss_pi, entropy = actor_loss(
        sac.actor.trainable, sac.critic.frozen, log_alpha, batch.observation, noise[1], fused
    )
    loss_pi.backward()
    assert (flat_gradient(sac.critic.trainable) == 0).all()  # the actor's loss leaves nothing for the critics

    exact_batch = Batch(*(part.double() for part in batch))
    actor, critic = in_double(sac.actor.frozen, True), in_double(sac.critic.frozen, True)
    with torch.no_grad():
        exact_target = soft_target(
            in_double(sac.target_critic.frozen), actor, log_alpha.double(), exact_batch, noise[0].double()
        )
    exact_loss_q, exact_q = critic_loss(critic, exact_batch, exact_target)
    exact_loss_q.backward()
    exact_loss_pi, exact_entropy = actor_loss(
        actor, in_double(sac.critic.frozen), log_alpha.double(), exact_batch.observation, noise[1].double()
    )
    exact_loss_pi.backward()

    for mine, exact in ((target, exact_target), (q, exact_q), (entropy, exact_entropy)):
        assert rms(mine - exact) <= 0.02 * max(1.0, rms(exact))
    assert loss_q.item() == pytest.approx(exact_loss_q.item(), rel=0.02)
    assert loss_pi.item() == pytest.approx(exact_loss_pi.item(), rel=0.02, abs=0.02)
    # Outputs near 0 that rounding carries over the edge of a ReLU make most of the difference.
    for gradient, network in ((critic_gradient, critic), (flat_gradient(sac.actor.trainable), actor)):
        right = flat_gradient(network)
        assert rms(gradient - right) <= 0.1 * rms(right)


UPDATES = 20


@pytest.mark.parametrize(
    ("rows", "obs_dim", "act_dim", "hidden"),
    [(256, 17, 6, (256, 256)), (1000, 3, 1, (64,)), (8192, 17, 6, (256, 256))],
)
def test_updates_go_where_those_in_float32_go(
    fused: Operations, rows: int, obs_dim: int, act_dim: int, hidden: tuple[int, ...]
) -> None:
    batches = [make_batch(rows, obs_dim, act_dim, seed) for seed in range(UPDATES)]
    algorithms, losses = [], []
    for operations in (fused, PLAIN):
        algorithm = make_sac(operations, obs_dim, act_dim, hidden)
        start = [tensor.clone() for tensor in algorithm.parameters()]
        torch.manual_seed(11)  # the noise of both
        for batch in batches:
            terms = algorithm.update(batch)
        algorithms.append(algorithm)
        losses.append(reported(algorithm, terms))
    for name, mine in losses[0].items():
        assert mine.item() == pytest.approx(losses[1][name].item(), rel=0.05, abs=0.02), name
    both = (algorithm.parameters() for algorithm in algorithms)
    for origin, mine, theirs in zip(start, *both, strict=True):
        moved = (theirs - origin).norm()
        assert moved > 0
        assert (mine - theirs).norm() / moved < 0.3


def test_first_update_reports_the_losses_of_float64(fused: Operations) -> None:
    rows, obs_dim, act_dim, hidden = 256, 17, 6, (256, 256)
    sac, batch = make_sac(fused, obs_dim, act_dim, hidden), make_batch(rows, obs_dim, act_dim, seed=5)
    before = make_sac(PLAIN, obs_dim, act_dim, hidden)
    torch.manual_seed(11)
    losses = update(sac, batch)

    torch.manual_seed(11)
    noise = torch.randn(2, rows, act_dim, device=DEVICE).double()
    exact = Batch(*(part.double() for part in batch))
    actor, log_alpha = in_double(before.actor.frozen), before.temperature.flat.double()
    target = soft_target(in_double(before.target_critic.frozen), actor, log_alpha, exact, noise[0])
    loss_q, q = critic_loss(in_double(before.critic.frozen), exact, target)
    # The actor's loss sees the critics after their step.
    loss_pi, entropy = actor_loss(actor, in_double(sac.critic.frozen), log_alpha, exact.observation, noise[1])
    loss_alpha = temperature_loss(log_alpha, entropy, sac.target_entropy)
    for mine, right in (
        (losses["critic_loss"], loss_q),
        (losses["actor_loss"], loss_pi),
        (losses["temperature_loss"], loss_alpha),
        (losses["temperature"], sac.temperature.flat.double().exp()),
        (losses["entropy"], entropy),
        (losses["q_mean"], q.mean()),
    ):
        assert mine.item() == pytest.approx(right.item(), rel=0.02, abs=0.01)
