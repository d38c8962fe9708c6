"""The backward pass: a quiz on gradients, and the cost of the pass.

Items 96 and 97 of the lectures. Operation counts decide; wall times are only reported.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from heedful.lab.costs import flops_of, milliseconds
from heedful.lab.drawing import Bars
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.models.attention_stack import self_attention_stack
from heedful.models.transformer import TransformerConfig
from heedful.nn.layout import Layout

# The quiz


def quiz() -> dict[str, float]:
    """Compute the gradients of L = (a c + b) (c / d) at a = 3, b = 1, c = -4, d = 2 with autograd."""
    leaves = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in (("a", 3.0), ("b", 1.0), ("c", -4.0), ("d", 2.0))
    }
    a, b, c, d = leaves.values()
    e, f = a * c + b, c / d
    found = torch.autograd.grad(e * f, [*leaves.values(), e, f])
    return {name: value.item() for name, value in zip([*leaves, "e", "f"], found, strict=True)}


AS_PRINTED = {"a": 8.0, "b": -2.0, "c": -11.5, "d": 11.0}
CORRECT = {**AS_PRINTED, "d": -11.0}


def _quiz(answers: Mapping[str, float], size: Size) -> Outcome:
    """Compare the answers of the quiz with autograd."""
    found = quiz()
    wrong = [name for name, answer in answers.items() if not math.isclose(found[name], answer)]
    order = sorted(answers, key=lambda name: name != "d")
    return Outcome(
        "is wrong" if wrong else "holds",
        "∂L/∂d = -e c / d² = -(-11) (-4) / 4 = -11: the printed answer lacks the minus of the formula. The "
        "other three answers are right: 8, -2 and -11.5.",
        [Measured(f"∂L/∂{name}", found[name], expected=answers[name]) for name in order],
        [{"by": name, "printed": answer, "autograd": found[name]} for name, answer in answers.items()],
        [
            Bars(
                "Printed answers",
                "gradient of L with respect to",
                "",
                {name: answers[name] for name in "abcd"},
            ),
            Bars("Autograd", "gradient of L with respect to", "", {name: found[name] for name in "abcd"}),
        ],
    )


# Forward and backward


def _backward(*, weights: bool, size: Size) -> Outcome:
    """Count the operations of matrix products in both passes through an encoder, and report wall times."""
    d, n = (256, 64) if size == "short" else (512, 128)
    config = TransformerConfig(d_model=d, d_ff=4 * d, n_heads=4, n_layers=2, dropout=0.0)
    with seeded(0):
        stack = self_attention_stack(config, config.d_ff, causal=False).requires_grad_(weights)
        x = torch.randn(n, d, requires_grad=True)
    layout, wanted = Layout.of([n]), [x, *(stack.parameters() if weights else ())]

    def forward() -> Tensor:
        return stack(x, layout).sum()

    def backward(result: Tensor) -> None:
        torch.autograd.grad(result, wanted)

    result = forward()
    counts = {"forward": flops_of(forward), "backward": flops_of(partial(backward, result))}
    times = {
        "forward": milliseconds(lambda _: forward(), lambda: None),
        "backward": milliseconds(backward, forward),
    }
    ratio = counts["backward"] / counts["forward"]
    return Outcome(
        "holds" if ratio > 1.5 else "is wrong",
        "Each product W x of the forward pass requires two in the backward pass: Wᵀ g for the layer below "
        "and g xᵀ for the weights. That is twice the operations. If the weights are frozen, the second "
        "product is not needed, and both passes cost the same, except for attention: both factors of its "
        "products are activations, so it still needs two.",
        [
            Measured("operations backward to forward", ratio, expected=2.0),
            Measured("forward", counts["forward"], "FLOPs"),
            Measured("backward", counts["backward"], "FLOPs"),
        ],
        [{"pass": name, "FLOPs": counts[name], "ms": times[name]} for name in counts],
        [
            Bars(
                "Matrix products of two encoder layers",
                "",
                "FLOPs",
                {name: float(count) for name, count in counts.items()},
                levels={"twice forward": 2.0 * counts["forward"]},
            ),
            Bars("Wall time here (not used for the verdict)", "", "ms", times),
        ],
    )


EXPERIMENTS = [
    Experiment(
        "autograd-quiz",
        "A quiz on gradients",
        "For L = (a c + b) (c / d) at a = 3, b = 1, c = -4, d = 2: ∂L/∂d = 11.",
        "S3, quiz 3, question 1",
        (96,),
        run=partial(_quiz, AS_PRINTED),
        control=partial(_quiz, CORRECT),
        changed="The answer is -11.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "backward-cost",
        "Which pass is more expensive",
        "Back propagation is more expensive than forward propagation.",
        "S3, quiz 3, question 2",
        (97,),
        run=lambda size: _backward(weights=True, size=size),
        control=lambda size: _backward(weights=False, size=size),
        changed="The weights are frozen; only gradients of the inputs are computed.",
    ),
]
