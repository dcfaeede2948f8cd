"""`.ci/audit.py`, with a service of our own in the place of osv.dev: what it finds, and what it does without one.

Also, whether the packages that it looks at are those that `make` installs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

AUDIT = Path(__file__).parents[1] / ".ci" / "audit.py"
CANARY = ("django", "3.2")
PINS = "# tested together\nurllib3==2.8.0\nMarkupSafe==3.0.4\n"


class Service:
    """Answers as osv.dev does."""

    def __init__(self) -> None:
        self.vulnerable: set[tuple[str, str]] = {CANARY}
        self.asked: list[tuple[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                package = query["package"]["name"], query["version"]
                service.asked.append(package)
                body = json.dumps(
                    {"vulns": [_advisory(package[0])]} if package in service.vulnerable else {}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/query"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _advisory(name: str) -> dict[str, object]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9.1"}]}]
    affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
    return {"id": f"GHSA-{name}", "aliases": ["CVE-2026-1"], "summary": "bad", "affected": affected}


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def audit(folder: Path, url: str, *words: str) -> tuple[int, str]:
    variables = {name: text for name, text in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [sys.executable, str(AUDIT), str(folder / "constraints.txt"), "--service", url, *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**variables, "HOME": str(folder)})
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "constraints.txt").write_text(PINS)
    return tmp_path


def test_known_vulnerability_fails(folder: Path, service: Service) -> None:
    service.vulnerable.add(("markupsafe", "3.0.4"))
    code, said = audit(folder, service.url, "--daily", str(folder / "stamp"))
    assert code == 1
    assert said.splitlines()[0] == "markupsafe 3.0.4: CVE-2026-1, GHSA-markupsafe, fixed in 9.1"
    assert not (folder / "stamp").exists()


def test_once_per_day_unless_the_packages_change(folder: Path, service: Service) -> None:
    stamp, pins = folder / "stamp", folder / "constraints.txt"
    says = "No known vulnerability in the 2 packages of constraints.txt.\n"
    assert audit(folder, service.url, "--daily", str(stamp)) == (0, says)
    assert service.asked == [("urllib3", "2.8.0"), ("markupsafe", "3.0.4"), CANARY]
    assert audit(folder, service.url, "--daily", str(stamp)) == (0, "")
    assert len(service.asked) == 3
    is_fresh = runpy.run_path(str(AUDIT))["_is_fresh"]
    assert is_fresh(stamp, pins)
    written = stamp.stat().st_mtime
    os.utime(pins, times=(written + 1, written + 1))
    assert not is_fresh(stamp, pins)
    for path in (pins, stamp):
        os.utime(path, times=(time.time() - 90_000, time.time() - 90_000 + (path == stamp)))
    assert not is_fresh(stamp, pins)


def test_without_advisories_only_the_daily_one_goes_on(folder: Path, service: Service) -> None:
    url = "http://127.0.0.1:9/v1/query"  # the port of `discard`: nobody answers
    code, said = audit(folder, url)
    assert code == 1
    assert f"{url} gives no advisories here: " in said
    service.vulnerable.clear()  # it answers, and knows nothing
    code, said = audit(folder, service.url, "--daily", str(folder / "stamp"))
    assert code == 0
    assert said == (f"Audit of constraints.txt left out (`make audit` says why): no advisories from {service.url}\n")
    assert not (folder / "stamp").exists()


def test_what_is_installed_is_pinned() -> None:
    lines = (AUDIT.parents[1] / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    needed, to_read = {("spreeze", "dev")}, [("spreeze", "dev")]
    while to_read:
        name, extra = to_read.pop()
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            package = canonicalize_name(requirement.name)
            if name == "torch" and package not in pinned:
                continue  # a build for GPUs needs libraries in versions of its own
            for each in (package, ""), *((package, wanted) for wanted in requirement.extras):
                if each not in needed:
                    needed.add(each)
                    to_read.append(each)
    # What a virtual environment has of its own, if not in the newest version.
    assert {name for name, _ in needed} - pinned <= {"spreeze", "pip", "setuptools"}
