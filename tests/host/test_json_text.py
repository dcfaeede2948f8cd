"""All JSON that Spreeze writes is JSON: there is one place that writes it, and none of its texts holds a NaN."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spreeze
from spreeze.adapt.remember import UpdateTimesMemory
from spreeze.adapt.update_times import UpdateTimes
from spreeze.channels.control import MessageWriter
from spreeze.commands.bench.machine import write_benchmark
from spreeze.config import Config
from spreeze.errors import ConfigError
from spreeze.host.json_text import exact_json_text, json_file, json_text
from spreeze.runs.records import Evaluation

SOURCE = Path(spreeze.__path__[0])
NUMBERS = st.floats() | st.integers() | st.text(max_size=3) | st.none()


def strictly(text: str | bytes) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@given(
    st.recursive(
        NUMBERS,
        lambda part: st.lists(part, max_size=3) | st.tuples(part, part) | st.dictionaries(st.text(max_size=3), part),
    )
)
def test_every_value_becomes_json_that_any_reader_reads(value: Any) -> None:
    for text in (
        json_text(value),
        json_text(value, indent=2),
        json_text(value, is_compact=True),
        json_file({"": value}),
    ):
        strictly(text)


def test_what_is_not_finite_is_null_and_the_rest_stays() -> None:
    value = {"a": [1.5, math.inf, (math.nan, {"b": -math.inf})], "c": np.float64("nan"), "d": 3, "e": "NaN"}
    assert strictly(json_text(value)) == {"a": [1.5, None, [None, {"b": None}]], "c": None, "d": 3, "e": "NaN"}
    assert json_text({"a": [1]}, is_compact=True) == '{"a":[1]}'


def test_values_of_the_user_are_not_replaced_but_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        exact_json_text({"a": math.inf})
    for kwargs in ({"x": math.inf}, '{"x": Infinity}', '{"x": [NaN]}'):
        with pytest.raises(ConfigError, match=r"env.kwargs"):
            Config("x").replace(env_kwargs=kwargs)


def test_json_is_written_in_one_place() -> None:
    writers = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if _dumps(path)}
    assert writers == {"host/json_text.py"}


def _dumps(path: Path) -> bool:
    """Whether a module uses `json.dump` or `json.dumps`, under any name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.dump", "json.dumps", "json.JSONEncoder"):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "json":
            return True
        if isinstance(node, ast.Import) and any(name.name == "json" and name.asname for name in node.names):
            return True
    return False


def test_messages_between_processes_are_json(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    with path.open("wb") as file:
        MessageWriter(file.fileno()).send("figures", values=[math.nan, 1.0])
    assert strictly(path.read_text()) == {"kind": "figures", "values": [None, 1.0]}


def test_update_times_that_are_not_numbers_are_forgotten(tmp_path: Path) -> None:
    memory = UpdateTimesMemory(tmp_path / "parts.json")
    fields = dict.fromkeys(UpdateTimes._fields, 1)
    memory.keep("good", UpdateTimes(**fields))
    memory.keep("bad", UpdateTimes(**{**fields, "whole_us": math.inf}))
    strictly((tmp_path / "parts.json").read_text())
    assert memory.recall("bad") is None
    assert memory.recall("good") is not None


def test_results_of_benchmarks_are_json(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "result.json", "learner", {"figures": [{"deviation": math.nan}]})
    assert strictly((tmp_path / "result.json").read_text())["figures"] == [{"deviation": None}]
    write_benchmark(None, "learner", {})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_evaluations_arrive_as_ones_that_do_not_count(bad: float) -> None:
    sent = {"wall_s": 1.0, "env_steps": 2, "updates": 3, "version": 4, "mean_return": bad, "std_return": math.nan}
    sent |= {"returns": (1.0, bad), "lengths": (5, 6)}
    of_process = strictly(json_text(sent))
    for fields in (sent, of_process):
        evaluation = Evaluation.of_message(fields)
        assert not evaluation.counts
        assert evaluation.unusable_episodes == 1
        assert evaluation.lengths == (5, 6)
