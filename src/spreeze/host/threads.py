"""How many threads the libraries of a process use."""

from __future__ import annotations


def thread_variables(threads: int) -> dict[str, str]:
    """Return environment variables for a new process: how many threads its libraries use, and how they wait."""
    # Before NumPy is imported: a BLAS that takes every core in every sampler costs a factor of 14.
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    # Threads that wait for each other by spinning become slow when another process takes a core. Updates/s of two
    # threads on two cores, alone and with two other busy processes: by default 226 to 279 and 16 to 23, with a short
    # spin 233 to 250 and 50 to 75, sleeping at once 135 to 141 and 72 to 75.
    return {**dict.fromkeys(names, str(threads)), "GOMP_SPINCOUNT": "1000"}


def learner_thread_candidates(cores: int) -> list[int]:
    """Return the numbers of threads that a learner on a CPU tries, to keep the fastest."""
    return [threads for threads in (1, 2, 3, 4, 6, 8) if threads <= cores]
