"""Effects of norms on tokens: the remaining mean, batches of one, batch statistics.

Items 37 (layer norm), 38 (batch norm) and 39 (power norm) of the lectures.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Points, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import generator_from
from heedful.nn.declarations import claims
from heedful.nn.layout import Layout
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm

D = 61
ENOUGH = 1e-3
"""Smallest difference that counts: a hundred times the rounding error of numbers of size 1 in fp32."""

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


def _mean_is(claimed: float, size: Size) -> Outcome:
    """Compare the means and standard deviations of normalised tokens with a claim."""
    x = _tokens(20 if size == "short" else 200)
    with torch.no_grad():
        y = LayerNorm(D)(x)
        equal = torch.full((1, D), 3.0)
        without_epsilon = ((equal - equal.mean()) / equal.std(correction=0)).isnan().any().item()
        with_epsilon = LayerNorm(D)(equal).abs().max().item()
    means, deviations = y.mean(-1), y.std(-1, correction=0)
    right = (means - claimed).abs().max() < ENOUGH and (deviations - 1).abs().max() < ENOUGH
    numbers = list(range(1, len(x) + 1))
    return Outcome(
        "holds" if right else "is wrong",
        "The mean of a token's features becomes 0 and their standard deviation 1, before the gain γ and the "
        "bias β, which have one value per feature; an ε under the root keeps a token with equal features "
        "finite.",
        [
            Measured("mean of a normalised token", means.mean().item(), expected=claimed),
            Measured("its standard deviation", deviations.mean().item(), expected=1.0),
            Measured("numbers of the gain γ", LayerNorm(D).weight.numel(), expected=D),
        ],
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


def _alone(judged: str, size: Size) -> Outcome:
    """Test whether a token has the same result alone and among others, and whether a gradient reaches it."""
    sizes = [2**i for i in range(8 if size == "short" else 11)]
    x = _tokens(4096)
    norms = {"layer norm": _layer_norm, "batch norm": _batch_norm}
    changes = {name: [_error(each, x, m, trials=32) for m in sizes] for name, each in norms.items()}
    errors = dict(zip(sizes, changes[judged], strict=True))
    make, one = norms[judged], x[:1].clone().requires_grad_()
    weights = torch.randn(1, D, generator=generator_from(5))
    (gradient,) = torch.autograd.grad((make().train()(one) * weights).sum(), one)
    works = errors[1] < ENOUGH and gradient.norm() > ENOUGH
    return Outcome(
        "holds" if works else "is wrong",
        "Layer normalisation uses only one token: the result is the same alone or among any others. With a "
        "norm over the batch, the result for a token depends on its batch, the more so the smaller the "
        "batch.",
        [
            Measured("change of a token that stands alone, against one among 4096", errors[1]),
            Measured("gradient that reaches a token that stands alone", gradient.norm().item()),
            Measured("change among 16 tokens", errors[16]),
        ],
        [{"tokens in the batch": m, "change of a token": error} for m, error in errors.items()],
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


def _erased(*, training: bool, size: Size) -> Outcome:
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
    verdict: Verdict = "is wrong"
    if largest == 0 and reaches == 0:
        verdict = "holds with conditions" if sentence > ENOUGH else "holds"
    return Outcome(
        verdict,
        "In training, a single token has μ = x and σ = 0: x̂ = 0 for every token, and no gradient reaches it. "
        "But m counts tokens: a single sentence of n tokens is a batch of n. In evaluation, the running "
        "statistics are used, and a single token passes through.",
        [
            Measured("largest |x̂| of a single token", largest, expected=0.0),
            Measured("gradient that reaches it", reaches, expected=0.0),
            Measured("largest |x̂| of a single sentence of 16 tokens", sentence),
        ],
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


def _coupled(make: MakeNorm, size: Size) -> Outcome:
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
    depends = change.max().item() > ENOUGH and reaches > 0
    declared = claims(norm, "couples_batch")
    return Outcome(
        "holds" if depends else "is wrong",
        "With statistics over the batch, a token depends on the other sequences of its batch, and they "
        "receive a gradient from it. Such a norm declares this (couples_batch). The invariants that single "
        "and batched sequences, or early and late tokens, are independent then hold only in evaluation.",
        [
            Measured("change of one sequence's tokens when another sequence changes", change.max().item()),
            Measured("gradient of one sequence's results by another's tokens", reaches),
            Measured("declared: couples_batch", float(declared), expected=float(depends)),
        ],
        panels=[
            Curves(
                "Change of the first sequence by all others",
                "token",
                "largest change of its features",
                {"change": (range(1, first.stop + 1), change.amax(-1).tolist())},
            )
        ],
    )


def _padding(lengths: Sequence[int], size: Size) -> Outcome:
    """Compare statistics over the padded rectangle with those over the tokens."""
    layout = Layout.of([n * (1 if size == "short" else 10) for n in lengths])
    x = _tokens(layout.n_tokens)
    rectangle = layout.pad(x).flatten(0, 1)
    share = layout.n_tokens / len(rectangle)
    counted, change = _counting_pads(layout, x)
    mean, variance = x.mean(0), x.var(0, correction=0)
    predicted = share * variance + share * (1 - share) * mean.square()
    return Outcome(
        "holds" if change > ENOUGH else "is wrong",
        "If sentences differ in length, padding counted as tokens pulls the mean towards 0 and changes the "
        "variance: with a share p of real tokens, to p μ and p σ² + p (1 - p) μ². In heedful there is no "
        "padding between blocks, so norms never count it.",
        [
            Measured("change of the tokens' results when pads are counted", change),
            Measured(
                "mean over the rectangle, as a share of the tokens' mean",
                (rectangle.mean(0) / mean).mean().item(),
                expected=share,
            ),
            Measured(
                "variance over the rectangle",
                rectangle.var(0, correction=0).mean().item(),
                expected=predicted.mean().item(),
            ),
            Measured("share of real tokens", share),
        ],
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


def _running(make: MakeNorm, name: str, size: Size) -> Outcome:
    """Test whether results keep their mean, and whether the statistics of the batch still enter."""
    norm, batches = make().train(), 100 if size == "short" else 1000
    own, kept, warm = [], [], 0.0
    with torch.no_grad():
        for number in range(batches):
            if number == WARMUP // 2:
                warm = _change_by_others(norm)
            batch = _tokens(16, seed=number)
            own.append(batch.square().mean(0)[0].item())
            norm(batch)
            running = getattr(norm, "running_quadratic_mean", None)
            kept.append(float("nan") if running is None else running[0].item())
        after = _change_by_others(norm)
        x = _tokens(1024, seed=10**6)
        mean = norm(x).mean(0)
    expected = x.mean(0) / x.square().mean(0).sqrt()
    keeps_mean = mean.abs().mean() > 0.5 * expected.abs().mean()
    verdict: Verdict = "is wrong"
    if keeps_mean and after == 0:
        verdict = "holds with conditions" if warm > ENOUGH else "holds"
    numbers = list(range(1, batches + 1))
    return Outcome(
        verdict,
        "Power normalisation subtracts no mean and divides by a running quadratic mean. So after its "
        "warm-up, the current batch does not affect its results; during the warm-up it does. After the "
        "warm-up, the gradient is approximate: it uses a running correction in place of the batch's.",
        [
            Measured("change of a token by its company, after the warm-up", after, expected=0.0),
            Measured("the same during the warm-up", warm),
            Measured(
                "size of the features' means, after the norm",
                mean.abs().mean().item(),
                expected=expected.abs().mean().item(),
            ),
        ],
        panels=[
            Curves(
                f"Quadratic mean of one feature ({name})",
                "batch of 16 tokens",
                "mean of squares",
                {"of each batch": (numbers, own), "running": (numbers, kept)},
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


_BA = "Ba et al. 2016, section 3"
_IOFFE = "Ioffe and Szegedy 2015, algorithm 1"

EXPERIMENTS = [
    Experiment(
        "layer-norm-mean",
        "Mean after layer normalisation",
        "Layer normalisation brings the features of a token to unit mean and unit standard deviation.",
        f"S3, layer normalisation (its formula, some lines below, gives a mean of zero); {_BA}",
        (37,),
        run=lambda size: _mean_is(1.0, size),
        control=lambda size: _mean_is(0.0, size),
        changed="The claimed mean is 0.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "layer-norm-batch-of-one",
        "Layer normalisation does not depend on the batch",
        "Layer normalisation is independent of the number of samples, and so works with a batch of one.",
        f"S0, layer normalisation; S1; {_BA}",
        (37, 38),
        run=lambda size: _alone("layer norm", size),
        control=lambda size: _alone("batch norm", size),
        changed="Batch normalisation is used instead.",
    ),
    Experiment(
        "batch-norm-batch-of-one",
        "Batch normalisation of a single token",
        "Batch normalisation cannot be used with a batch of one: then μ = x and σ = 0.",
        f"S0, batch normalisation; {_IOFFE}",
        (38,),
        run=lambda size: _erased(training=True, size=size),
        control=lambda size: _erased(training=False, size=size),
        changed="The norm is in evaluation mode, with running statistics.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        "batch-norm-couples",
        "Batch statistics couple the sequences of a batch",
        "Statistics over the m samples of a batch make each of them depend on the others.",
        f"S0, batch normalisation; {_IOFFE}",
        (38,),
        run=lambda size: _coupled(lambda: BatchNorm(D), size),
        control=lambda size: _coupled(lambda: LayerNorm(D), size),
        changed="Layer normalisation is used instead.",
    ),
    Experiment(
        "batch-norm-padding",
        "Batch statistics must not count padding",
        "Padded tokens must be excluded from a norm over the batch, as from attention.",
        "S0, padding mask (for attention only); Shen et al. 2020 (released code)",
        (38, 43),
        run=lambda size: _padding([20, 5, 8, 11], size),
        control=lambda size: _padding([20, 20, 20, 20], size),
        changed="All sentences have the same length, so there is no padding.",
    ),
    Experiment(
        "power-norm",
        "Power normalisation preserves the mean and is independent of the batch",
        "Power normalisation changes batch normalisation so that it suits texts: no mean is subtracted, and "
        "a running quadratic mean takes the place of the batch's variance.",
        "S0, batch normalisation; Shen et al. 2020, section 4 and algorithm 2",
        (39,),
        run=lambda size: _running(lambda: PowerNorm(D, warmup=WARMUP), "power norm", size),
        control=lambda size: _running(lambda: BatchNorm(D), "batch norm", size),
        changed="Batch normalisation is used instead.",
        expected=("holds with conditions", "is wrong"),
    ),
]
