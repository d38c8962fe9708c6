"""Gradients over a distance in recurrent networks.

Items 1, 2 and 8 of the lectures.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.lab.drawing import Curves, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import slope
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.cells import Cell, ElmanCell, LSTMCell
from heedful.nn.layout import Layout
from heedful.nn.recurrent import Recurrence
from heedful.training.optimizers import clip, gradient_norm

D = 32

# Gradients over a distance

MIXERS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: Recurrence(ElmanCell(D, D)),
    "LSTM": lambda: Recurrence(LSTMCell(D, D)),
    "attention": lambda: SelfAttention(D, 4, causal=True),
}


def gradient_by_distance(make: Callable[[], nn.Module], n: int, seed: int) -> Float[Tensor, " n"]:
    """Return the norm of the gradient of the last output with respect to each input, by distance.

    Entry k is that of the input k tokens back. The output is multiplied by a random vector; inputs and
    initial weights are random too.
    """
    with seeded(seed):
        mixer = make().double()
        x, weights = torch.randn(n, D, dtype=torch.float64), torch.randn(D, dtype=torch.float64)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(mixer(x, Layout.of([n]))[-1] @ weights, x)
    return gradient.norm(dim=-1).flip(0)


@cache
def shares_by_distance(n: int, seeds: int) -> dict[str, list[float]]:
    """Return the gradients of all `MIXERS` by distance, relative to distance 1; geometric means."""
    shares: dict[str, list[float]] = {}
    for name, make in MIXERS.items():
        logs = torch.stack([gradient_by_distance(make, n, seed).log() for seed in range(seeds)]).mean(0)
        shares[name] = (logs[1:] - logs[1]).exp().tolist()
    return shares


def _over_distance(judged: str, size: Size) -> Outcome:
    """Measure how fast the gradient of one of `MIXERS` decreases, compared with the others."""
    n, seeds = (33, 4) if size == "short" else (129, 16)
    distances, shares = list(range(1, n)), shares_by_distance(n, seeds)
    # Factor per token, fitted at distances at which the nearest tokens no longer matter.
    factors = {
        name: 2.0 ** slope(distances[4:], [_log2(share) for share in own[4:]]) for name, own in shares.items()
    }
    vanishes = factors[judged] < 0.95
    return Outcome(
        "holds" if vanishes else "is wrong",
        "Through an RNN, the gradient decreases by a constant factor per intermediate token; through an LSTM "
        "as well, but by a factor nearer to 1. Through attention, every token is one step away, and the "
        "gradient does not depend on the distance.",
        [
            Measured(f"what a token of distance leaves of the gradient, {name}", factor)
            for name, factor in sorted(factors.items(), key=lambda item: item[0] != judged)
        ],
        [
            {"distance": k, **{name: own[k - 1] for name, own in shares.items()}}
            for k in distances
            if k & (k - 1) == 0
        ],
        [
            Curves(
                "Gradient of the last output w.r.t. earlier tokens",
                "distance in tokens",
                "norm, relative to that at distance 1",
                {name: (distances, own) for name, own in shares.items()},
                log="y",
            )
        ],
    )


def _log2(x: float) -> float:
    return float(torch.tensor(x, dtype=torch.float64).log2())


# The cell of 1997 and the forget gate

OPEN = 100.0
"""A bias that makes the sigmoid equal 1 in fp64: a forget gate that cannot close has no effect."""

MEMORIES: dict[str, Callable[[], Cell]] = {
    "RNN (no additive memory)": lambda: ElmanCell(D, D),
    "LSTM of 1997 (no forget gate)": lambda: LSTMCell(D, D, forget_bias=OPEN),
    "LSTM with a forget gate": lambda: LSTMCell(D, D, forget_bias=0.0),
    "LSTM with a forget gate, its bias 1": lambda: LSTMCell(D, D, forget_bias=1.0),
}
_RNN, _CAROUSEL, _GATED = list(MEMORIES)[:3]


@cache
def memory_kept(make: Callable[[], Cell], n: int, every: int = 1, seed: int = 0) -> list[float]:
    """Return the gradient norm of the memory w.r.t. the initial memory, after every ``every`` of n steps.

    Only the memory's own path is measured. The memory is c for an LSTM, whose gates then depend on the inputs
    only, and h for an RNN, which has no other path. The memory is multiplied by a random vector of norm 1.
    """
    with seeded(seed):
        cell = make().double()
        x, weights = torch.randn(n, 1, D, dtype=torch.float64), torch.randn(D, dtype=torch.float64)
    weights = weights / weights.norm()
    if isinstance(cell, LSTMCell):
        nn.init.zeros_(cell.recurrent.weight)
    first = cell.initial(1, x)[-1].requires_grad_()
    hidden = cell.initial(1, x)[0]
    state: tuple[Tensor, ...] = (first,) if cell.n_states == 1 else (hidden, first)
    kept = []
    for step, now in enumerate(cell.project(x), 1):
        state = cell(now, state)
        if step % every:
            continue
        (gradient,) = torch.autograd.grad(state[-1][0] @ weights, first, retain_graph=True)
        kept.append(gradient.norm().item())
    return kept


def _keeps(addition: str, without: str, size: Size) -> Outcome:
    """Test whether an addition to a memory preserves more of the gradient."""
    n, every = (40, 1) if size == "short" else (400, 20)
    kept = {name: memory_kept(make, n, every) for name, make in MEMORIES.items()}
    helps = kept[addition][-1] > kept[without][-1]
    return Outcome(
        "holds" if helps else "is wrong",
        "The gradient is preserved by the additive memory of 1997, c_t = c_{t-1} + i g, whose own derivative "
        "is exactly 1 at any distance. The forget gate was added in 2000 (Gers et al.) so that a cell can "
        "reset itself; it multiplies the gradient by f < 1 at each step, which is why its bias starts at 1. "
        "(What the lecture calls catastrophic forgetting is the loss of distant context; the term means "
        "losing an old task while learning a new one.)",
        [
            Measured(
                f"gradient after {n} steps, {name}", own[-1], expected=1.0 if name == _CAROUSEL else None
            )
            for name, own in sorted(kept.items(), key=lambda item: item[0] != addition)
        ],
        panels=[
            Curves(
                "Gradient w.r.t. the initial memory",
                "steps",
                "norm",
                over(range(every, n + 1, every), kept),
                log="y",
            )
        ],
    )


# Clipping

LIMIT = 1.0


def _clipped(gain: float, size: Size) -> Outcome:
    """Clip the gradient of an RNN whose steps multiply it by ``gain``, and measure it at the first token.

    The recurrent matrix is an orthogonal matrix times the gain, and the inputs are so small that tanh is
    linear. So the gradient with respect to the token k steps back has the norm gain^k.
    """
    n = 30 if size == "short" else 40
    with seeded(0):
        cell = ElmanCell(D, D).double()
        nn.init.orthogonal_(cell.input.weight)
        x = nn.Parameter(1e-9 * torch.randn(n, D, dtype=torch.float64))
        weights = torch.randn(D, dtype=torch.float64)
    with torch.no_grad():
        cell.recurrent.weight *= gain
    (Recurrence(cell)(x, Layout.of([n]))[-1] @ (weights / weights.norm())).backward()
    assert x.grad is not None
    before, norm = x.grad.norm(dim=-1).clone(), gradient_norm([x])
    clip([x], LIMIT, norm)
    after = x.grad.norm(dim=-1)
    usable = 0.1 * LIMIT < after[0].item() <= LIMIT
    distances = list(range(n))
    return Outcome(
        "holds" if usable else "is wrong",
        "Clipping scales the whole gradient down to a limit, so that an exploding gradient cannot cause an "
        "arbitrarily large step; the proportion between far and near tokens stays the same. A vanishing "
        "gradient does not change, since clipping never scales up: as S4 says, that is the harder problem.",
        [
            Measured("gradient at the first token, clipped", after[0].item()),
            Measured("gradient at the first token, before", before[0].item(), expected=gain ** (n - 1)),
            Measured("norm of all gradients, before", norm.item()),
            Measured("norm of all gradients, clipped", gradient_norm([x]).item()),
        ],
        panels=[
            Curves(
                f"Gradients, multiplied by {gain:g} at each step",
                "distance in tokens",
                "norm",
                {
                    "before clipping": (distances, before.flip(0).tolist()),
                    "clipped": (distances, after.flip(0).tolist()),
                },
                levels={"limit": LIMIT},
                log="y",
            )
        ],
    )


_PASCANU = "Pascanu et al. 2013"

EXPERIMENTS = [
    Experiment(
        "gradient-over-distance",
        "How far a gradient reaches",
        "The influence of words that are further away becomes progressively smaller, by vanishing gradients.",
        f"S1, why RNNs are not good enough; S3, quiz 3; {_PASCANU}, section 2",
        (1, 8),
        run=lambda size: _over_distance("RNN", size),
        control=lambda size: _over_distance("attention", size),
        changed="Attention replaces the recurrence.",
    ),
    Experiment(
        "forget-gate",
        "What keeps an LSTM's gradient alive",
        "The key addition of the LSTM is the forget gate; it reduced the vanishing of gradients.",
        "S4, section 3; Hochreiter and Schmidhuber 1997; Gers et al. 2000",
        (2, 8),
        run=lambda size: _keeps(_GATED, _CAROUSEL, size),
        control=lambda size: _keeps(_CAROUSEL, _RNN, size),
        changed="The addition is the additive memory, compared with an RNN without one.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "clipping",
        "What clipping solves",
        "Exploding gradients can be adequately solved by gradient clipping.",
        f"S4, section 3 (where “the vanishing gradient problem is harder to solve”); {_PASCANU}, section 3.2 "
        "and algorithm 1",
        (8,),
        run=lambda size: _clipped(1.5, size),
        control=lambda size: _clipped(0.5, size),
        changed="The same is claimed for vanishing gradients: each step halves them.",
    ),
]
