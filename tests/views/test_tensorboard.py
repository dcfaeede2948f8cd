"""What is written is read back by TensorBoard itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.views.tensorboard import EventFile, _checksum, _varint

if TYPE_CHECKING:
    from conftest import FullDisk


def read_back(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def test_scalars_have_their_name_step_time_and_value(tmp_path: Path) -> None:
    file = EventFile.in_folder(tmp_path / "tensorboard")
    file.write({"time/fps": 1234.5, "train/actor_loss": -0.25}, 1000, 1_700_000_000.125)
    file.write({"time/fps": 2.0**-20, "großer Name, 100 %": 3.0}, 2**40, 1_700_000_001.5)
    events = read_back(tmp_path / "tensorboard")  # before it is closed: nothing waits in a buffer
    file.close()
    assert set(events.Tags()["scalars"]) == {"time/fps", "train/actor_loss", "großer Name, 100 %"}
    assert [(one.wall_time, one.step, one.value) for one in events.Scalars("time/fps")] == [
        (1_700_000_000.125, 1000, 1234.5),
        (1_700_000_001.5, 2**40, 2.0**-20),
    ]
    assert events.Scalars("train/actor_loss")[0].value == -0.25


@pytest.mark.parametrize(
    ("value", "read"), [(1e300, math.inf), (-1e300, -math.inf), (math.inf, math.inf), (0.0, 0.0), (7, 7.0)]
)
def test_numbers_beyond_single_precision_do_not_raise(tmp_path: Path, value: float, read: float) -> None:
    file = EventFile.in_folder(tmp_path)
    file.write({"a": value}, 0, 1.0)
    file.close()
    assert read_back(tmp_path).Scalars("a")[0].value == read


def test_many_records_are_read_in_order(tmp_path: Path) -> None:
    file = EventFile.in_folder(tmp_path)
    for step in range(1000):
        file.write({f"name/{number}": float(step + number) for number in range(step % 40)}, step, float(step))
    file.close()
    scalars = read_back(tmp_path).Scalars("name/5")
    assert [one.step for one in scalars] == [step for step in range(1000) if step % 40 > 5]
    assert all(one.value == one.step + 5 for one in scalars)


def test_end_that_was_cut_off_loses_only_the_last_record(tmp_path: Path) -> None:
    file = EventFile.in_folder(tmp_path)
    for step in range(3):
        file.write({"a": float(step)}, step, 1.0)
    file.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert [one.step for one in read_back(tmp_path).Scalars("a")] == [0, 1]


def test_full_disk_is_an_error(tmp_path: Path, full_disk: FullDisk) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large"):
        EventFile(tmp_path / "events")


@pytest.mark.parametrize(
    ("data", "crc"), [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"", 0)]
)
def test_checksum_is_crc32c_masked(data: bytes, crc: int) -> None:
    # Test vectors of RFC 3720, B.4, and the check value of the catalogue of CRCs.
    assert int.from_bytes(_checksum(data), "little") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**63 - 1, b"\xff" * 8 + b"\x7f")],
)
def test_varints_have_seven_bits_a_byte(number: int, encoded: bytes) -> None:
    assert _varint(number) == encoded
