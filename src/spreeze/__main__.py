"""`python -m spreeze` is `spreeze`."""

from spreeze.commands.cli import main

main()
