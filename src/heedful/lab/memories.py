"""Memory-compressed attention in two interpretations: the paper, and the code released with it.

Item 94 of the lectures. With X the tokens, c = 3 and one slot for each block of c tokens:

    paper      K_j = C_1 k_{c(j-1)} + … + C_c k_{cj-1}    with k_t = W_K x_t, head by head; V with filters D
    released   K_j = W_K y_j, V_j = W_V y_j               with y_j = F_1 x_{c(j-1)} + … + F_c x_{cj-1}

The filters C and D have d_k x d_k parameters per head, F has d_model x d_model.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.lab.drawing import Bars, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, seeded
from heedful.nn.attention.compressed import Compression, MemoryCompressedAttention
from heedful.nn.attention.heads import merge_heads, split_heads
from heedful.nn.layout import Layout

D, HEADS, FACTOR = 24, 4, 3
LENGTHS: dict[Size, int] = {"short": 100, "long": 1000}
DRAWN = 13
ModelInput = Literal["paper", "released"]
READINGS: tuple[ModelInput, ...] = ("paper", "released")


@cache
def parts() -> tuple[MemoryCompressedAttention, Compression]:
    """Build heedful's layer, which follows the paper, and the token filters of the released code."""
    with seeded():
        layer = MemoryCompressedAttention(D, HEADS, factor=FACTOR).double()
        return layer, Compression(1, D, FACTOR, bias=False).double()


