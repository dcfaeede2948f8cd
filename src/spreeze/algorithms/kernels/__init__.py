"""Faster implementations of the operations of an update."""
