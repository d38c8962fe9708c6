"""Effects of norms on tokens: the remaining mean, batches of one, batch statistics.

Items 37 (layer norm), 38 (batch norm) and 39 (power norm) of the lectures.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.lab.drawing import Curves, Points, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measures, table_of
from heedful.lab.seeds import generator_from
from heedful.lab.tiny import largest_difference
from heedful.nn.declarations import claims
from heedful.nn.layout import Layout
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm

D = 61
WARMUP = 20
"""Updates after which power norm uses running statistics only."""
MakeNorm = Callable[[], nn.Module]
NORMS: dict[str, MakeNorm] = {
    "layer norm": lambda: LayerNorm(D),
    "batch norm": lambda: BatchNorm(D),
    "power norm": lambda: PowerNorm(D, warmup=WARMUP),
}


def _draw_tokens(n: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Draw tokens whose features have individual means from N(0, 1) and a standard deviation of 2."""
    generator = generator_from(seed)
    means = torch.randn(D, generator=generator_from(71))
    return means + 2 * torch.randn(n, D, generator=generator)


def _gradient(results: Float[Tensor, "n d"], tokens: Tensor) -> Tensor:
    """Return the gradient of the results, multiplied by random weights, with respect to tokens."""
    weights = torch.randn(len(results), D, generator=generator_from(5))
    return torch.autograd.grad((results * weights).sum(), tokens)[0]


# The mean after a layer norm


@measures("layer-norm-mean", claimed=(1.0, 0.0))
def measure_mean_of_normalised_tokens(size: Size, claimed: float) -> Series:
    """Compare the means and standard deviations of normalised tokens with a claim."""
    x = _draw_tokens(20 if size == "short" else 200)
    with torch.no_grad():
        y = LayerNorm(D)(x)
        constant = torch.full((1, D), 3.0)
        without_epsilon = ((constant - constant.mean()) / constant.std(correction=0)).isnan().any().item()
        with_epsilon = LayerNorm(D)(constant).abs().max().item()
    means, deviations = y.mean(-1), y.std(-1, correction=0)
    largest_deviation = max((means - claimed).abs().max().item(), (deviations - 1).abs().max().item())
    return Series(
        {
            "mean": Measured("mean of a normalised token", means.mean().item(), expected=claimed),
            "deviation": Measured("its standard deviation", deviations.mean().item(), expected=1.0),
            "gains": Measured("numbers of the gain γ", LayerNorm(D).weight.numel(), expected=D),
            "furthest": largest_deviation,
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
                numbered_curves({"before the norm": x.mean(-1).tolist(), "after it": means.tolist()}),
                levels={"claimed": claimed},
            )
        ],
    )


# A batch of one


@measures("layer-norm-batch-of-one", judged=("layer norm", "batch norm"))
def measure_change_by_batch_size(size: Size, judged: str) -> Series:
    """Measure whether a token has the same result alone and among others, and its gradient."""
    sizes = [2**i for i in range(8 if size == "short" else 11)]
    x = _draw_tokens(4096)
    names = "layer norm", "batch norm"
    changes = {name: [_change_by_batch(NORMS[name], x, m, trials=32) for m in sizes] for name in names}
    judged_changes, token = changes[judged], x[:1].clone().requires_grad_()
    gradient = _gradient(NORMS[judged]().train()(token), token).norm().item()
    return Series(
        {
            "alone": Measured(
                "change of a token that stands alone, against one among 4096", judged_changes[0]
            ),
            "gradient": Measured("gradient that reaches a token that stands alone", gradient),
            "among_16": Measured("change among 16 tokens", judged_changes[sizes.index(16)]),
        },
        table_of({"tokens in the batch": sizes, "change of a token": judged_changes}),
        [
            Curves(
                "Change of a token caused by other tokens",
                "tokens in the batch, m",
                "change of a token (root mean square)",
                curves_over(sizes, changes),
                log="x",
            )
        ],
    )


def _change_by_batch(make: MakeNorm, x: Tensor, m: int, trials: int) -> float:
    """Return the root mean square change of a token's result between a batch of m and one of all tokens."""
    with torch.no_grad():
        among_all = make().train()(x)
        changes = [
            make().train()(x.roll(-m * t, 0)[:m])[0] - among_all[m * t % len(x)] for t in range(trials)
        ]
    return torch.stack(changes).square().mean().sqrt().item()


@measures("batch-norm-batch-of-one", training=(True, False))
def measure_norm_of_single_token(size: Size, *, training: bool) -> Series:
    """Compute batch norm of a single token, after some batches."""
    norm = BatchNorm(D)
    with torch.no_grad():
        for seed in range(30 if size == "short" else 300):
            norm(_draw_tokens(64, seed))
    norm.train(training)
    token = _draw_tokens(1, seed=999).requires_grad_()
    y = norm(token)
    largest, gradient = y.abs().max().item(), _gradient(y, token).norm().item()
    with torch.no_grad():
        sentence = norm(_draw_tokens(16, seed=998)).abs().max().item()
    values = {"before": token.detach()[0].tolist(), "after": y.detach()[0].tolist()}
    return Series(
        {
            "largest": Measured("largest |x̂| of a single token", largest, expected=0.0),
            "gradient": Measured("gradient that reaches it", gradient, expected=0.0),
            "sentence": Measured("largest |x̂| of a single sentence of 16 tokens", sentence),
        },
        panels=[
            Curves("A single token through batch norm", "feature", "value", curves_over(range(D), values))
        ],
    )


# Other sequences in the batch, and padding


