"""Compare implementations inside heedful: attention kernels by length and type, the loss, dropout.

Forward and backward, median milliseconds over the rounds, taken in turn.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from contenders import ours
from harness.contender import Contender
from harness.machine import describe, has_bf16
from harness.report import grid, number, write
from harness.training import options
from harness.turns import Lock, measure

HEADS, D_K, TOKENS = 6, 64, 4096
LENGTHS = (16, 64, 256, 1024)
LOSS = ((1521, 128, 10_000), (1159, 512, 10_000), (4096, 384, 10_000))


def attention(length: int, dtype: torch.dtype, kernel: Any) -> Callable[[], Callable[[int], None]]:
    """Causal attention over sequences of ``length``, ``TOKENS`` tokens in total."""

    def build() -> Callable[[int], None]:
        from heedful.nn.attention.kernels import attend
        from heedful.nn.attention.scores import ScaledDotScore
        from heedful.nn.dropout import Dropout
        from heedful.nn.layout import Layout
        from heedful.nn.taps import Tap
        from heedful.nn.visibility import Visibility

        rows = TOKENS // length
        layout = Layout.of([length] * rows)
        shape = (rows, length, HEADS, D_K)  # as projections leave it: heads are views
        q, k, v = (torch.randn(shape, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3))
        probe = torch.randn(rows, HEADS, length, D_K, dtype=dtype)
        modules = {"dropout": Dropout(0.0), "scores_tap": Tap(), "weights_tap": Tap()}

        def work(number: int) -> None:
            visibility = Visibility.of(layout, layout, causal=True)
            out = attend(q, k, v, visibility, ScaledDotScore(), kernel=kernel, **modules)  # type: ignore[arg-type]
            torch.autograd.grad(out, (q, k, v), probe)

        return work

    return build


def loss(size: tuple[int, int, int], dtype: torch.dtype, fused: bool) -> Callable[[], Callable[[int], None]]:
    """Output layer and smoothed cross-entropy."""

    def build() -> Callable[[int], None]:
        from heedful.objectives.cross_entropy import linear_cross_entropy

        n, d, v = size
        hidden = torch.randn(n, d, dtype=dtype, requires_grad=True)
        weight = (torch.randn(v, d) * d**-0.5).to(dtype).requires_grad_()
        targets = torch.randint(v, (n,))

        def plain() -> Tensor:
            logits = nn.functional.linear(hidden, weight).float()
            return nn.functional.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")

        def work(number: int) -> None:
            value = linear_cross_entropy(hidden, weight, None, targets, 0.1)[0] if fused else plain()
            torch.autograd.grad(value, (hidden, weight))

        return work

    return build


def dropout(dtype: torch.dtype, ours: bool) -> Callable[[], Callable[[int], None]]:
    """Dropout of a 2048 × 128 tensor, by heedful if ``ours``, else by torch."""

    def build() -> Callable[[int], None]:
        from heedful.nn.dropout import Dropout

        x = torch.randn(2048, 128, dtype=dtype, requires_grad=True)
        probe = torch.randn_like(x)
        module = Dropout(0.1) if ours else nn.Dropout(0.1)

        def work(number: int) -> None:
            torch.autograd.grad(module(x), x, probe)

        return work

    return build


def _name(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]


def _table(
    rows: dict[str, dict[str, Callable[[], Callable[[int], None]]]], args: argparse.Namespace, lock: Lock
) -> tuple[str, dict[str, dict[str, float]]]:
    tables: dict[str, dict[str, float]] = {}
    for title, columns in rows.items():
        contenders = [Contender("heedful", name, build) for name, build in columns.items()]
        timings = measure(contenders, rounds=args.rounds, patience=args.patience, lock=lock)
        tables[title] = {
            c.setting: 1e3 * statistics.median(timings[c.name].seconds) for c in contenders
        }  # fmt: skip
    head = ["", *next(iter(rows.values()))]
    return grid(head, [[t, *map(number, columns.values())] for t, columns in tables.items()]), tables


if __name__ == "__main__":
    args = options(__doc__, rounds=5)
    ours.prepare()
    lock = Lock(args.lock)
    types = (torch.float32, torch.bfloat16) if has_bf16("cpu") else (torch.float32,)
    lengths = LENGTHS[:2] if args.quick else LENGTHS
    kernels = {
        f"{length} tokens, {_name(dtype)}": {
            name: attention(length, dtype, name) for name in ("explicit", "products", "fused")
        }
        for length in lengths
        for dtype in types
    }
    losses = {
        f"{n} × {d} → {v}, {_name(dtype)}": {
            "whole logits": loss((n, d, v), dtype, False),
            "fused, in chunks": loss((n, d, v), dtype, True),
        }
        for n, d, v in (LOSS[:1] if args.quick else LOSS)
        for dtype in types
    }
    drops = {
        _name(dtype): {"torch": dropout(dtype, False), "heedful": dropout(dtype, True)} for dtype in types
    }
    sections, record = [], {}
    for title, rows in (
        (f"Causal attention, {HEADS} heads of {D_K}, {TOKENS} tokens in total", kernels),
        ("Output layer and loss, tokens × d_model → vocabulary", losses),
        ("Dropout of 2048 × 128", drops),
    ):
        text, record[title] = _table(rows, args, lock)
        sections.append(f"## {title}: ms\n\n{text}")
    lock.release()
    write("parts", "Inside heedful: kernels, loss, dropout", sections, record, describe(), args.out)
