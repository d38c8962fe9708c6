"""Decoding: 32 new tokens for 1 and 32 sentences, greedy and beam 4, tiny and base shape."""

from itertools import product

from contenders.decoding import Job
from contenders.translating import table
from harness.flops import Shape
from harness.machine import describe
from harness.report import write_tables
from harness.training import options
from harness.turns import Lock

SHAPES = {
    "Transformer-Tiny": Shape(
        n_layers=4, d_model=128, d_ff=256, n_heads=4, vocab=10_000, batch=0, length=24, shortest=12
    ),
    "Transformer-base": Shape(
        n_layers=6, d_model=512, d_ff=2048, n_heads=8, vocab=10_000, batch=0, length=24, shortest=12
    ),
}

if __name__ == "__main__":
    args = options(__doc__, rounds=7)
    lock = Lock(args.lock)
    tables = []
    for (name, shape), n, (how, beam) in product(SHAPES.items(), (1, 32), (("greedy", 1), ("beam 4", 4))):
        title = f"{name}, {n} sentence{'s' * (n > 1)}, {how}"
        tables.append(table(title, Job(shape, n, 32, beam), args, lock))
        # After each table, so that an interrupted run keeps the tables so far.
        write_tables("decode", "Decoding", tables, describe(args.device), args.out)
