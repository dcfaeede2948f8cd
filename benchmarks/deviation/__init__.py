"""The parts of `benchmarks/ablations.py`."""
