"""Time to quality: a character language model on Shakespeare, against the usual plain loop.

The plain loop (4 layers, 4 heads, 128, context 64, batch 12, 2,000 updates) sets a validation loss; heedful
must reach it. Seed by seed, one after the other.
"""

import statistics
from dataclasses import asdict

from contenders import ours
from contenders.characters import LENGTH, UPDATES, Text, plain
from harness.machine import describe
from harness.report import grid, write
from harness.training import options
from harness.turns import Lock, log

SEEDS = 5

if __name__ == "__main__":
    chosen = options(__doc__, rounds=SEEDS)
    lock, text = Lock(chosen.lock), Text.read()
    updates = 20 if chosen.quick else UPDATES
    record, rows = [], []
    for seed in range(chosen.rounds):
        with lock.held():
            usual = plain(text, seed, updates)
        with lock.held():
            ourselves = ours.characters(text, seed, usual.loss)
        record.append({"seed": seed, "plain": asdict(usual), "heedful": ourselves and asdict(ourselves)})
        row = [str(seed), f"{usual.loss:.4f}", f"{usual.seconds:.1f} s"]
        if ourselves is None:
            row += ["not yet measured", "", ""]
        else:
            share = f"{ourselves.seconds / usual.seconds:.2f}"
            row += [f"{ourselves.loss:.4f}", f"{ourselves.seconds:.1f} s", share]
        rows.append(row)
        log(" ".join(row))
    lock.release()
    medians = [statistics.median(r["plain"][key] for r in record) for key in ("loss", "seconds")]  # type: ignore[index]
    head = ["seed", "plain loop: loss", "its time", "heedful: loss", "time", "share of the plain time"]
    words = (
        f"Loss: nats a character over the whole validation text, in windows of {LENGTH}; training time "
        f"alone, without validation. Plain loop, median: {medians[0]:.4f} in {medians[1]:.1f} s."
    )
    title = "Time to quality: character language model"
    write("char_lm", title, [grid(head, rows), words], record, describe(), chosen.out)
