"""Formulas whose shapes do not fit as printed, computed as printed and as corrected.

Items 22, 24 and 32 of the lectures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from heedful.lab.drawing import Bars
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.nn.attention.self_attention import SelfAttention


@dataclass(frozen=True)
class Shape:
    """A printed formula whose factors do not give the right shape.

    Args:
        lecture: S0 to S4.
        printed, correct: the formulas.
        wanted: the shape that the result must have.
        as_printed, corrected: compute the shape; raise ValueError or RuntimeError if the factors do not fit.
    """

    lecture: str
    printed: str
    correct: str
    wanted: tuple[int, ...]
    as_printed: Callable[[], Sequence[int]]
    corrected: Callable[[], Sequence[int]]


def _m(*shape: int) -> Tensor:
    """Create a matrix without data; only its shape matters."""
    return torch.empty(shape, device="meta")


# 7 words, d = 24, 4 heads of width 6; a feed-forward layer of width 96.
SHAPES = (
    Shape(
        "S4",
        "q_i is the i-th column of Q",
        "q_i is the i-th row of Q",
        (6,),
        lambda: _m(7, 6)[:, 0].shape,
        lambda: _m(7, 6)[0].shape,
    ),
    Shape(
        "S4",
        "softmax(Q_k^T / √d_k) v",
        "softmax(Q K^T / √d_k) V",
        (7, 6),
        lambda: (_m(7, 6).T @ _m(7, 6)).shape,
        lambda: (_m(7, 6) @ _m(7, 6).T @ _m(7, 6)).shape,
    ),
    Shape(
        "S1",
        "X W_h^Q with W_h^Q of N x d/H",
        "W_h^Q of d x d/H",
        (7, 6),
        lambda: (_m(7, 24) @ _m(7, 6)).shape,
        lambda: (_m(7, 24) @ _m(24, 6)).shape,
    ),
    Shape(
        "S1",
        "d = 768 and H = 10 in the original paper",
        "d = 512 and H = 8",
        (64,),
        lambda: (_head_width(768, 10),),
        lambda: (_head_width(512, 8),),
    ),
    Shape(
        "S2",
        "each head has its W_i^O of h d_v x d_model",
        "one W^O, of all heads together",
        (7, 24),
        lambda: (_m(7, 6) @ _m(24, 24)).shape,
        lambda: (torch.cat([_m(7, 6)] * 4, -1) @ _m(24, 24)).shape,
    ),
    Shape(
        "S0",
        "max(0, W_1 z + b_1) W_2 + b_2 with z a column",
        "W_2 max(0, W_1 z + b_1) + b_2",
        (24, 1),
        lambda: ((_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() @ _m(24, 96) + _m(24, 1)).shape,
        lambda: (_m(24, 96) @ (_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() + _m(24, 1)).shape,
    ),
)


def _head_width(d_model: int, n_heads: int) -> int:
    with torch.device("meta"):
        return SelfAttention(d_model, n_heads).d_k


def shape_of(attempt: Callable[[], Sequence[int]]) -> tuple[int, ...] | None:
    """Return the shape of the result, or None if the factors do not fit."""
    try:
        return tuple(attempt())
    except (RuntimeError, ValueError):
        return None


def _shapes(size: Size, *, printed: bool) -> Outcome:
    """Compute the shapes of the formulas and compare them with the right ones."""
    found = [shape_of(each.as_printed if printed else each.corrected) for each in SHAPES]
    right = [each.wanted == shape for each, shape in zip(SHAPES, found, strict=True)]
    verdict: Verdict = "holds" if all(right) else "holds with conditions" if any(right) else "is wrong"
    return Outcome(
        verdict,
        "With words as rows, q_i is a row of Q, scores are Q K^T, head matrices are d x d/H, there is one "
        "W^O for all heads, and both matrices of a feed-forward layer are on the same side of the input. The "
        "original paper has d = 512 and 8 heads; 10 does not divide 768, and 768 with 12 heads is BERT-base.",
        [
            Measured(
                "formulas that give the shape that they should", sum(right), expected=float(len(SHAPES))
            ),
            Measured(
                "formulas whose factors do not fit", sum(shape is None for shape in found), expected=0.0
            ),
        ],
        [
            {
                "lecture": each.lecture,
                "printed": each.printed,
                "correct": each.correct,
                "wanted": _named(each.wanted),
                "comes out": _named(shape),
            }
            for each, shape in zip(SHAPES, found, strict=True)
        ],
        [
            Bars(
                "Formulas that give the right shape",
                "",
                "formulas",
                {
                    "as printed": sum(shape_of(each.as_printed) == each.wanted for each in SHAPES),
                    "corrected": sum(shape_of(each.corrected) == each.wanted for each in SHAPES),
                },
                levels={"all": float(len(SHAPES))},
            )
        ],
    )


def _named(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else " x ".join(map(str, shape))


EXPERIMENTS = [
    Experiment(
        "printed-shapes",
        "Formulas whose shapes do not fit",
        "The formulas of heads, queries and feed-forwards can be computed as they are printed.",
        "S0, S1, S2 and S4; Vaswani et al. 2017, sections 3.2 and 3.3",
        (22, 24, 32),
        run=partial(_shapes, printed=True),
        control=partial(_shapes, printed=False),
        changed="The formulas are corrected.",
        expected=("is wrong", "holds"),
    ),
]
