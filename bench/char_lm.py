"""Time to quality: a character language model on Shakespeare, against the usual plain loop.

The plain loop (4 layers, 4 heads, 128, context 64, batch 12, 2,000 updates) sets a validation loss; heedful
must reach it. Measured seed by seed; then, with the first seed, for each improvement.
"""

import statistics
from dataclasses import asdict, replace

from contenders import ours
from contenders.characters import LENGTH, UPDATES, Text, train_plain
from contenders.ours_characters import MUON, SCHEDULE, STEP, train_heedful
from harness.machine import describe
from harness.report import grid, write
from harness.training import options
from harness.turns import Lock, log

SEEDS = 5

if __name__ == "__main__":
    args = options(__doc__, rounds=SEEDS)
    ours.prepare()
    lock, text = Lock(args.lock), Text.read()
    updates = 20 if args.quick else UPDATES
    setups = [replace(m, updates=20) if args.quick else m for m in (STEP, SCHEDULE, MUON)]
    record, rows = [], []
    for seed in range(args.rounds):
        with lock.held():
            usual = train_plain(text, seed, updates)
        with lock.held():
            ourselves = train_heedful(text, seed, setups[-1])
        share = ourselves.seconds / usual.seconds
        record.append({"seed": seed, "plain": asdict(usual), "heedful": asdict(ourselves), "share": share})
        figures = (f"{usual.loss:.4f}", f"{usual.seconds:.1f} s", f"{ourselves.loss:.4f}")
        rows.append([str(seed), *figures, f"{ourselves.seconds:.1f} s", f"{share:.2f}"])
        log(" ".join(rows[-1]))
    steps = [
        ["the plain loop", f"{record[0]['plain']['loss']:.4f}", f"{record[0]['plain']['seconds']:.1f} s"]
    ]
    for setup in setups:
        with lock.held():
            outcome = train_heedful(text, 0, setup)
        record.append({"means": asdict(setup), "course": asdict(outcome)})
        steps.append(
            [f"{setup.name} ({setup.updates:,} updates)", f"{outcome.loss:.4f}", f"{outcome.seconds:.1f} s"]
        )
        log(" ".join(steps[-1]))
    lock.release()
    runs = record[: args.rounds]
    reached = sum(run["heedful"]["loss"] <= run["plain"]["loss"] for run in runs)
    words = (
        f"Loss: nats per character over the whole validation text, in windows of {LENGTH}; time: "
        f"training and building the model, without validation. The plain loop's loss was reached with "
        f"{reached} of {len(runs)} seeds; median share of its time: "
        f"{statistics.median(run['share'] for run in runs):.2f}."
    )
    head = ["seed", "plain loop: loss", "its time", "heedful: loss", "time", "share of the plain time"]
    parts = [grid(head, rows), words, grid(["means, each added to those above", "loss", "time"], steps)]
    write("char_lm", "Time to quality: character language model", parts, record, describe(), args.out)
