"""Depth: what stacked layers of attention compute, with and without the other parts of a block."""

from collections.abc import Callable, Sequence
from itertools import chain, combinations, pairwise

import torch
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Matrix, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import plain_stack, relative_difference
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PreNorm, Residual
from heedful.nn.taps import recording

D, N = 24, 10


class _Layers:
    """One-head attention layers, optionally each with a feed-forward network; no residual, no norm."""

    def __init__(self, n_layers: int, feed_forward: bool) -> None:
        self.attentions = [SelfAttention(D, 1).double() for _ in range(n_layers)]
        build: Callable[[], nn.Module] = (lambda: FeedForward(D, 4 * D)) if feed_forward else nn.Identity
        self.networks = [build().double() for _ in range(n_layers)]

    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the output, and the weights ``[n, n]`` of each layer."""
        layout, weights = Layout.of([len(x)]), []
        for attention, network in zip(self.attentions, self.networks, strict=True):
            with recording(attention, ["weights"]) as activations:
                x = network(attention(x, layout))
            weights.append(activations["weights"][0][0, 0])
        return x, weights

    def with_weights(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return the output for given attention weights."""
        for attention, network, alpha in zip(self.attentions, self.networks, weights, strict=True):
            x = network(attention.out(alpha @ x @ attention.v_heads[0]))
        return x

    def product(self) -> Tensor:
        """Return W_V W_O of the first layer, times that of the second, and so on."""
        matrix = torch.eye(D, dtype=torch.float64)
        for attention in self.attentions:
            matrix = matrix @ attention.v_heads[0] @ attention.out.weight.mT
        return matrix


@measures("attention-is-linear", feed_forward=(False, True))
@seeded()
@torch.no_grad()
def measure_linearity(size: Size, feed_forward: bool) -> Series:
    """Measure whether a stack with given attention weights is linear in its tokens."""
    n_layers = {"short": 4, "long": 8}[size]
    layers = _Layers(n_layers, feed_forward)
    a, b = torch.randn(2, N, D, dtype=torch.float64)
    output, weights = layers(a)
    averaging = torch.linalg.multi_dot([*reversed(weights)])
    as_product = relative_difference(averaging @ a @ layers.product(), output)
    of_a, of_b, of_sum = (layers.with_weights(x, weights) for x in (a, b, a + b))
    error_given_weights = relative_difference(of_a + of_b, of_sum)
    error_computed_weights = relative_difference(layers(a)[0] + layers(b)[0], layers(a + b)[0])
    exact = None if feed_forward else 0.0
    return Series(
        {
            "apart": Measured(
                "superposition, weights given: relative error", error_given_weights, expected=exact
            ),
            "product": Measured("the product of all matrices: relative error", as_product, expected=exact),
            "whole": Measured("superposition, weights computed: relative error", error_computed_weights),
            "sum": Measured("sum of a row of A_L … A_1", averaging.sum(-1).mean().item(), expected=1.0),
        },
        panels=[
            Matrix(title, "key", "query", matrix.tolist(), inches=(4.0, 3.4))
            for title, matrix in (
                ("First layer's weights", weights[0]),
                ("Last layer's weights", weights[-1]),
                ("Their product, all layers", averaging),
            )
        ],
    )


def _averaging_attention() -> SelfAttention:
    """Build attention with random queries and keys, whose values are the tokens themselves."""
    part = SelfAttention(D, 1)
    with torch.no_grad():
        part.v_heads[0].copy_(torch.eye(D))
        part.out.weight.copy_(torch.eye(D))
    return part


@measures("re-averaging", complete=(False, True))
@seeded()
@torch.no_grad()
def measure_distances_by_layer(size: Size, complete: bool) -> Series:
    """Measure the distances between tokens after each layer."""
    n_layers = {"short": 6, "long": 12}[size]
    x, layout = torch.randn(N, D), Layout.of([N])
    diameters = [torch.pdist(x).max().item()]
    for _ in range(n_layers):
        layer: nn.Module = _averaging_attention()
        if complete:
            feed_forward = PreNorm(FeedForward(D, 4 * D), LayerNorm(D))
            layer = EncoderBlock(PreNorm(layer, LayerNorm(D)), feed_forward)
        x = layer(x, layout)
        diameters.append(torch.pdist(x).max().item())
    shrinkage = diameters[-1] / diameters[0]
    shrinks = all(b <= a * (1 + 1e-6) + 1e-6 for a, b in pairwise(diameters))
    layers = range(n_layers + 1)
    curves = curves_over(layers, {"": diameters})
    return Series(
        {
            "left": Measured(f"greatest distance of two tokens after {n_layers} layers, relative", shrinkage),
            "start": Measured("greatest distance at the start", diameters[0]),
            "shrinks": shrinks,
        },
        table_of({"layer": layers, "greatest distance": diameters}),
        [Curves("Greatest distance of two tokens", "layer", "distance", curves, log="y")],
    )


PATHS = ("past both", "attention", "feed-forward", "attention, feed-forward")


