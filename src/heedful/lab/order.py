"""Word order: the effect of shuffled tokens on the output of attention."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from heedful.lab.drawing import Bars, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, LearnedPositions, NoPositions, Positions, SinusoidalPositions
from heedful.nn.residual import PostNorm

D, N_HEADS = 32, 4
BLIND = 1e-5
"""A relative change below this is rounding in fp32."""


def _relative(changed: Tensor, by: Tensor) -> float:
    return ((changed - by).norm() / by.norm()).item()


@seeded()
@torch.no_grad()
def _invariance(size: Size, shuffled: Literal["all", "keys and values"]) -> Outcome:
    """Test whether attention gives the same output if all tokens, or only keys and values, are shuffled."""
    n = {"short": 12, "long": 48}[size]
    part, layout = CrossAttention(D, N_HEADS), Layout.of([n])
    x, order = torch.randn(n, D), torch.randperm(n)
    before = part(x, layout, part.remember(x, layout))
    queries = x[order] if shuffled == "all" else x
    after = part(queries, layout, part.remember(x[order], layout))
    same, moved = _relative(after, before), _relative(after, before[order])
    invariant = same < BLIND
    return Outcome(
        "holds" if invariant else "is wrong",
        (
            "Keys and values may be in any order, if it is the same for both: a weighted sum does not depend "
            "on the order of its terms."
            if invariant
            else "It is equivariant: if all tokens are shuffled, the outputs are shuffled in the same way. "
            "It is invariant only to the order of keys and values (shuffled together) with unchanged queries."
        ),
        [
            Measured("change of the output, place by place", same, expected=0.0 if invariant else None),
            Measured("change of the output, token by token", moved, expected=None if invariant else 0.0),
        ],
        panels=[
            Matrix(title, "feature", "position", output.tolist(), square=False, inches=(5.0, 3.4))
            for title, output in (("Output", before), ("Output for the shuffled input", after))
        ],
    )


Reader = Callable[[Tensor, Layout], Tensor]


def _reader(positions: Positions | None = None, **attention: Any) -> Reader:
    """Build an encoder block that processes tokens after adding positions."""
    mixer = PostNorm(SelfAttention(D, N_HEADS, **attention), LayerNorm(D))
    block = EncoderBlock(mixer, PostNorm(FeedForward(D, 2 * D), LayerNorm(D)))
    added: nn.Module | None = None if positions is None else Added(positions)
    return lambda x, layout: block(x if added is None else added(x, layout.positions), layout)


def _readers(n: int) -> dict[str, Reader]:
    """Build blocks with different sources of order information, by name."""
    return {
        "nothing": _reader(NoPositions(D)),
        "sinusoids, added": _reader(SinusoidalPositions(D)),
        "a learned table, added": _reader(LearnedPositions(n, D)),
        "rotated queries and keys": _reader(rotary=Rotary(D // N_HEADS)),
        "a bias for the distance": _reader(score_bias=Alibi(N_HEADS)),
        "a causal mask alone": _reader(causal=True),
    }


@seeded()
@torch.no_grad()
def _blindness(size: Size, judged: str) -> Outcome:
    """Test whether shuffled tokens give the same outputs, shuffled."""
    n = {"short": 12, "long": 48}[size]
    x, order, layout = torch.randn(n, D), torch.randperm(n), Layout.of([n])
    changes = {
        name: _relative(read(x[order], layout), read(x, layout)[order]) for name, read in _readers(n).items()
    }
    blind = changes[judged] < BLIND
    return Outcome(
        "holds" if blind else "is wrong",
        (
            "Without positions, an encoder block gives each token the same output in any order of the "
            "others: the model processes a bag of tokens. A causal mask alone already gives it some order "
            "information."
            if blind
            else "With positions, the output for a token depends on its position."
        ),
        [Measured(f"change of a token's output, {judged} tells the order", changes[judged])],
        [{"what tells the order": name, "change when shuffled": value} for name, value in changes.items()],
        [
            Bars(
                "Change of a token's output when the tokens are shuffled",
                "",
                "relative change (1e-7 is rounding)",
                {name: max(value, 1e-8) for name, value in changes.items()},
                log=True,
                inches=(7.0, 3.0),
            )
        ],
    )


EXPERIMENTS = [
    Experiment(
        name="permutation-invariant",
        title="Equivariant, not invariant",
        claim="The output from self-attention is permutation-invariant.",
        source="S0, positional encoding; S4, section 6.1, is correct: if X_k and X_v change their order "
        "together",
        items=(30,),
        run=partial(_invariance, shuffled="all"),
        control=partial(_invariance, shuffled="keys and values"),
        changed="Keys and values are shuffled together; the queries are not.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        name="order-blindness",
        title="Without positions a block is blind to order",
        claim="Transformers work the same regardless of the order of the input: no order information is "
        "there until positions are encoded.",
        source="S1, encoding position information; S3, self-attention: order information?",
        items=(30,),
        run=partial(_blindness, judged="nothing"),
        control=partial(_blindness, judged="sinusoids, added"),
        changed="Sinusoids are added to the tokens.",
    ),
]
