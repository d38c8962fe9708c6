"""Effects of norms on tokens: the remaining mean, batches of one, batch statistics.

Items 37 (layer norm), 38 (batch norm) and 39 (power norm) of the lectures.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Points, over
from heedful.lab.experiment import Measured, Series, Size, measures
from heedful.lab.seeds import generator_from
from heedful.nn.declarations import claims
from heedful.nn.layout import Layout
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm

D = 61
MakeNorm = Callable[[], nn.Module]


def _tokens(n: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Draw tokens whose features have individual means from N(0, 1) and a standard deviation of 2."""
    generator = generator_from(seed)
    means = torch.randn(D, generator=generator_from(71))
    return means + 2 * torch.randn(n, D, generator=generator)


def _layer_norm() -> nn.Module:
    return LayerNorm(D)


def _batch_norm() -> nn.Module:
    return BatchNorm(D)


# The mean after a layer norm


@measures("layer-norm-mean", claimed=(1.0, 0.0))
def mean_is(size: Size, claimed: float) -> Series:
    """Compare the means and standard deviations of normalised tokens with a claim."""
    x = _tokens(20 if size == "short" else 200)
    with torch.no_grad():
        y = LayerNorm(D)(x)
        equal = torch.full((1, D), 3.0)
        without_epsilon = ((equal - equal.mean()) / equal.std(correction=0)).isnan().any().item()
        with_epsilon = LayerNorm(D)(equal).abs().max().item()
    means, deviations = y.mean(-1), y.std(-1, correction=0)
    numbers = list(range(1, len(x) + 1))
    apart = {
        "mean": (means - claimed).abs().max().item(),
        "deviation": (deviations - 1).abs().max().item(),
    }
    return Series(
        {
            "mean": Measured("mean of a normalised token", means.mean().item(), expected=claimed),
            "deviation": Measured("its standard deviation", deviations.mean().item(), expected=1.0),
            "gains": Measured("numbers of the gain γ", LayerNorm(D).weight.numel(), expected=D),
            "furthest": max(apart.values()),
        },
        [
            {"what": "mean", "S3 prints": "unit mean", "correct": "0"},
            {"what": "gain γ", "S3 prints": "in R", "correct": f"in R^d, {D} numbers here"},
            {
                "what": "a token of equal features",
                "S3 prints": "0 / 0, NaN" if without_epsilon else "finite",
                "correct": f"{with_epsilon:g}, because of ε",
            },
        ],
        [
            Curves(
                "Mean of each token's features",
                "token",
                "mean",
                {
                    "before the norm": (numbers, x.mean(-1).tolist()),
                    "after it": (numbers, means.tolist()),
                },
                levels={"claimed": claimed},
            )
        ],
    )


# A batch of one


@measures("layer-norm-batch-of-one", judged=("layer norm", "batch norm"))
def alone(size: Size, judged: str) -> Series:
    """Measure whether a token has the same result alone and among others, and its gradient."""
    sizes = [2**i for i in range(8 if size == "short" else 11)]
    x = _tokens(4096)
    norms = {"layer norm": _layer_norm, "batch norm": _batch_norm}
    changes = {name: [_error(each, x, m, trials=32) for m in sizes] for name, each in norms.items()}
    rows = [
        {"tokens in the batch": m, "change of a token": change}
        for m, change in zip(sizes, changes[judged], strict=True)
    ]
    make, one = norms[judged], x[:1].clone().requires_grad_()
    weights = torch.randn(1, D, generator=generator_from(5))
    (gradient,) = torch.autograd.grad((make().train()(one) * weights).sum(), one)
    return Series(
        {
            "alone": Measured(
                "change of a token that stands alone, against one among 4096", rows[0]["change of a token"]
            ),
            "gradient": Measured("gradient that reaches a token that stands alone", gradient.norm().item()),
            "among_16": Measured("change among 16 tokens", rows[sizes.index(16)]["change of a token"]),
        },
        rows,
        [
            Curves(
                "Change of a token caused by other tokens",
                "tokens in the batch, m",
                "change of a token (root mean square)",
                over(sizes, changes),
                log="x",
            )
        ],
    )


def _error(make: MakeNorm, x: Tensor, m: int, trials: int) -> float:
    """Return the root mean square change of a token's result between a batch of m and one of all tokens."""
    with torch.no_grad():
        among_all = make().train()(x)
        changes = [
            make().train()(x.roll(-m * t, 0)[:m])[0] - among_all[m * t % len(x)] for t in range(trials)
        ]
    return torch.stack(changes).square().mean().sqrt().item()


@measures("batch-norm-batch-of-one", training=(True, False))
def erased(size: Size, *, training: bool) -> Series:
    """Compute batch norm of a single token, after some batches."""
    norm = BatchNorm(D)
    with torch.no_grad():
        for seed in range(30 if size == "short" else 300):
            norm(_tokens(64, seed))
    norm.train(training)
    token = _tokens(1, seed=999).requires_grad_()
    y = norm(token)
    weights = torch.randn(1, D, generator=generator_from(5))
    (gradient,) = torch.autograd.grad((y * weights).sum(), token)
    with torch.no_grad():
        sentence = norm(_tokens(16, seed=998)).abs().max().item()
    largest, reaches = y.abs().max().item(), gradient.norm().item()
    return Series(
        {
            "largest": Measured("largest |x̂| of a single token", largest, expected=0.0),
            "gradient": Measured("gradient that reaches it", reaches, expected=0.0),
            "sentence": Measured("largest |x̂| of a single sentence of 16 tokens", sentence),
        },
        panels=[
            Curves(
                "A single token through batch norm",
                "feature",
                "value",
                {
                    "before": (range(D), token.detach()[0].tolist()),
                    "after": (range(D), y.detach()[0].tolist()),
                },
            )
        ],
    )


