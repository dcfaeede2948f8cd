"""Look for known vulnerabilities in the packages of constraints.txt: `make audit`, and once per day `make lint`.

In: pinned packages, and the advisories of osv.dev, which pip-audit asks for. Out: a line about each vulnerability and
exit code 1, or one line and exit code 0. Where there are no advisories, `make audit` fails, and `make lint` goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVICE = "https://api.osv.dev/v1/query"
# Asked for as well: it has vulnerabilities. pip-audit cannot tell a service that knows of nothing bad from one that
# knows nothing, such as some mirrors of PyPI.
CANARY = "django==3.2"
TIMEOUT_S = 10
DAY_S = 24 * 3600
# Advisories that do not concern Spreeze, with the reason.
IGNORED: dict[str, str] = {}


class NoAdvisories(Exception):
    """The service cannot be reached, or has no advisories."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pins", nargs="?", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--service", default=SERVICE, metavar="URL")
    parser.add_argument(
        "--daily", type=Path, metavar="STAMP", help="not again within a day, and not where there is no service"
    )
    words = parser.parse_args()
    if words.daily and _is_fresh(words.daily, words.pins):
        return 0
    try:
        packages = _ask(words.pins, words.service)
    except NoAdvisories as reason:
        if words.daily:
            print(f"Audit of {words.pins.name} left out (`make audit` says why): no advisories from {words.service}")
            return 0
        print(f"{words.service} gives no advisories here: {reason}")
        return 1
    found = [(package, each) for package in packages for each in package["vulns"] if not _is_ignored(each)]
    for package, each in found:
        fixed = f"fixed in {', '.join(each['fix_versions'])}" if each["fix_versions"] else "not fixed yet"
        print(f"{package['name']} {package['version']}: {', '.join([each['id'], *each['aliases']])}, {fixed}")
    if found:
        print(f"Raise them in {words.pins.name}, or give the reason why not in .ci/audit.py (IGNORED).")
        return 1
    print(f"No known vulnerability in the {len(packages)} packages of {words.pins.name}.")
    if words.daily:
        words.daily.touch()
    return 0


def _ask(pins: Path, service: str) -> list[dict[str, Any]]:
    """Return the pinned packages with the vulnerabilities of each."""
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary.txt"
        canary.write_text(CANARY)
        # As they are pinned: nothing is resolved, downloaded or installed.
        flags = ["--no-deps", "--disable-pip", "--strict", "--progress-spinner=off", f"--timeout={TIMEOUT_S}"]
        flags += ["--format=json", "--vulnerability-service=osv", f"--osv-url={service}"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip_audit",
            *flags,
            f"--requirement={pins}",
            f"--requirement={canary}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 (the words are ours)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        raise NoAdvisories((done.stderr.strip().splitlines() or ["no output"])[-1]) from None
    canary_name = CANARY.partition("=")[0]
    if not any(package["vulns"] for package in packages if package["name"] == canary_name):
        raise NoAdvisories(f"none about {CANARY}")
    return [package for package in packages if package["name"] != canary_name]


def _is_ignored(vulnerability: dict[str, Any]) -> bool:
    return not IGNORED.keys().isdisjoint([vulnerability["id"], *vulnerability["aliases"]])


def _is_fresh(stamp: Path, pins: Path) -> bool:
    """Return whether the same packages were audited less than a day ago."""
    return stamp.exists() and stamp.stat().st_mtime > max(pins.stat().st_mtime, time.time() - DAY_S)


if __name__ == "__main__":
    sys.exit(main())
