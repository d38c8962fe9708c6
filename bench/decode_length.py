"""Measure the cost per token by its position: one sentence, greedy, Transformer-base, up to 1,024 tokens."""

from itertools import pairwise

from contenders.decoding import Job
from contenders.translating import seconds
from decode import SHAPES
from harness.machine import describe
from harness.report import grid, write
from harness.training import options
from harness.turns import Lock

LENGTHS = (32, 64, 128, 256, 512, 1024)

if __name__ == "__main__":
    args = options(__doc__, rounds=3)
    lock = Lock(args.lock)
    shape = SHAPES["Transformer-base"]
    taken = {n: seconds(Job(shape, 1, n, 1), args, lock) for n in LENGTHS}
    names = [name for name in taken[LENGTHS[0]] if all(name in t for t in taken.values())]
    spans = list(pairwise(LENGTHS))
    # Differences between two lengths cancel the encoder and other fixed costs.
    cost = {
        name: [1000 * (taken[b][name] - taken[a][name]) / (b - a) for a, b in spans] for name in names
    }  # fmt: skip
    head = ["milliseconds a token", *(f"{a + 1}–{b}" for a, b in spans), "last over first"]
    rows = [[name, *(f"{ms:.2f}" for ms in each), f"{each[-1] / each[0]:.2f}"] for name, each in cost.items()]
    title = "Decoding: the cost of a token by its position"
    write("decode_length", title, [grid(head, rows)], taken, describe(args.device), args.out)
