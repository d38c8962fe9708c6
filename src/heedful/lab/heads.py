"""Attention heads: the cost of many heads, and what a single head cannot do."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Matrix, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.model_summary.summary import ModelSummary, summary_of
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.taps import recording

D_MODEL, LENGTH = 512, 64
HEADS = {"short": (1, 2, 8), "long": (1, 2, 4, 8, 16)}


def _counted(n_heads: int, full: bool) -> ModelSummary:
    """Count parameters and operations of an attention layer; with ``full``, each head has width d_model."""
    width = D_MODEL if full else None
    with torch.device("meta"):
        part = SelfAttention(D_MODEL, n_heads, d_k=width, d_v=width)
        x, layout = torch.empty(LENGTH, D_MODEL), Layout.of([LENGTH], device="meta")
    return summary_of(nn.Sequential(part), lambda model: model[0](x, layout), LENGTH)


def _cost(size: Size, full: bool) -> Outcome:
    """Test whether many heads cost as much as one."""
    heads = HEADS[size]
    summaries = {h: _counted(h, full) for h in heads}
    one, eight = summaries[1], summaries[8]
    same = all(
        (each.parameters, each.flops_per_token) == (one.parameters, one.flops_per_token)
        for each in summaries.values()
    )
    expected = 4 * D_MODEL**2 * (8 if full else 1)
    return Outcome(
        "holds" if same else "is wrong",
        (
            "Heads of width d / h have as many parameters and multiplications as one head of width d: 4 d² "
            "for the matrices. (The softmax is computed h times, over h times as many weights in total; if "
            "these are stored, memory grows in the same way.)"
            if same
            else "Heads that keep the full width d, as in Keras, cost h times as much: 4 h d²."
        ),
        [
            Measured(f"parameters of 8 heads, d = {D_MODEL}", eight.parameters, expected=float(expected)),
            Measured(f"parameters of 1 head, d = {D_MODEL}", one.parameters, expected=4.0 * D_MODEL**2),
            Measured(
                f"FLOPs of 8 heads to 1 head, {LENGTH} tokens",
                eight.flops_per_token / one.flops_per_token,
                expected=8.0 if full else 1.0,
            ),
        ],
        [
            {"heads": h, "parameters": each.parameters, "FLOPs for each token": each.flops_per_token}
            for h, each in summaries.items()
        ],
        [
            Curves(
                title,
                "heads",
                "",
                {
                    name: (heads, [float(getattr(_counted(h, whole), field)) for h in heads])
                    for name, whole in (("width d / h", False), ("full width d", True))
                },
                limits=(0, None),
            )
            for title, field in (
                ("Parameters", "parameters"),
                ("FLOPs for each token", "flops_per_token"),
            )
        ],
    )


PLACES, FEATURES = 8, 8
RATE, UPDATES, BATCH = 0.02, {"short": 250, "long": 1000}, 32

Wanted = Callable[[Tensor, Tensor], Tensor]


def _both(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate the neighbours."""
    return torch.cat((left, right), -1)


def _mean(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate two copies of the mean of the neighbours."""
    return torch.cat((left + right, left + right), -1) / 2


def _trained(n_heads: int, wanted: Wanted, updates: int) -> tuple[list[float], Tensor]:
    """Train an attention layer; return the share of unexplained variance by update, and the final weights.

    The weights are ``[H, n, n]``. Tokens consist of features from N(0, 1) and a one-hot position, on a
    circle. The target of each token is ``wanted`` of its neighbours' features. Several heads share the width
    of one.
    """
    part = SelfAttention(FEATURES + PLACES, n_heads)
    layout = Layout.of([PLACES] * BATCH)
    optimizer = torch.optim.Adam(part.parameters(), RATE, fused=True)
    places = torch.eye(PLACES).expand(BATCH, -1, -1)
    losses: list[float] = []
    for _ in range(updates):
        features = torch.randn(BATCH, PLACES, FEATURES)
        x = torch.cat((features, places), -1).flatten(0, 1)
        goal = wanted(features.roll(1, 1), features.roll(-1, 1)).flatten(0, 1)
        loss = (part(x, layout) - goal).square().mean() / goal.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad(), recording(part, ["weights"]) as seen:
        part(x, layout)
    return losses, seen["weights"][0].mean(0)


LAST = 20


@seeded(1)
def _neighbours(size: Size, wanted: Wanted) -> Outcome:
    """Test whether one head fails and two succeed."""
    one, one_looks = _trained(1, wanted, UPDATES[size])
    two, two_look = _trained(2, wanted, UPDATES[size])
    left, right = (sum(losses[-LAST:]) / LAST for losses in (one, two))
    needs_two = left > 0.4 and right < 0.1
    return Outcome(
        "holds" if needs_two else "is wrong",
        (
            "A head has one set of weights, so it passes on one mixture of the two values. That explains "
            "half of the target, and slightly more because the weights can depend on the features. Two "
            "heads of half the width, with as many parameters in total, each attend to one neighbour."
            if needs_two
            else "If the target is only the mean of two values, averaging is the right operation, and one "
            "head suffices."
        ),
        [
            Measured("not explained, one head", 100 * left, "%", expected=50.0 if wanted is _both else 0.0),
            Measured("not explained, two heads", 100 * right, "%", expected=0.0),
            Measured("parameters of either", 4.0 * (FEATURES + PLACES) ** 2),
        ],
        panels=[
            Curves(
                "Unexplained variance",
                "update",
                "share of variance",
                over(range(1, len(one) + 1), {"one head": one, "two heads": two}),
                limits=(0, 1.1),
                inches=(3.6, 3.2),
            ),
            *(
                Matrix(
                    title, "attended position", "position", weights.tolist(), (0.0, 1.0), inches=(3.4, 3.2)
                )
                for title, weights in (
                    ("The one head", one_looks[0]),
                    ("First of two heads", two_look[0]),
                    ("Second of two heads", two_look[1]),
                )
            ),
        ],
    )


EXPERIMENTS = [
    Experiment(
        name="heads-are-free",
        title="Many heads cost as much as one",
        claim="There is no increase in either the number of parameters or the amount of computation in "
        "implementing additional heads.",
        source="S1, multiple attention heads; S2, computational cost; Vaswani et al. 2017, section 3.2.2",
        items=(24, 25, 26),
        run=partial(_cost, full=False),
        control=partial(_cost, full=True),
        changed="Each head keeps the full width (lecture S1 on Keras).",
    ),
    Experiment(
        name="two-lookups",
        title="Two positions at once: one head averages",
        claim="Multi-head attention allows the model to attend to information at different positions "
        "jointly; with a single head, averaging inhibits this.",
        source="S2, advantage over single head attention; S3, multi-headed attention; S0, motivation",
        items=(27, 29),
        run=partial(_neighbours, wanted=_both),
        control=partial(_neighbours, wanted=_mean),
        changed="The target is the mean of the two neighbours instead of both.",
    ),
]
