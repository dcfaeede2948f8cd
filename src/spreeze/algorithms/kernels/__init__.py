"""The fast ways to compute the operations of an update."""
