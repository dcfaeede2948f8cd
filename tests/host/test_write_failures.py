from __future__ import annotations

import errno

from spreeze.host.write_failures import QUIET_S, WriteFailures


def test_a_trouble_is_said_once_and_its_end_once_when_it_lasts() -> None:
    now = 0.0
    trouble = WriteFailures("the file", "it waits", lambda: now)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert trouble.worked() is None
    assert trouble.failed(full) == "the file cannot be written (No space left on device): it waits"
    for _ in range(5):  # full to the last byte: now this works and now that does not
        assert trouble.failed(full) is None
        now += 0.9 * QUIET_S
        assert trouble.worked() is None
        assert trouble.is_there
    now += 0.2 * QUIET_S
    assert trouble.worked() == "the file can be written again"
    assert not trouble.is_there
    assert trouble.worked() is None
    assert trouble.failed(full) is not None  # another one