@measures("batch-norm-couples", name=("batch norm", "layer norm"))
def measure_effect_of_other_sequences(size: Size, name: str) -> Series:
    """Measure the effect of a change in one sequence on another sequence of the batch."""
    layout = Layout.of([7, 11] if size == "short" else [7, 11, 13, 17])
    first = slice(0, layout.lengths[0])
    x = _draw_tokens(layout.n_tokens)
    changed = x.clone()
    changed[first.stop :] += 3.0
    make = NORMS[name]
    norm = make().train()
    with torch.no_grad():
        change = (make().train()(x)[first] - make().train()(changed)[first]).abs()
    x.requires_grad_()
    gradient = _gradient(norm(x)[first], x)[first.stop :].norm().item()
    declared = float(claims(norm, "couples_batch"))
    title, largest = "Change of the first sequence by all others", change.max().item()
    curves = numbered_curves({"change": change.amax(-1).tolist()})
    return Series(
        {
            "change": Measured("change of one sequence's tokens when another sequence changes", largest),
            "gradient": Measured("gradient of one sequence's results by another's tokens", gradient),
            "declared": Measured("declared: couples_batch", declared, expected=float(name == "batch norm")),
        },
        panels=[Curves(title, "token", "largest change of its features", curves)],
    )


@measures("batch-norm-padding", lengths=([20, 5, 8, 11], [20, 20, 20, 20]))
def compare_statistics_with_padding(size: Size, lengths: Sequence[int]) -> Series:
    """Compare statistics over the padded rectangle with those over the tokens."""
    layout = Layout.of([n * (1 if size == "short" else 10) for n in lengths])
    x = _draw_tokens(layout.n_tokens)
    rectangle = layout.pad(x).flatten(0, 1)
    share = layout.n_tokens / len(rectangle)
    rms_change, change = _difference_by_padding(layout, x)
    mean, variance = x.mean(0), x.var(0, correction=0)
    predicted = (share * variance + share * (1 - share) * mean.square()).mean().item()
    mean_ratio = (rectangle.mean(0) / mean).mean().item()
    padded_variance = rectangle.var(0, correction=0).mean().item()
    return Series(
        {
            "change": Measured("change of the tokens' results when pads are counted", change),
            "mean": Measured(
                "mean over the rectangle, as a share of the tokens' mean", mean_ratio, "", share
            ),
            "variance": Measured("variance over the rectangle", padded_variance, expected=predicted),
            "share": Measured("share of real tokens", share),
        },
        panels=[
            Curves(
                "Batch norm that counts padding",
                "share of real tokens",
                "change of a result (root mean square)",
                {"counted with pads": _changes_by_share(), "this batch": ([share], [rms_change])},
            )
        ],
    )


def _difference_by_padding(layout: Layout, x: Tensor) -> tuple[float, float]:
    """Return root mean square and maximum of the difference between results with and without padding."""
    rows = layout.pad(x)
    with torch.no_grad():
        padded = layout.unpad(BatchNorm(D)(rows.flatten(0, 1)).view(rows.shape))
        change = padded - BatchNorm(D)(x)
    return change.square().mean().sqrt().item(), change.abs().max().item()


def _changes_by_share() -> Points:
    """Compute the root mean square for batches of four sentences, three of which become shorter."""
    layouts = [Layout.of([20, n, n, n]) for n in range(20, 0, -1)]
    errors = [_difference_by_padding(layout, _draw_tokens(layout.n_tokens))[0] for layout in layouts]
    return [layout.n_tokens / 80 for layout in layouts], errors


# Power norm


@measures("power-norm", norm=("power norm", "batch norm"))
def measure_effect_of_the_batch_after_warm_up(size: Size, norm: str) -> Series:
    """Measure whether results keep their mean, and whether the statistics of the batch still enter."""
    part = NORMS[norm]()
    batches = 100 if size == "short" else 1000
    batch_squares, running_squares, change_in_warmup = [], [], 0.0
    with torch.no_grad():
        for number in range(batches):
            if number == WARMUP // 2:
                change_in_warmup = _change_by_rest_of_batch(part)
            batch = _draw_tokens(16, seed=number)
            batch_squares.append(batch.square().mean(0)[0].item())
            part(batch)
            running = getattr(part, "running_quadratic_mean", None)
            running_squares.append(float("nan") if running is None else running[0].item())
        change_after_warmup = _change_by_rest_of_batch(part)
        x = _draw_tokens(1024, seed=10**6)
        mean = part(x).mean(0).abs().mean().item()
    expected = (x.mean(0) / x.square().mean(0).sqrt()).abs().mean().item()
    title = f"Quadratic mean of one feature ({norm})"
    curves = numbered_curves({"of each batch": batch_squares, "running": running_squares})
    return Series(
        {
            "after": Measured(
                "change of a token by its company, after the warm-up", change_after_warmup, expected=0.0
            ),
            "warm": Measured("the same during the warm-up", change_in_warmup),
            "mean": Measured("size of the features' means, after the norm", mean, expected=expected),
            "expected": expected,
        },
        panels=[Curves(title, "batch of 16 tokens", "mean of squares", curves)],
    )


def _change_by_rest_of_batch(norm: nn.Module) -> float:
    """Return the change of a token's result when the rest of its batch changes; the norm is restored."""
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    results = []
    for rest in (_draw_tokens(15, seed=1), 5 * _draw_tokens(15, seed=2)):
        results.append(norm(torch.cat([_draw_tokens(1, seed=3), rest]))[0])
        norm.load_state_dict(state)
    return largest_difference(*results)
