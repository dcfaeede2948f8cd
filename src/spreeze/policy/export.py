"""Copies the policy of a run into one file."""

from __future__ import annotations

from pathlib import Path

from spreeze.channels.weights import MAX_FILE_BYTES
from spreeze.errors import ConfigError
from spreeze.host.files import read_bounded, write_whole
from spreeze.policy.file import load_policy
from spreeze.policy.which import Which, find_weights


def export_policy(run: Path, out: Path, which: Which = None) -> None:
    """Copy the policy of a run into one file that `load_policy` can use anywhere."""
    file, root = find_weights(run, which), run if run.is_dir() else None
    load_policy(file, root)  # a damaged file is reported here and not where the policy is deployed
    if out.exists():
        raise ConfigError(f"--out {out} already exists: name another file")
    try:
        write_whole(out, read_bounded(file, MAX_FILE_BYTES, root), out.parent)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"{out}: version {load_policy(out).version} of {run}")
    print(f'Use it with: spreeze.load_policy("{out}")(observation)')
