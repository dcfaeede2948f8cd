"""An environment that takes over the process that makes it: commands end, and write where the user is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Spreeze

ENV = "Toy/TakesOver-v0"


def test_commands_that_make_it_in_their_own_process(spreeze: Spreeze) -> None:
    trained = spreeze.train(ENV, serial=True, samplers=None, learner_threads=None, max_updates=20, quiet=None)
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.splitlines()[-2:] == ["  run folder run", "Next: spreeze evaluate run"]
    for name in ("config.json", "summary.json", "best/policy.safetensors", "checkpoint", "weights"):
        assert (spreeze.run_dir / name).exists(), name

    evaluated = spreeze("evaluate", "run", "--which", "last", "--episodes", 21, "--json", "figures.json")
    assert (evaluated.returncode, evaluated.stderr) == (0, "")
    assert (spreeze.folder / "figures.json").exists()

    examined = spreeze("doctor", ENV, "--env-module", "toy_envs")
    assert (examined.returncode, examined.stderr) == (0, "")
    assert not spreeze.processes()
