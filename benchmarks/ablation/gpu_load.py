"""Keeps a GPU busy with large products until its input ends: another program on the same GPU.

    python benchmarks/ablation/gpu_load.py cuda 4096

Out: "ready" once it has measured what it does before the run starts; at the end, as JSON, products a second until
then, and how many there were when, by the clock that all processes share.
Without MPS the driver gives programs on one GPU slices of time in turn: what a load loses, the run has.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import torch

WARMUP_S, ALONE_S = 0.3, 1.0
AHEAD = 4  # products under way: always one to do, and none that outlasts the end by much
LOOK_S = 0.2


def main() -> None:
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    device, size = sys.argv[1], int(sys.argv[2])
    left = torch.rand(size, size, device=device)
    count_products(left, is_over, WARMUP_S)  # the first ones are slow
    (began, _), *_, (ended, products) = count_products(left, is_over, ALONE_S)
    print("ready", flush=True)
    counts = count_products(left, is_over, float("inf"))
    print(json.dumps({"alone_hz": products / (ended - began), "counts": counts}), flush=True)


def count_products(left: torch.Tensor, is_over: threading.Event, seconds: float) -> list[tuple[float, int]]:
    """Multiply; return moments, and how many products were done by then."""
    began = time.monotonic()
    counts, products = [(began, 0)], 0
    while (now := time.monotonic()) < began + seconds and not is_over.is_set():
        if now > counts[-1][0] + LOOK_S:
            counts.append((now, products))
        for _ in range(AHEAD):
            product = torch.mm(left, left)
        product[0, 0].item()  # waits for it, on any device
        products += AHEAD
    return [*counts, (time.monotonic(), products)]


if __name__ == "__main__":
    main()
