"""`python -m spreeze` is `spreeze`."""

from spreeze.cli import main

main()
