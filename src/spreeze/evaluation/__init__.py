"""The evaluator process."""