# Other sequences in the batch, and padding


@measures("batch-norm-couples", make=(_batch_norm, _layer_norm))
def coupled(size: Size, make: MakeNorm) -> Series:
    """Measure the effect of a change in one sequence on another sequence of the batch."""
    layout = Layout.of([7, 11] if size == "short" else [7, 11, 13, 17])
    first = slice(0, layout.lengths[0])
    x = _tokens(layout.n_tokens)
    other = x.clone()
    other[first.stop :] += 3.0
    norm = make().train()
    with torch.no_grad():
        change = (make().train()(x)[first] - make().train()(other)[first]).abs()
    x.requires_grad_()
    weights = torch.randn(first.stop, D, generator=generator_from(5))
    (gradient,) = torch.autograd.grad((norm(x)[first] * weights).sum(), x)
    reaches = gradient[first.stop :].norm().item()
    return Series(
        {
            "change": Measured(
                "change of one sequence's tokens when another sequence changes", change.max().item()
            ),
            "gradient": Measured("gradient of one sequence's results by another's tokens", reaches),
            "declared": Measured(
                "declared: couples_batch",
                float(claims(norm, "couples_batch")),
                expected=float(make is _batch_norm),
            ),
        },
        panels=[
            Curves(
                "Change of the first sequence by all others",
                "token",
                "largest change of its features",
                {"change": (range(1, first.stop + 1), change.amax(-1).tolist())},
            )
        ],
    )


@measures("batch-norm-padding", lengths=([20, 5, 8, 11], [20, 20, 20, 20]))
def padding(size: Size, lengths: Sequence[int]) -> Series:
    """Compare statistics over the padded rectangle with those over the tokens."""
    layout = Layout.of([n * (1 if size == "short" else 10) for n in lengths])
    x = _tokens(layout.n_tokens)
    rectangle = layout.pad(x).flatten(0, 1)
    share = layout.n_tokens / len(rectangle)
    counted, change = _counting_pads(layout, x)
    mean, variance = x.mean(0), x.var(0, correction=0)
    predicted = share * variance + share * (1 - share) * mean.square()
    return Series(
        {
            "change": Measured("change of the tokens' results when pads are counted", change),
            "mean": Measured(
                "mean over the rectangle, as a share of the tokens' mean",
                (rectangle.mean(0) / mean).mean().item(),
                expected=share,
            ),
            "variance": Measured(
                "variance over the rectangle",
                rectangle.var(0, correction=0).mean().item(),
                expected=predicted.mean().item(),
            ),
            "share": Measured("share of real tokens", share),
        },
        panels=[
            Curves(
                "Batch norm that counts padding",
                "share of real tokens",
                "change of a result (root mean square)",
                {"counted with pads": _over_shares(), "this batch": ([share], [counted])},
            )
        ],
    )


def _counting_pads(layout: Layout, x: Tensor) -> tuple[float, float]:
    """Return root mean square and maximum of the difference between results with and without padding."""
    rows = layout.pad(x)
    with torch.no_grad():
        padded = layout.unpad(BatchNorm(D)(rows.flatten(0, 1)).view(rows.shape))
        change = padded - BatchNorm(D)(x)
    return change.square().mean().sqrt().item(), change.abs().max().item()


def _over_shares() -> Points:
    """Compute the root mean square for batches of four sentences, three of which become shorter."""
    layouts = [Layout.of([20, n, n, n]) for n in range(20, 0, -1)]
    errors = [_counting_pads(layout, _tokens(layout.n_tokens))[0] for layout in layouts]
    return [layout.n_tokens / 80 for layout in layouts], errors


# Power norm

WARMUP = 20


@measures("power-norm", norm=("power norm", "batch norm"))
def running(size: Size, norm: str) -> Series:
    """Measure whether results keep their mean, and whether the statistics of the batch still enter."""
    part = PowerNorm(D, warmup=WARMUP) if norm == "power norm" else BatchNorm(D)
    batches = 100 if size == "short" else 1000
    own, kept, warm = [], [], 0.0
    with torch.no_grad():
        for number in range(batches):
            if number == WARMUP // 2:
                warm = _change_by_others(part)
            batch = _tokens(16, seed=number)
            own.append(batch.square().mean(0)[0].item())
            part(batch)
            running = getattr(part, "running_quadratic_mean", None)
            kept.append(float("nan") if running is None else running[0].item())
        after = _change_by_others(part)
        x = _tokens(1024, seed=10**6)
        mean = part(x).mean(0).abs().mean().item()
    expected = (x.mean(0) / x.square().mean(0).sqrt()).abs().mean().item()
    return Series(
        {
            "after": Measured("change of a token by its company, after the warm-up", after, expected=0.0),
            "warm": Measured("the same during the warm-up", warm),
            "mean": Measured("size of the features' means, after the norm", mean, expected=expected),
            "expected": expected,
        },
        panels=[
            Curves(
                f"Quadratic mean of one feature ({norm})",
                "batch of 16 tokens",
                "mean of squares",
                over(range(1, batches + 1), {"of each batch": own, "running": kept}),
            )
        ],
    )


def _change_by_others(norm: nn.Module) -> float:
    """Return the change of a token's result when the rest of its batch changes; the norm is restored."""
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    results = []
    for others in (_tokens(15, seed=1), 5 * _tokens(15, seed=2)):
        results.append(norm(torch.cat([_tokens(1, seed=3), others]))[0])
        norm.load_state_dict(state)
    return (results[0] - results[1]).abs().max().item()
