from __future__ import annotations

import errno

from spreeze.host.write_failures import QUIET_S, WriteFailures


def test_a_failure_is_reported_once_and_its_end_once_when_it_lasts() -> None:
    now = 0.0
    failures = WriteFailures("the file", "it waits", lambda: now)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert failures.succeeded() is None
    assert failures.failed(full) == "the file cannot be written (No space left on device): it waits"
    for _ in range(5):  # full to the last byte: now this works and now that does not
        assert failures.failed(full) is None
        now += 0.9 * QUIET_S
        assert failures.succeeded() is None
        assert failures.is_failing
    now += 0.2 * QUIET_S
    assert failures.succeeded() == "the file can be written again"
    assert not failures.is_failing
    assert failures.succeeded() is None
    assert failures.failed(full) is not None  # another one
