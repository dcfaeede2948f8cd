from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spreeze.runs import journal_reader
from spreeze.runs.journal_reader import JournalLines, JournalReader, RunReader, newest_line
from spreeze.runs.journal_writer import thin


def write(path: Path, *lines: Any) -> None:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def lines_of(reader: JournalReader) -> list[dict[str, Any]]:
    return [line for line, _ in reader.sized_lines()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "config.json", {"env": "Pendulum-v1"})
    return tmp_path


def test_only_whole_lines_are_returned_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = JournalReader(path)
    assert lines_of(reader) == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert lines_of(reader) == [{"a": 1}]
    with path.open("a") as file:
        file.write('}\n{"a": 3}\n')
    assert lines_of(reader) == [{"a": 2}, {"a": 3}]
    assert lines_of(reader) == []


@pytest.mark.parametrize("end", ["", '{"a": 3', "nonsense\n\n", "[3]\n"])
def test_the_newest_whole_line_is_found_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    assert newest_line(path) is None
    write(path, {"a": 1}, {"a": 2})
    with path.open("a") as file:
        file.write(end)
    assert newest_line(path) == {"a": 2}
    monkeypatch.setattr(journal_reader, "TAIL_BYTES", len(end) + 5)
    assert newest_line(path) is None  # of what is before that, nothing is read


@pytest.mark.parametrize("damage", ["nonsense", "[1]", "3", '{"a": ', "\x00" * 9, "[" * 100_000, '{"a": ' * 100_000])
def test_damaged_lines_are_skipped_and_counted(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, {"a": 1}, damage, {"a": 2})
    reader = JournalReader(path)
    assert lines_of(reader) == [{"a": 1}, {"a": 2}]
    assert reader.damaged_lines == 1


def test_bytes_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'\xff\xfe\n{"a": 1}\n')
    assert lines_of(JournalReader(tmp_path / "metrics.jsonl")) == [{"a": 1}]


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(journal_reader, "CHUNK_BYTES", 700)
    path = tmp_path / "metrics.jsonl"
    path.write_text("x" * 10_000 + '\n{"a": 1}\n')
    reader = JournalReader(path)
    found = [line for _ in range(20) for line in lines_of(reader)]
    assert found == [{"a": 1}]
    assert reader.damaged_lines == 1


def test_a_journal_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, {"a": 1}, {"a": 2})
    reader = JournalReader(path)
    lines_of(reader)
    write(path, {"a": 3})
    assert lines_of(reader) == [{"a": 3}]


def test_a_run_whose_journal_was_thinned_out_is_read_as_it_is_now(run: Path) -> None:
    path = run / "metrics.jsonl"
    write(path, *({"wall_s": i} for i in range(100)))
    reader = RunReader(run)
    reader.refresh()
    thin(path)
    with path.open("a") as file:
        file.write('{"wall_s": 100}\n')
    reader.refresh()
    reader.refresh()
    times = [line["wall_s"] for line in reader.metrics.all()]
    assert times == sorted(set(times))
    assert (times[0], times[-1], len(reader.metrics)) == (0, 100, len(times))


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(run: Path) -> None:
    (run / "config.json").unlink()
    for name in ("config.json", "summary.json", "metrics.jsonl"):
        os.mkfifo(run / name)
    reader = RunReader(run)
    reader.refresh()
    assert (reader.config, reader.summary, len(reader.metrics)) == ({}, {}, 0)


def test_whole_numbers_beyond_all_measure_count_as_missing(run: Path) -> None:
    write(run / "metrics.jsonl", '{"wall_s": 1, "updates": 1' + "0" * 400 + "}")
    reader = RunReader(run)
    reader.refresh()
    assert reader.metrics.series("wall_s", "updates") == []
    assert len(reader.metrics) == 1


def test_many_lines_are_thinned_out_but_the_newest_stays() -> None:
    lines = JournalLines(max_lines=100)
    for i in range(10_007):
        lines.add({"x": i, "y": 2 * i})
    series = lines.series("x", "y")
    assert len(lines) == 10_007
    assert 50 <= len(series) <= 102
    assert series[0] == (0.0, 0.0)
    assert series[-1] == (10_006.0, 20_012.0)
    gaps = [b[0] - a[0] for a, b in pairwise(series[:-1])]
    assert len(set(gaps)) == 1


def test_the_last_lines_are_kept_one_and_all() -> None:
    lines = JournalLines(max_lines=10)
    for i in range(1000):
        lines.add({"x": i})
    newest = [line["x"] for line in lines.recent]
    assert newest == list(range(1000 - journal_reader.RECENT_LINES, 1000))


def test_long_lines_are_thinned_out_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "MAX_KEPT_BYTES", 10_000)
    monkeypatch.setattr(journal_reader, "MAX_RECENT_BYTES", 500)
    lines = JournalLines(max_lines=100)
    for i in range(1000):
        lines.add({"x": i}, 1000)
        assert len(lines.all()) <= 10
    assert (len(lines), len(lines.recent)) == (1000, 0)
    assert lines.newest == {"x": 999}


def test_a_run_keeps_as_many_lines_as_it_is_told(run: Path) -> None:
    write(run / "metrics.jsonl", *({"wall_s": i} for i in range(1000)))
    reader = RunReader(run, max_lines=100)
    reader.refresh()
    assert len(reader.metrics) == 1000
    assert len(reader.metrics.all()) <= 100


def test_a_series_has_finite_numbers_only() -> None:
    lines = JournalLines()
    for y in (1, None, "2", float("nan"), True, 3.5):
        lines.add({"x": 0, "y": y})
    lines.add({"x": 1})
    assert lines.series("x", "y") == [(0.0, 1.0), (0.0, 3.5)]
    assert JournalLines().series("x", "y") == []


def test_states(run: Path) -> None:
    def state_of(path: Path, later_s: float = 0.0) -> str:
        reader = RunReader(path, now=lambda: (run / "config.json").stat().st_mtime + later_s)
        reader.refresh()
        return reader.state

    assert state_of(run / "nowhere") == "gone"
    assert state_of(run) == "starting"
    assert state_of(run, later_s=1000) == "silent"
    write(run / "metrics.jsonl", {"wall_s": 1})
    assert state_of(run) == "running"
    write(run / "summary.json", {"stop_reason": "max_seconds"})
    assert state_of(run, later_s=1000) == "finished"
    write(run / "summary.json", {"stop_reason": "failed"})
    write(run / "events.jsonl", {"kind": "error", "reason": "sampler 0 failed"})
    assert state_of(run) == "failed"
    reader = RunReader(run)
    reader.refresh()
    assert reader.failure == "sampler 0 failed"
    assert reader.config == {"env": "Pendulum-v1"}


def test_damaged_files_count_as_missing(run: Path) -> None:
    (run / "config.json").write_text('{"env"')
    (run / "summary.json").write_text("[]")
    reader = RunReader(run)
    reader.refresh()
    assert reader.config == {}
    assert reader.summary == {}
    assert reader.state == "starting"
