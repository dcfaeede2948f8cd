"""Every error Spreeze raises on purpose.

SpreezeError
├── UsageError              wrong input: exit code 2, one line, nothing was changed
│   ├── ConfigError         a flag, a keyword argument or a config file
│   ├── EnvironmentSetupError   an environment that cannot be made or is not supported
│   │   └── NotRenderable   one that cannot be drawn
│   └── RunFolderError      a run folder that cannot be created, read or used
├── CheckpointError         a checkpoint that is damaged, or not there: exit code 1
└── RunFailed               a run that started and could not continue: exit code 1
    ├── UnusableData        an environment gives numbers that nothing can be learnt from
    └── ProcessFailed       one of its processes raised, died or hangs
        └── LearnerFailed   its learner, or one side of it
"""


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, or its type where it has none."""
    return printable(" ".join(str(error).split())) or type(error).__name__


def printable(text: str) -> str:
    """Return a text for a message: what a stranger has written may hold line breaks or control the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class SpreezeError(Exception):
    """Base of all errors raised on purpose; its text is one line that says what to do."""

    exit_code = 1


class UsageError(SpreezeError):
    """Wrong input. Nothing was changed."""

    exit_code = 2


class ConfigError(UsageError):
    """A flag, a keyword argument or a config file holds something that cannot be used."""


class EnvironmentSetupError(UsageError):
    """The environment cannot be made, or its spaces are not supported."""


class NotRenderable(EnvironmentSetupError):
    """The environment cannot be drawn, here or at all."""


class RunFolderError(UsageError):
    """The run folder cannot be created, read or used."""


class CheckpointError(SpreezeError):
    """A checkpoint is damaged, or not there."""


class RunFailed(SpreezeError):
    """A run that started and could not continue."""


class UnusableData(RunFailed):
    """An environment gives NaN, infinity or absurd numbers most of the time."""


class ProcessFailed(RunFailed):
    """A process of the run raised, died or hangs; `traceback` is its own, if it left one."""

    def __init__(self, role: str, reason: str, traceback: str = "", error: str = "") -> None:
        super().__init__(f"{role} failed: {reason}")
        self.role = role
        self.reason = reason
        self.traceback = traceback
        self.error = error
        """The name of what it raised; empty where it was killed."""


class LearnerFailed(ProcessFailed):
    """The learner, or one side of it. It can be restarted from a checkpoint, in a new process."""
