"""A search of Optuna's, asked and told over standard input and output: needs Optuna, and nothing of Spreeze.

In: a line of JSON with the method, the seed, the choices for each knob and where to start; then a line with the
objective of what was answered last. Out: a line with its version, then for each a line with the settings to try next.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import optuna

# Of the dozen or two tries that there is time for, random ones before the model of a method decides. By default it
# would be all of them.
STARTUP_TRIES = 5


def make_sampler(method: str, seed: int) -> optuna.samplers.BaseSampler:
    """Return the search method: a tree of Parzen estimators, an evolution strategy, or chance."""
    if method == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIES)
    if method == "cmaes":
        return optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=1)
    return optuna.samplers.RandomSampler(seed=seed)


def serve() -> None:
    """Answer until there is nothing more to answer."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(json.dumps({"optuna": optuna.__version__}), flush=True)
    request: dict[str, Any] = json.loads(sys.stdin.readline())
    choices: dict[str, list[int]] = request["choices"]
    study = optuna.create_study(direction="maximize", sampler=make_sampler(request["method"], request["seed"]))
    # Places in the list of choices, not values: neighbours there are alike, which values from 64 to 8192 are not.
    study.enqueue_trial({name: values.index(request["start"][name]) for name, values in choices.items()})
    while True:
        trial = study.ask()
        places = {name: trial.suggest_int(name, 0, len(values) - 1) for name, values in choices.items()}
        print(json.dumps({name: choices[name][place] for name, place in places.items()}), flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        study.tell(trial, json.loads(line)["objective"])


if __name__ == "__main__":
    serve()
