"""One file = one operating-system process = one run(). They never import one another; they meet in channels."""
