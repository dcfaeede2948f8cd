"""Runs the command in processes of its own, in a folder of its own, and checks that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import hypothesis
import psutil
import pytest
from forked_commands import Finished, ForkedCommands, ForkedProcess

from spreeze.host import files

MARK = "SPREEZE_TEST_RUN"  # children inherit it: whoever carries a test's mark belongs to its runs
SHARED_MEMORY = Path("/dev/shm")
TOY_ENVS = Path(__file__).parent / "integration"
# Where matplotlib keeps its list of fonts, by default: to make one takes longer than any picture.
FONTS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "matplotlib")

# No example has to be quick: this machine may do something else meanwhile.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

# Tests that were started in the background, or by nohup, have these ignored, and so would the commands they try.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Guards against a hang, not expectations: a loaded machine may take many times what an idle one does.
START_GUARD_S = 60.0
RUN_GUARD_S = 120.0
LEFTOVER_GUARD_S = 10.0

# Small enough that a run is over a second after torch is imported.
SMALL: Mapping[str, Any] = {
    "env_module": "toy_envs",
    "run_dir": "run",
    "device": "cpu",
    "samplers": 1,
    "envs_per_sampler": 4,
    "warmup_steps": 100,
    "hidden": (16, 16),
    "batch_size": 32,
    "learner_threads": 1,
    "replay_rows": 100_000,
    "publish_interval_s": 0.05,
    "eval_episodes": 2,
    "eval_interval_s": 0.1,
    "no_adapt": True,
    "split": "no",
    "env_threads": "no",  # a toy task that sleeps does so to pace a run
    # What shows a run costs seconds at its end and a process or two: only where a test is about it.
    "no_dashboard": True,
    "no_video": True,
}


class Running:
    """A command under way."""

    def __init__(
        self, process: subprocess.Popen[bytes] | ForkedProcess, stdout: IO[bytes], stderr: IO[bytes]
    ) -> None:
        self.process = process
        self._stdout, self._stderr = stdout, stderr

    def finish(self, timeout_s: float = RUN_GUARD_S) -> Finished:
        """Wait for its end and return what it said."""
        try:
            returncode = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.process.args!r} still runs after {timeout_s:.0f} s; it said:\n{self.said()}")
        return Finished(returncode, _content(self._stdout), _content(self._stderr))

    def said(self) -> str:
        """Return its output so far."""
        return _content(self._stdout) + _content(self._stderr)


# What a learner's process runs first, so that a training need not hash its replay for the sake of a test.
REPLAY_DIGESTS = """
import sys
if "split_learner" in sys.orig_argv:
    import hashlib, json, pathlib
    from spreeze.learning.learner import Learner
    finish = Learner.finish
    def finish_and_leave_digest(self):
        finish(self)
        rows = self._replay._rows[: len(self._replay)].cpu().numpy()
        digest = hashlib.sha256(b"".join(sorted(row.tobytes() for row in rows))).hexdigest()
        side = "critic" if self._publisher is None else "actor"
        pathlib.Path(__file__).with_name(f"{side}.json").write_text(json.dumps([len(rows), digest]))
    Learner.finish = finish_and_leave_digest
