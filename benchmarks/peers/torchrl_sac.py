# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["torchrl==0.14.1", "torch", "gymnasium[mujoco]==1.4.0", "mujoco==3.17.0"]
# [tool.peer]
# title = "TorchRL"
# actions = "continuous"
# ///
"""SAC of TorchRL, run by the protocol.

Its parts, put together as its own SAC script does: https://github.com/pytorch/rl/tree/main/sota-implementations/sac
(config.yaml: lr 3e-4, batch 256, two layers of 256, one update a frame, replay on the device, no compilation).
Two of its figures are for runs of a million frames, and smaller here, so that it learns sooner: 1,000 random frames
instead of 25,000, and 100 frames between two rounds of updates instead of 1,000.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import protocol
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from tensordict.nn import InteractionType, NormalParamExtractor, TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import DoubleToFloat, EnvBase, GymEnv, SerialEnv, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate, group_optimizers

REPLAY_ROWS = 1_000_000
RANDOM_FRAMES = 1_000
FRAMES_PER_ROUND = 100


class Agent:
    def __init__(self, env: EnvBase, device: torch.device) -> None:
        spec = env.action_spec_unbatched.to(device)
        net = partial(MLP, num_cells=list(protocol.HIDDEN), activation_class=torch.nn.ReLU, device=device)
        head = torch.nn.Sequential(
            net(out_features=2 * spec.shape[-1]), NormalParamExtractor("biased_softplus_1.0", 0.1)
        )
        self.actor = ProbabilisticActor(
            TensorDictModule(head, in_keys=["observation"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            spec=spec,
            distribution_class=TanhNormal,
            distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
            default_interaction_type=InteractionType.RANDOM,
            return_log_prob=False,
        )
        critic = ValueOperator(net(out_features=1), in_keys=["action", "observation"])
        example = env.fake_tensordict().to(device)
        self.actor(example)  # the layers learn their input sizes
        critic(example)
        self._loss = SACLoss(self.actor, critic, num_qvalue_nets=2, loss_function="l2", alpha_init=1.0)
        self._loss.make_value_estimator(gamma=0.99)
        self._targets = SoftUpdate(self._loss, eps=0.995)
        parts = (self._loss.actor_network_params, self._loss.qvalue_network_params)
        groups = [[*part.flatten_keys().values()] for part in parts] + [[self._loss.log_alpha]]
        self._optimiser = group_optimizers(*[torch.optim.Adam(group, lr=protocol.LEARNING_RATE) for group in groups])
        self._device = device

    def update(self, batch: TensorDict) -> None:
        losses = self._loss(batch)
        (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._targets.step()

    def act(self, observations: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            inputs = TensorDict({"observation": torch.from_numpy(observations)}, [len(observations)])
            return np.asarray(self.actor(inputs.to(self._device))["action"].cpu().numpy())


def main() -> None:
    arguments = protocol.parse_arguments("SAC of TorchRL.")
    trial = protocol.Trial("torchrl", ("torchrl", "tensordict"), arguments)
    torch.manual_seed(arguments.seed)
    has_gpu = arguments.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")
    env = make_envs(arguments)
    train(trial, env, Agent(env, device), device)
    trial.finish(str(device), torch_threads=torch.get_num_threads())


def make_envs(arguments: argparse.Namespace) -> EnvBase:
    one = partial(GymEnv, arguments.env)
    envs = one() if arguments.envs == 1 else SerialEnv(arguments.envs, one)
    envs.set_seed(arguments.seed)
    return TransformedEnv(envs, DoubleToFloat())


def train(trial: protocol.Trial, env: EnvBase, agent: Agent, device: torch.device) -> None:
    arguments = trial.arguments
    updates_per_frame = arguments.updates_per_vector_step / arguments.envs
    frames_per_round = -(-FRAMES_PER_ROUND // arguments.envs) * arguments.envs
    replay = TensorDictReplayBuffer(
        storage=LazyTensorStorage(REPLAY_ROWS, device=device), batch_size=arguments.batch_size, prefetch=3
    )
    collector = Collector(
        env,
        agent.actor,
        frames_per_batch=frames_per_round,
        total_frames=-1,
        init_random_frames=RANDOM_FRAMES,
        policy_device=device,
        storing_device=device,
    )
    frames = updates = 0
    for collected in collector:
        replay.extend(collected.reshape(-1))
        frames += collected.numel()
        if not trial.goes_on(frames, updates, agent.act):
            break
        if frames < RANDOM_FRAMES:
            continue
        # Asked after each update: a round of them takes seconds.
        for _ in range(round(frames_per_round * updates_per_frame)):
            agent.update(replay.sample())
            updates += 1
            if not trial.goes_on(frames, updates, agent.act):
                return


if __name__ == "__main__":
    main()
