"""`python -m spreeze` is `spreeze`."""

import os
import sys


def main() -> None:
    """Run the command in sys.argv. What it imports takes half a second, in which Ctrl-C ends it too."""
    try:
        from spreeze.commands.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    # Python looks for modules in the folder where `python -m` is started before it looks anywhere else: there, a
    # `random.py` would take the place of the library's. `spreeze` has no such entry. Both modules above are built in
    # or frozen; the package's own `__init__` imports nothing.
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 (pathlib is not frozen)
        del sys.path[0]
    main()