"""


class Spreeze:
    """Starts commands in one folder, and knows all processes that came of them."""

    def __init__(self, folder: Path, forks: ForkedCommands) -> None:
        self.folder = folder
        self._forks = forks
        self.run_dir = folder / str(SMALL["run_dir"])
        self._mark = uuid.uuid4().hex
        self._shared_before = _shared_memory()

    def __call__(self, *words: object, **options: Any) -> Finished:
        """Run `spreeze WORDS` to its end."""
        return self.start(*words, **options).finish()

    def train(self, env: str, **settings: Any) -> Finished:
        """Run a small training to its end."""
        return self.start_training(env, **settings).finish()

    def start_training(
        self,
        env: str,
        cores: set[int] | None = None,
        environment: Mapping[str, str] | None = None,
        are_programs: bool = False,
        **settings: Any,
    ) -> Running:
        """Start a small training, on given cores and with further variables only where that is asked for.

        are_programs: whether its processes have to be, because forks have other libraries in their memory.
        """
        start = self.start_program if are_programs else self.start
        return start("train", env, *self.small(**settings), cores=cores, environment=environment)

    def small(self, **settings: Any) -> list[str]:
        """Return the flags of a small training; settings are named as in the config, None leaves one out."""
        words: list[str] = []
        for name, value in {**SMALL, **settings}.items():
            if value is None:
                continue
            words.append("--" + name.replace("_", "-"))
            if isinstance(value, dict):
                words.append(json.dumps(value))
            elif value is not True:
                words += [str(item) for item in (value if isinstance(value, tuple) else (value,))]
        return words

    def start(self, *words: object, environment: Mapping[str, str] | None = None, **options: Any) -> Running:
        """Start `spreeze WORDS`: a fork that is past its imports, or a program where that makes a difference.

        It does for options, and for variables that Python reads when it starts.
        """
        given = environment or {}
        if "PYTHONPATH" in given or any(option is not None for option in options.values()):
            return self.start_program(*words, environment=environment, **options)
        variables, (stdout, stderr) = {**self._all_variables(), **given}, _files()
        process = self._forks.start([str(word) for word in words], self.folder, variables, stdout, stderr)
        return Running(process, stdout, stderr)

    def start_script(self, script: Path) -> Running:
        """Start `python SCRIPT`, for a script that trains: a fork, too, so that an interrupt ends it with 1."""
        stdout, stderr = _files()
        words, variables = [str(script)], self._all_variables()
        process = self._forks.start(words, self.folder, variables, stdout, stderr, is_script=True)
        return Running(process, stdout, stderr)

    def start_program(self, *words: object, **options: Any) -> Running:
        """Start `spreeze WORDS` as a program, and so all its processes."""
        return self.start_python("-m", "spreeze", *words, **options)

    def start_python(
        self,
        *words: object,
        environment: Mapping[str, str] | None = None,
        open_files: int | None = None,
        terminal: int | None = None,
        stdin: int | None = None,
        cores: set[int] | None = None,
    ) -> Running:
        """Start Python in a session of its own, so that a signal to its group reaches nobody else."""
        variables = {**self._all_variables(), **(environment or {})}
        stdout, stderr = _files()
        process = subprocess.Popen(
            [sys.executable, *(str(word) for word in words)],
            cwd=self.folder,
            env=variables,
            stdin=(subprocess.DEVNULL if stdin is None else stdin) if terminal is None else terminal,
            stdout=stdout if terminal is None else terminal,
            stderr=stderr if terminal is None else terminal,
            start_new_session=True,
        )
        # Limits are there long before the interpreter has come to the command.
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)
        if open_files is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        return Running(process, stdout, stderr)

    def _all_variables(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
        return {**inherited, **self.variables()}

    def variables(self) -> dict[str, str]:
        """Return the variables that commands have besides those of this process."""
        path = os.pathsep.join(filter(None, (str(TOY_ENVS), os.environ.get("PYTHONPATH"))))
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache"), "MPLCONFIGDIR": str(FONTS)}
        return {"PYTHONPATH": path, MARK: self._mark, **cache}

    def without(self, *modules: str) -> dict[str, str]:
        """Return the variables of a command for which modules are not installed, and torch is forbidden."""
        folder = self.folder / "hiding"
        folder.mkdir()
        # Importing what is None in sys.modules fails like importing what is not there.
        (folder / "sitecustomize.py").write_text(
            "import sys\n"
            f"sys.modules.update(dict.fromkeys({modules!r}))\n"
            "class NoTorch:\n"
            "    def find_spec(self, name, *_):\n"
            "        assert name != 'torch', 'torch is slow to import, and not needed here'\n"
            "sys.meta_path.insert(0, NoTorch())\n"
        )
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}

    def with_replay_digests(self) -> dict[str, str]:
        """Return the variables of a command whose split learner leaves `replay_digests`."""
        folder = self.folder / "digests"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(REPLAY_DIGESTS)
        path = (str(folder), str(TOY_ENVS), os.environ.get("PYTHONPATH"))
        return {"PYTHONPATH": os.pathsep.join(filter(None, path))}

    def replay_digests(self) -> dict[str, tuple[int, str]]:
        """Return how many rows each side's replay held at its end, and a digest of them in a fixed order."""
        found = {path.stem: json.loads(path.read_text()) for path in (self.folder / "digests").glob("*.json")}
        return {side: (rows, digest) for side, (rows, digest) in found.items()}

    def processes(self, role: str | None = None) -> list[psutil.Process]:
        """Return the processes of this folder's commands that are alive now."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.environ().get(MARK) != self._mark:
                    continue
                command = process.cmdline()
                if role is None or ("spreeze.supervision.worker_main" in command and role in command):
                    found.append(process)
        return found

    def wait_until(
        self, condition: Callable[[], Any], what: str, timeout_s: float = START_GUARD_S, run: Running | None = None
    ) -> None:
        """Poll until the condition is true; fail when time is up, or when the run ends before."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if run is not None and run.process.poll() is not None and not condition():
                pytest.fail(f"the run ended before there was {what}:\n{run.said()}")
            if time.monotonic() > deadline:
                pytest.fail(f"after {timeout_s:.0f} s there is still not: {what}")
            time.sleep(0.005)

    def wait_for_updates(self, run: Running) -> None:
        """Wait until a line of metrics.jsonl shows updates."""
        what = "a line of metrics.jsonl with updates"
        self.wait_until(lambda: any(line["updates"] > 0 for line in self.journal("metrics")), what, run=run)

    def wait_for_policy(self, run: Running) -> None:
        """Wait until the first updates have led to a policy, which is a second before metrics.jsonl may show them."""
        self.wait_until(lambda: any((self.run_dir / "weights").glob("policy-*")), "a policy", run=run)

    def journal(self, name: str, run_dir: Path | None = None) -> list[dict[str, Any]]:
        """Return the lines of a journal that are whole."""
        path = (run_dir or self.run_dir) / f"{name}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def read(self, name: str, run_dir: Path | None = None) -> dict[str, Any]:
        """Return a JSON file of the run folder."""
        content: dict[str, Any] = json.loads(((run_dir or self.run_dir) / name).read_text())
        return content

    def check_nothing_left(self) -> None:
        """Fail if a process of these commands lives, or shared memory has a new entry that nobody uses."""
        left: list[psutil.Process] = []
        shared: set[str] = set()
        deadline = time.monotonic() + LEFTOVER_GUARD_S
        while time.monotonic() < deadline:
            left = self.processes()
            shared = _unused(_shared_memory() - self._shared_before)
            if not left and not shared:
                return
            time.sleep(0.01)
        described = [f"{process.pid}: {' '.join(process.cmdline())}" for process in left if process.is_running()]
        self.kill_all()
        pytest.fail(f"left behind: processes {described}, shared memory {sorted(shared)}")

    def kill_all(self) -> None:
        """End what a failed test left."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test-faults` says."""
    parser.addoption("--full-faults", action="store_true", help="the fault suite in full: minutes instead of seconds")