def visible(n: int, *, early: bool) -> Bool[Tensor, "n m"]:
    """Return which slots each of ``n`` tokens sees: complete blocks; with ``early``, also its own block."""
    ends = FACTOR * torch.arange(1 + n // FACTOR)
    if early:
        ends = (ends - FACTOR + 1).clamp_min(0)
    return ends <= torch.arange(n)[:, None]


@torch.no_grad()
def attended(x: Float[Tensor, "n d"], reading: ModelInput, *, early: bool = False) -> Float[Tensor, "n d"]:
    """Compute memory-compressed attention for one sequence, step by step.

    Args:
        x: the tokens.
        reading: interpretation of keys and values.
        early: whether a slot is visible from its first token on, instead of after its last.
    """
    layer, filters = parts()
    queries, keys, values = (split_heads(p, HEADS) for p in layer.qkv(x[None]).split(layer.sizes, -1))
    if reading == "paper":
        keys = torch.cat([keys[:, :, :1], layer.compress_keys(keys)], 2)
        values = torch.cat([values[:, :, :1], layer.compress_values(values)], 2)
    else:
        slots = torch.cat([x[None, :1], filters(x[None, None])[:, 0]], 1)
        _, keys, values = (split_heads(p, HEADS) for p in layer.qkv(slots).split(layer.sizes, -1))
    scores = queries @ keys.mT / layer.d_k**0.5
    weights = scores.masked_fill(~visible(len(x), early=early), -torch.inf).softmax(-1)
    return layer.out(merge_heads(weights @ values))[0]


def leak(n: int, reading: ModelInput, *, early: bool) -> float:
    """Return the greatest change of an output if later tokens change, over all positions."""
    with seeded(1):
        x, other = torch.randn(2, n, D, dtype=torch.float64)
    whole, most = attended(x, reading, early=early), 0.0
    for place in range(1, n, max(1, n // 50)):
        changed = attended(torch.cat([x[:place], other[place:]]), reading, early=early)
        most = max(most, (changed[:place] - whole[:place]).abs().max().item())
    return most


def residuals() -> dict[str, float]:
    """Return the relative residuals of fitting the maps of one interpretation by those of the other.

    A slot is a linear map of its tokens. The filters F that reproduce the paper's keys exactly are
    W_K^-1 C W_K, since the W_K of all heads form a square matrix; no F reproduces keys and values at once.
    The paper's filters of a head only receive the projection of a token by the W_K of that head.
    """
    layer, filters = parts()
    _, w_k, w_v = layer.qkv.weight.detach().split(layer.sizes)
    own_k, own_v = _by_place(layer.compress_keys), _by_place(layer.compress_values)
    paper_k = torch.stack([torch.block_diag(*own_k[:, place]) @ w_k for place in range(FACTOR)])
    paper_v = torch.stack([torch.block_diag(*own_v[:, place]) @ w_v for place in range(FACTOR)])
    released = w_k @ _by_place(filters)[0]
    both, target = torch.cat([w_k, w_v]), torch.cat([paper_k, paper_v], 1)
    return {
        "paper's keys by released filters": _left(w_k, paper_k),
        "paper's keys and values by released filters": _left(both, target),
        "released keys by the paper's filters": _left_of_heads(w_k, released),
    }


def _by_place(compression: Compression) -> Float[Tensor, "h c d d"]:
    """Return each filter as a matrix that multiplies a column vector."""
    return compression.weight.detach().unflatten(1, (FACTOR, -1)).mT


def _left(matrix: Tensor, target: Float[Tensor, "c r d"]) -> float:
    """Return the relative residual of the best F with ``matrix @ F = target``."""
    wide = torch.cat([*target], -1)
    found = torch.linalg.lstsq(matrix, wide).solution
    return ((matrix @ found - wide).norm() / wide.norm()).item()


def _left_of_heads(w_k: Tensor, target: Float[Tensor, "c r d"]) -> float:
    """Return the relative residual of the best filters C per head with ``C @ W_K of the head = target``."""
    left = torch.tensor(0.0, dtype=torch.float64)
    for own, wanted in zip(w_k.split(D // HEADS), target.split(D // HEADS, 1), strict=True):
        rows = wanted.flatten(0, 1).mT
        left += (own.mT @ torch.linalg.lstsq(own.mT, rows).solution - rows).square().sum()
    return (left.sqrt() / target.norm()).item()


def from_layer(n: int) -> float:
    """Return the greatest difference between the step-by-step paper interpretation and heedful's layer."""
    with seeded(1):
        x = torch.randn(n, D, dtype=torch.float64)
    with torch.no_grad():
        layer, _ = parts()
        return (attended(x, "paper") - layer(x, Layout.of([n]))).abs().max().item()


def judge(slots: int, n: int, leaks: dict[ModelInput, float]) -> Verdict:
    """Judge whether a third of the keys and one more remain, and outputs do not depend on later tokens."""
    return "holds" if slots == 1 + n // FACTOR and max(leaks.values()) == 0.0 else "is wrong"


def _compressed(size: Size, *, early: bool) -> Outcome:
    n = LENGTHS[size]
    leaks = {reading: leak(n, reading, early=early) for reading in READINGS}
    slots = visible(n, early=early).shape[1]
    layer, filters = parts()
    own = sum(p.numel() for part in (layer.compress_keys, layer.compress_values) for p in part.parameters())
    numbers = {"paper": own, "released": filters.weight.numel()}
    left = residuals()
    verdict = judge(slots, n, leaks)
    return Outcome(
        verdict,
        _statement(verdict),
        [
            Measured(f"slots that {n:,} tokens attend to", slots, "", 1 + n // FACTOR),
            *(
                Measured(f"greatest change of an output by later tokens, {reading}", each, "", 0.0)
                for reading, each in leaks.items()
            ),
            Measured("the paper's reading and heedful's layer differ by", from_layer(n), "", 0.0),
            *(Measured(f"numbers in the filters, {name}", each) for name, each in numbers.items()),
            *(Measured(f"left of the {name}", 100 * each, "%") for name, each in left.items()),
        ],
        [{"reading": name, "numbers in the filters": each} for name, each in numbers.items()],
        [
            Matrix(
                "Slots that each token sees",
                "slot",
                "token",
                visible(DRAWN, early=early).double().tolist(),
                limits=(0.0, 1.0),
            ),
            Bars("Parameters of the filters", "interpretation", "", {**numbers}),
        ],
    )


def _statement(verdict: Verdict) -> str:
    if verdict == "is wrong":
        return (
            "If a slot is visible from its first token on, tokens attend to up to two tokens that come after "
            "them. The mask must admit only complete blocks."
        )
    return (
        "A third of the keys and values remains, plus one slot for the first token, without which the first "
        "block would see nothing. A token sees the slots of complete blocks, but not of its own block. The "
        "paper projects keys and values and then convolves them, head by head; the released code convolves "
        "the tokens and then projects. Neither contains the other: the released filters can produce any "
        "keys that the paper's filters can, but then the same filters apply to the values; and the paper's "
        "filters only receive the projection of a head. heedful's layer follows the paper."
    )


EXPERIMENTS = [
    Experiment(
        "compressed-memory",
        "Memory-compressed attention in the paper and in the released code",
        "Keys and values are compressed before attention, and no token attends to later tokens.",
        "S3, the summarisation table; Liu et al. 2018, section 4.2.3 and the code released with it",
        (94,),
        run=partial(_compressed, early=False),
        control=partial(_compressed, early=True),
        changed="A slot is visible from its first token on, instead of after its last.",
    ),
]
