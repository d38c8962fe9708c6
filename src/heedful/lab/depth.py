"""Depth: what stacked layers of attention compute, with and without the other parts of a block."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, combinations, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, seeded
from heedful.models.attention_stack import self_attention_stack
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PreNorm, Residual
from heedful.nn.taps import recording

D, N = 24, 10


def _relative(value: Tensor, to: Tensor) -> float:
    return ((value - to).norm() / to.norm()).item()


class _Layers:
    """One-head attention layers, optionally each with a feed-forward network; no residual, no norm."""

    def __init__(self, n_layers: int, feed_forward: bool) -> None:
        self.attentions = [SelfAttention(D, 1).double() for _ in range(n_layers)]
        after: Callable[[], nn.Module] = (lambda: FeedForward(D, 4 * D)) if feed_forward else nn.Identity
        self.after = [after().double() for _ in range(n_layers)]

    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the output, and the weights ``[n, n]`` of each layer."""
        layout, weights = Layout.of([len(x)]), []
        for attention, after in zip(self.attentions, self.after, strict=True):
            with recording(attention, ["weights"]) as seen:
                x = after(attention(x, layout))
            weights.append(seen["weights"][0][0, 0])
        return x, weights

    def with_weights(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return the output for given attention weights."""
        for attention, after, alpha in zip(self.attentions, self.after, weights, strict=True):
            x = after(attention.out(alpha @ x @ attention.v_heads[0]))
        return x

    def product(self) -> Tensor:
        """Return W_V W_O of the first layer, times that of the second, and so on."""
        matrix = torch.eye(D, dtype=torch.float64)
        for attention in self.attentions:
            matrix = matrix @ attention.v_heads[0] @ attention.out.weight.mT
        return matrix


@seeded()
@torch.no_grad()
def _collapse(size: Size, feed_forward: bool) -> Outcome:
    """Test whether a stack with given attention weights is linear in its tokens."""
    n_layers = {"short": 4, "long": 8}[size]
    layers = _Layers(n_layers, feed_forward)
    a, b = torch.randn(2, N, D, dtype=torch.float64)
    output, weights = layers(a)
    averaging = torch.linalg.multi_dot([*reversed(weights)])
    as_product = _relative(averaging @ a @ layers.product(), output)
    apart = _relative(
        layers.with_weights(a, weights) + layers.with_weights(b, weights),
        layers.with_weights(a + b, weights),
    )
    whole = _relative(layers(a)[0] + layers(b)[0], layers(a + b)[0])
    linear = apart < 1e-9
    return Outcome(
        "holds with conditions" if linear else "is wrong",
        (
            "With given attention weights, the stack is one averaging matrix A_L … A_1 (its rows sum to 1) "
            "and one matrix W_1 … W_L. The weights themselves depend on the tokens through a softmax, so the "
            "whole stack is not linear: only the values pass through it linearly."
            if linear
            else "With a feed-forward network and its ReLU between them, the layers are not one matrix, even "
            "with given attention weights."
        ),
        [
            Measured("superposition, weights given: relative error", apart, expected=0.0 if linear else None),
            Measured(
                "the product of all matrices: relative error", as_product, expected=0.0 if linear else None
            ),
            Measured("superposition, weights computed: relative error", whole),
            Measured("sum of a row of A_L … A_1", averaging.sum(-1).mean().item(), expected=1.0),
        ],
        panels=[
            Matrix(title, "key", "query", each.tolist(), inches=(4.0, 3.4))
            for title, each in (
                ("First layer's weights", weights[0]),
                ("Last layer's weights", weights[-1]),
                ("Their product, all layers", averaging),
            )
        ],
    )


def _averager() -> SelfAttention:
    """Build attention with random queries and keys, whose values are the tokens themselves."""
    part = SelfAttention(D, 1)
    with torch.no_grad():
        part.v_heads[0].copy_(torch.eye(D))
        part.out.weight.copy_(torch.eye(D))
    return part


@seeded()
@torch.no_grad()
def _spread(size: Size, complete: bool) -> Outcome:
    """Measure the distances between tokens after each layer."""
    n_layers = {"short": 6, "long": 12}[size]
    x, layout = torch.randn(N, D), Layout.of([N])
    diameters = [torch.pdist(x).max().item()]
    for _ in range(n_layers):
        layer: nn.Module = _averager()
        if complete:
            after = PreNorm(FeedForward(D, 4 * D), LayerNorm(D))
            layer = EncoderBlock(PreNorm(layer, LayerNorm(D)), after)
        x = layer(x, layout)
        diameters.append(torch.pdist(x).max().item())
    left = diameters[-1] / diameters[0]
    shrinks = all(b <= a * (1 + 1e-6) + 1e-6 for a, b in pairwise(diameters))
    holds = shrinks and left < 0.01
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "Every output is a weighted mean of the values, so it lies between them. The tokens become more "
            "similar with every layer, until all are equal."
            if holds
            else "Residual connections pass on each token unchanged, and feed-forward networks add something "
            "different to each: tokens stay distinct, whatever the attention adds to all of them."
        ),
        [
            Measured(f"greatest distance of two tokens after {n_layers} layers, relative", left),
            Measured("greatest distance at the start", diameters[0]),
        ],
        [{"layer": layer, "greatest distance": value} for layer, value in enumerate(diameters)],
        [
            Curves(
                "Greatest distance of two tokens",
                "layer",
                "distance",
                {"": (range(len(diameters)), diameters)},
                log="y",
            )
        ],
    )


PATHS = ("past both", "attention", "feed-forward", "attention, feed-forward")


@seeded()
def _paths(size: Size, residual: bool) -> Outcome:
    """Find which products of the parts' Jacobians sum to the Jacobian of the block."""
    n, d = {"short": (3, 4), "long": (5, 6)}[size]
    layout = Layout.of([n])
    attention, feed_forward = SelfAttention(d, 1).double(), FeedForward(d, 2 * d).double()
    x = torch.randn(n, d, dtype=torch.float64)
    mixed = attention(x, layout).detach()
    if residual:
        block = EncoderBlock(PreNorm(attention, nn.Identity()), PreNorm(feed_forward, nn.Identity()))
        whole, middle = _jacobian(lambda y: block(y, layout), x), x + mixed
    else:
        whole, middle = _jacobian(lambda y: feed_forward(attention(y, layout)), x), mixed
    of_attention = _jacobian(lambda y: attention(y, layout), x)
    of_feed_forward = _jacobian(feed_forward, middle)
    one = torch.eye(n * d, dtype=torch.float64)
    terms = [one, of_attention, of_feed_forward, of_feed_forward @ of_attention]
    needed = _fewest(whole, terms)
    holds = len(needed) == 4
    most = max(each.abs().max().item() for each in (*terms, whole))
    return Outcome(
        "holds with conditions" if holds else "is wrong",
        (
            "The Jacobian of the block is (1 + J_F)(1 + J_A) = 1 + J_A + J_F + J_F J_A: 2² paths for the "
            "gradient, 2^(2N) through N layers, one of which bypasses all parts. In the forward direction "
            "there are four routes, but the output is not a sum of four terms, since F is not linear. (Norms "
            "add factors to the paths and do not change their number.)"
            if holds
            else "Without residual connections there is one path: through attention, then feed-forward."
        ),
        [
            Measured("paths of which the gradient is the sum", float(len(needed)), expected=4.0),
            Measured("the sum of all four: relative error", _relative(sum(terms, torch.zeros(())), whole)),
        ],
        [
            {
                "path": name,
                "norm of its Jacobian": term.norm().item(),
                "part of the sum": "yes" if i in needed else "no",
            }
            for i, (name, term) in enumerate(zip(PATHS, terms, strict=True))
        ],
        [
            Matrix(title, "input", "output", each.tolist(), (-most, most), inches=(3.2, 3.0))
            for title, each in zip((*PATHS, "the block"), (*terms, whole), strict=True)
        ],
    )


def _jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute the Jacobian ``[n d, n d]`` at ``x [n, d]``."""
    rows: Tensor = torch.autograd.functional.jacobian(function, x)
    return rows.reshape(x.numel(), x.numel())


def _fewest(whole: Tensor, terms: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the smallest set of terms whose sum is ``whole``, or an empty set if there is none."""
    numbers = range(len(terms))
    for chosen in chain.from_iterable(combinations(numbers, r) for r in range(1, len(terms) + 1)):
        if _relative(torch.stack([terms[i] for i in chosen]).sum(0), whole) < 1e-9:
            return chosen
    return ()


# Gradients in the first layer


class _Bare(nn.Module):
    """A part and its norm in the order of a residual connection, but without the connection."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.part, self.norm = residual.part, residual.norm

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        result: Tensor = self.norm(self.part(x, *context))
        return result


def first_gradient(n_layers: int, seed: int, *, residual: bool, norms: bool) -> float:
    """Return the norm of the gradient of W_2 in the first of ``n_layers`` feed-forward networks.

    The stack is untrained, and the loss is a random projection of the post-norm stack's output.
    """
    config = TransformerConfig(d_model=D, d_ff=4 * D, n_heads=4, n_layers=n_layers, dropout=0.0)
    with seeded(seed):
        stack = self_attention_stack(config, config.d_ff, causal=False).double()
        x, weights = torch.randn(2, N, D, dtype=torch.float64)
    blocks: Any = stack.blocks
    matrix = blocks[0].feed_forward.part.down.weight
    for block in blocks:
        for name in ("mixer", "feed_forward"):
            around = getattr(block, name)
            if not norms:
                around.norm = nn.Identity()
            if not residual:
                setattr(block, name, _Bare(around))
    (stack(x, Layout.of([N])) * weights).sum().backward()
    gradient: Tensor = matrix.grad
    return gradient.norm().item()


REACHES = 0.01
"""Smallest share of a shallow stack's gradient that counts as reaching the first layer of a deep one."""


@cache
def _first_gradients(size: Size, residual: bool, norms: bool) -> dict[int, float]:
    """Return means over seeds, by number of layers."""
    depths, seeds = ((2, 4, 8, 16), 4) if size == "short" else ((2, 4, 8, 16, 32), 16)
    return {
        n: sum(first_gradient(n, seed, residual=residual, norms=norms) for seed in range(seeds)) / seeds
        for n in depths
    }


def _reach(size: Size, residual: bool) -> Outcome:
    """Measure how much of the gradient reaches the first layer of a deep stack."""
    kinds = {
        f"{'residual' if r else 'no residual'}, {'norms' if n else 'no norms'}": (r, n)
        for r in (True, False)
        for n in (True, False)
    }
    found = {name: _first_gradients(size, *kind) for name, kind in kinds.items()}
    depths = list(next(iter(found.values())))
    kept = {name: own[depths[-1]] / own[depths[0]] for name, own in found.items()}
    reaches = {kinds[name]: share > REACHES for name, share in kept.items()}
    verdict: Verdict = "is wrong"
    if reaches[residual, True] and reaches[residual, False]:
        alone = not reaches[not residual, True] and not reaches[not residual, False]
        verdict = "holds" if alone else "holds with conditions"
    return Outcome(
        verdict,
        (
            "Without norms, the first layer of a deep stack has almost no gradient if there are no residual "
            "connections; with them it has more than enough: the gradient grows with depth. Norms alone, "
            "which rescale each layer's output, also let gradients of normal size reach the first layer. So "
            "at the start of training, residual connections are not needed for that."
            if residual
            else "Without residual connections and without norms, the gradient at the first layer shrinks "
            "with every layer."
        ),
        [
            Measured(f"gradient of the first of {depths[-1]} layers, to that of {depths[0]}; {name}", share)
            for name, share in kept.items()
        ],
        [{"layers": n, **{name: own[n] for name, own in found.items()}} for n in depths],
        [
            Curves(
                "Gradient of W_2 in the first layer",
                "layers",
                "norm, before training",
                {name: (depths, list(own.values())) for name, own in found.items()},
                log="y",
            )
        ],
    )


EXPERIMENTS = [
    Experiment(
        name="attention-is-linear",
        title="Stacked attention without a non-linearity is one matrix",
        claim="There are no element-wise non-linearities in self-attention; if we remove the activation "
        "functions, a network of many layers is exactly equivalent to one of a single linear layer.",
        source="S3, self-attention and weighted averages, and quiz 3.3; S1, dense feed forward layer",
        items=(31,),
        run=partial(_collapse, feed_forward=False),
        control=partial(_collapse, feed_forward=True),
        changed="A feed-forward network with a ReLU follows every attention.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        name="re-averaging",
        title="Stacked attention makes tokens more similar",
        claim="Stacking more self-attention layers just re-averages value vectors.",
        source="S3, self-attention and weighted averages; Dong et al. 2021",
        items=(31,),
        run=partial(_spread, complete=False),
        control=partial(_spread, complete=True),
        changed="The layers are pre-norm blocks: residual connections, norms, feed-forward networks.",
    ),
    Experiment(
        name="residual-paths",
        title="Two residual connections make four paths",
        claim="The residual connections create four separate paths through the encoder layer in the forward "
        "direction.",
        source="S1, residual connection + layer normalization",
        items=(36,),
        run=partial(_paths, residual=True),
        control=partial(_paths, residual=False),
        changed="There are no residual connections.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        name="residual-gradients",
        title="Gradient at the first layer of a deep stack",
        claim="Residual connections ensure the gradient flow across the network.",
        source="S0, residual connections; S1, residual connection + layer normalization; He et al. 2016",
        items=(36,),
        run=partial(_reach, residual=True),
        control=partial(_reach, residual=False),
        changed="The same is claimed for a stack without residual connections.",
        expected=("holds with conditions", "is wrong"),
    ),
]