@pytest.fixture(scope="session")
def in_full(pytestconfig: pytest.Config) -> bool:
    """Whether faults are tried as often as `make test-faults` does, rather than as `make test` does."""
    return bool(pytestconfig.getoption("--full-faults"))


FullDisk = Callable[..., contextlib.AbstractContextManager[None]]
DeletedOnce = Callable[[Path], None]


@pytest.fixture
def deleted_once(monkeypatch: pytest.MonkeyPatch) -> DeletedOnce:
    """Return what has somebody delete a folder once, at the very moment at which a file is about to be written."""

    def delete_then(folder: Path) -> None:
        def delete(path: Path) -> Path:
            monkeypatch.setattr(files, "aside_of", name_aside)
            shutil.rmtree(folder)
            return name_aside(path)

        name_aside = files.aside_of
        monkeypatch.setattr(files, "aside_of", delete)

    return delete_then


@pytest.fixture
def full_disk() -> FullDisk:
    """Return what makes the disk full for this process: no file grows beyond a size, as with a quota."""

    @contextlib.contextmanager
    def limit(file_bytes: int = 0) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is not asked for, or needs a GPU where there is none, before fixtures are made for it."""
    if item.get_closest_marker("full") is not None and not item.config.getoption("--full-faults"):
        pytest.skip("only in `make test-faults`")
    if item.get_closest_marker("gpu") is not None:
        import torch  # not at the top: most tests need none

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA GPU")


@pytest.fixture
def spreeze(tmp_path: Path, _forks: ForkedCommands) -> Iterator[Spreeze]:
    """Commands of one test."""
    yield from _commands_in(tmp_path, _forks)


@pytest.fixture(scope="module")
def module_spreeze(tmp_path_factory: pytest.TempPathFactory, _forks: ForkedCommands) -> Iterator[Spreeze]:
    """Commands that the tests of a module share."""
    yield from _commands_in(tmp_path_factory.mktemp("module"), _forks)


@pytest.fixture(scope="session")
def _forks(in_full: bool) -> Iterator[ForkedCommands]:
    forks = ForkedCommands(are_programs=in_full)
    yield forks
    forks.close()


def _commands_in(folder: Path, forks: ForkedCommands) -> Iterator[Spreeze]:
    commands = Spreeze(folder, forks)
    try:
        yield commands
    except BaseException:
        commands.kill_all()
        raise
    commands.check_nothing_left()


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def _unused(names: set[str]) -> set[str]:
    """Return the entries of shared memory that no process uses: others may be of tests that run at the same time."""
    # By number: a semaphore is mapped under a name that it had before its own.
    used = set().union(*map(_files_of, psutil.pids())) if names else set()
    unused = set()
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it is gone
            if _identity((SHARED_MEMORY / name).stat()) not in used:
                unused.add(name)
    return unused


def _files_of(pid: int) -> set[tuple[int, int]]:
    """Return the device and the number of each file that a process has open or mapped."""
    found: set[tuple[int, int]] = set()
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, _, _, device, number, *_ = line.split()
            major, _, minor = device.partition(":")
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(number)))
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed just now
                found.add(_identity(path.stat()))
    return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _files() -> tuple[IO[bytes], IO[bytes]]:
    # Files, not pipes: nobody has to read them while the command runs, and no leftover process can hold them.
    return tempfile.TemporaryFile(), tempfile.TemporaryFile()


def _content(file: IO[bytes]) -> str:
    # Not through the position, which the command's process shares: reading must not move where it writes.
    return os.pread(file.fileno(), 2**24, 0).decode(errors="replace")
