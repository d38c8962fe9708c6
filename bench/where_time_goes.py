"""Profile heedful's training step by kind of operation, and bound its speed by its matrix products.

Eager, because a compiled step fuses operations; at the precision that heedful selects; without dropout.
"""

from collections import defaultdict
from typing import Any

from torch.profiler import ProfilerActivity, profile

import train_base
import train_lm
import train_tiny
from contenders import ours
from contenders.training_pairs import claim as pairs
from contenders.training_texts import claim as texts
from harness.machine import describe
from harness.report import grid, number, write
from harness.training import options
from harness.turns import log

STEPS = 3
PRODUCTS = "matrix products, fused attention"
PRODUCT_NAMES = ("mm", "addmm", "bmm", "baddbmm", "dot")
KINDS = (
    ("softmax and its largest entries", ("softmax", "amax", "log")),
    ("norms", ("layer_norm",)),
    ("optimizer", ("fused_adam",)),
    (
        "copies, padding, gathering",
        ("copy_", "cat", "index", "gather", "scatter", "embedding", "fill_", "zero"),
    ),
)
REST = "other operations on elements"
OUTSIDE = "between operations: Python, autograd"


def kind_of(name: str) -> str:
    """Return the kind of a torch operation by its name."""
    if not name.startswith("aten::"):
        return OUTSIDE
    bare = name.removeprefix("aten::").lstrip("_")
    if bare in PRODUCT_NAMES or bare.startswith("scaled_dot_product"):
        return PRODUCTS
    return next((kind for kind, parts in KINDS if any(part in bare for part in parts)), REST)


def milliseconds(work: Any) -> dict[str, float]:
    """Return the milliseconds of a step by kind of operation."""
    for step in range(STEPS):
        work(step)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in range(STEPS):
            work(step)
    durations: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        durations[kind_of(event.key)] += event.self_cpu_time_total / 1000 / STEPS
    return dict(durations)


if __name__ == "__main__":
    args = options(__doc__, rounds=1)
    ours.prepare()
    from heedful.training.fast_paths import choose_precision

    precision = choose_precision("auto", "cpu")
    shapes = {
        "Transformer-Tiny": (pairs("", "", train_tiny.SHAPE), ours.training_pairs),
        "Transformer-base": (pairs("", "", train_base.SHAPE), ours.training_pairs),
        "causal language model": (texts("", "", train_lm.SHAPE), ours.training_texts),
    }
    columns, tokens = {}, {}
    for title, (claim, make) in shapes.items():
        (contender,) = [c for c in make(claim.shape, 0.0, STEPS, "cpu") if c.setting == precision]
        columns[title] = milliseconds(contender.build())
        tokens[title] = sum(claim.tokens(n) for n in range(STEPS)) / STEPS
        log(f"{title}: {columns[title]}")
    kinds = [PRODUCTS, *(kind for kind, _ in KINDS), REST, OUTSIDE]
    rows = []
    for kind in kinds:
        cells = [(column.get(kind, 0.0), sum(column.values())) for column in columns.values()]
        rows.append([kind, *(f"{number(ms)} ms, {ms / whole:.0%}" for ms, whole in cells)])
    whole = {title: sum(column.values()) for title, column in columns.items()}
    rows.append(["**a step**", *(f"{number(ms)} ms" for ms in whole.values())])
    for name, taken in (
        ("target tokens/s, as measured here", whole),
        ("if only its products took time", {title: c[PRODUCTS] for title, c in columns.items()}),
    ):
        rows.append([name, *(number(1000 * tokens[title] / ms) for title, ms in taken.items())])
    record = {"precision": precision, "milliseconds": columns, "tokens": tokens}
    table = grid([f"{precision}, eager, dropout 0", *columns], rows)
    write(
        "where_time_goes",
        "Where the time of a training step goes",
        [table],
        record,
        describe(),
        args.out,
    )