@measures("residual-paths", residual=(True, False))
@seeded()
def find_paths_of_gradient(size: Size, residual: bool) -> Series:
    """Find which products of the parts' Jacobians sum to the Jacobian of the block."""
    n, d = {"short": (3, 4), "long": (5, 6)}[size]
    layout = Layout.of([n])
    attention, feed_forward = SelfAttention(d, 1).double(), FeedForward(d, 2 * d).double()
    x = torch.randn(n, d, dtype=torch.float64)
    mixed = attention(x, layout).detach()
    if residual:
        block = EncoderBlock(PreNorm(attention, nn.Identity()), PreNorm(feed_forward, nn.Identity()))
        jacobian, middle = _jacobian(lambda y: block(y, layout), x), x + mixed
    else:
        jacobian, middle = _jacobian(lambda y: feed_forward(attention(y, layout)), x), mixed
    of_attention = _jacobian(lambda y: attention(y, layout), x)
    of_feed_forward = _jacobian(feed_forward, middle)
    identity = torch.eye(n * d, dtype=torch.float64)
    terms = [identity, of_attention, of_feed_forward, of_feed_forward @ of_attention]
    needed, error = _smallest_sum(jacobian, terms), relative_difference(sum(terms, torch.zeros(())), jacobian)
    limit = max(matrix.abs().max().item() for matrix in (*terms, jacobian))
    return Series(
        {
            "paths": Measured("paths of which the gradient is the sum", float(len(needed)), expected=4.0),
            "error": Measured("the sum of all four: relative error", error),
        },
        table_of(
            {
                "path": PATHS,
                "norm of its Jacobian": [term.norm().item() for term in terms],
                "part of the sum": ["yes" if i in needed else "no" for i in range(len(PATHS))],
            }
        ),
        [
            Matrix(title, "input", "output", matrix.tolist(), (-limit, limit), inches=(3.2, 3.0))
            for title, matrix in zip((*PATHS, "the block"), (*terms, jacobian), strict=True)
        ],
    )


def _jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute the Jacobian ``[n d, n d]`` at ``x [n, d]``."""
    rows: Tensor = torch.autograd.functional.jacobian(function, x)
    return rows.reshape(x.numel(), x.numel())


def _smallest_sum(total: Tensor, terms: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the smallest set of terms whose sum is ``total``, or an empty set if there is none."""
    indices = range(len(terms))
    for subset in chain.from_iterable(combinations(indices, r) for r in range(1, len(terms) + 1)):
        if relative_difference(torch.stack([terms[i] for i in subset]).sum(0), total) < 1e-9:
            return subset
    return ()


# Gradients in the first layer


class _Bare(nn.Module):
    """A part and its norm in the order of a residual connection, but without the connection."""

    def __init__(self, residual: Residual) -> None:
        super().__init__()
        self.part, self.norm = residual.part, residual.norm

    def forward(self, x: Tensor, *context: object) -> Tensor:
        return self.norm(self.part(x, *context))


def gradient_of_first_layer(n_layers: int, seed: int, *, residual: bool, norms: bool) -> float:
    """Return the norm of the gradient of W_2 in the first of ``n_layers`` feed-forward networks.

    The stack is untrained, and the loss is a random projection of the post-norm stack's output.
    """
    with seeded(seed):
        stack = plain_stack(D, n_layers, causal=False).double()
        x, weights = torch.randn(2, N, D, dtype=torch.float64)
    matrix = stack.get_parameter("blocks.0.feed_forward.part.down.weight")
    for block in stack.block_list:
        for name in ("mixer", "feed_forward"):
            residual_layer = getattr(block, name)
            if not norms:
                residual_layer.norm = nn.Identity()
            if not residual:
                setattr(block, name, _Bare(residual_layer))
    (stack(x, Layout.of([N])) * weights).sum().backward()
    assert matrix.grad is not None
    return matrix.grad.norm().item()


@cache
def _mean_gradients(size: Size, residual: bool, norms: bool) -> dict[int, float]:
    """Return means over seeds, by number of layers."""
    depths, seeds = ((2, 4, 8, 16), 4) if size == "short" else ((2, 4, 8, 16, 32), 16)
    return {
        n: sum(gradient_of_first_layer(n, seed, residual=residual, norms=norms) for seed in range(seeds))
        / seeds
        for n in depths
    }


@measures("residual-gradients", residual=(True, False))
def measure_gradient_of_first_layer(size: Size, residual: bool) -> Series:
    """Measure how much of the gradient reaches the first layer of a deep stack."""
    gradients_by_depth = {
        f"{'residual' if r else 'no residual'}, {'norms' if n else 'no norms'}": _mean_gradients(size, r, n)
        for r in (True, False)
        for n in (True, False)
    }
    first, *_, last = depths = list(next(iter(gradients_by_depth.values())))
    ratios = {name: means[last] / means[first] for name, means in gradients_by_depth.items()}
    gradients = {name: [*means.values()] for name, means in gradients_by_depth.items()}
    with_residual, without_residual = [*ratios.values()][:2], [*ratios.values()][2:]
    curves = curves_over(depths, gradients)
    return Series(
        {
            **measured_each(f"gradient of the first of {last} layers, to that of {first}; {{}}", ratios),
            "claimed": with_residual if residual else without_residual,
            "others": without_residual if residual else with_residual,
            "residual": residual,
        },
        table_of({"layers": depths, **gradients}),
        [Curves("Gradient of W_2 in the first layer", "layers", "norm, before training", curves, log="y")],
    )
