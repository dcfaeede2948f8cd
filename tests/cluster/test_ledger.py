"""What an agent leaves to the next one on its machine: how many rows there were."""

from __future__ import annotations

from pathlib import Path

from spreeze.cluster.ledger import Ledger


def test_the_next_agent_reads_what_the_one_before_has_written(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "rows", known=0)
    assert first.before == 0
    first.write(70)
    first.write(100)
    second = Ledger(tmp_path / "rows", known=90)
    assert second.before == 100
    second.write(30)
    assert Ledger(tmp_path / "rows", known=125).before == 130


def test_a_machine_that_has_forgotten_goes_on_from_what_the_head_knows(tmp_path: Path) -> None:
    fresh = Ledger(tmp_path / "rows", known=500)
    assert fresh.before == 0
    fresh.write(20)
    assert Ledger(tmp_path / "rows", known=510).before == 520


def test_a_damaged_or_missing_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"half")
    assert Ledger(tmp_path / "rows", known=7).before == 0
    assert Ledger(None, known=7).before == Ledger(tmp_path / "gone" / "rows", known=7).before == 0


def test_it_is_removed_once_the_head_has_everything(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "rows", known=0)
    ledger.remove()
    assert list(tmp_path.iterdir()) == []
