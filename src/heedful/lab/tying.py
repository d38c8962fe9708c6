"""Shared weights: of embeddings and the output layer, and of all steps of a recurrence.

Items 1 and 9 (weights tied over time), 35 (the whole model's parameters) and 51 (embeddings) of the lectures.
"""

import copy
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.lab.arithmetic import summary
from heedful.lab.drawing import Bars, Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.published import BASE
from heedful.lab.seeds import seeded
from heedful.models.encoder_decoder import embedding_table
from heedful.nn.cells import Cell, ElmanCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Layout, Tokens
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.recurrent import Recurrence

# Embeddings and the output layer

D = 32


def _tied_embeddings(tie: str, size: Size) -> Outcome:
    """Compare the parameters of the base model with the 65 million of paper and lecture."""
    totals = {how: summary(BASE, f"tie={how}").parameters for how in ("three-way", "target", "none")}
    matrix = 37_000 * 512
    total = totals[tie]
    return Outcome(
        "holds" if abs(total / 65e6 - 1) < 0.05 else "is wrong",
        "W_D has 18,944,000 parameters for 37,000 tokens, of about 63 million in total; but only because one "
        "matrix serves as source embedding, target embedding and output layer. With separate weights for "
        "each there would be 100.9 million.",
        [
            Measured("parameters of the base model", total, expected=65e6),
            Measured("of which one matrix of 37,000 tokens has", matrix),
            Measured(
                "saved by tying three ways", totals["none"] - totals["three-way"], expected=2.0 * matrix
            ),
            Measured(
                "saved by tying the target's two", totals["none"] - totals["target"], expected=1.0 * matrix
            ),
        ],
        [{"tied": how, "parameters": n} for how, n in totals.items()],
        [
            Bars(
                "Parameters of the base model, V = 37,000",
                "tying",
                "millions",
                {how: n / 1e6 for how, n in totals.items()},
                levels={"printed: 65 million": 65.0},
            )
        ],
    )


class Unrolled(nn.Module):
    """An RNN with a separate cell for each of ``n`` steps; all cells start with the same weights."""

    def __init__(self, cell: Cell, n: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(copy.deepcopy(cell) for _ in range(n))

    def forward(self, x: Float[Tensor, "n d"], layout: Layout) -> Float[Tensor, "n d"]:
        """Compute the states for one sequence."""
        cells: Any = self.cells
        state, states = cells[0].initial(1, x), []
        for own, now in zip(cells, x, strict=True):
            state = own(own.project(now[None]), state)
            states.append(own.output(state))
        return torch.cat(states)


TIED, OWN = "one cell for all steps", "a cell for each step"


def _weights_behind(result: Tensor) -> int:
    """Count the parameters that ``result`` depends on, by its graph; each is counted once."""
    found: dict[Any, int] = {}
    seen, waiting = set(), [result.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[node.variable] = node.variable.numel()
        waiting += [each for each, _ in node.next_functions]
    return sum(found.values())


def _over_time(*, tied: bool, size: Size) -> Outcome:
    """Count the parameters behind the last state of an RNN with one cell, or with a cell per step."""
    lengths = [1, 5, 25] if size == "short" else [1, 5, 25, 125]
    with seeded(0):
        cell = ElmanCell(D, D)
        x = torch.randn(lengths[-1], D)
    counts: dict[str, list[int]] = {TIED: [], OWN: []}
    apart = []
    for n in lengths:
        networks = {TIED: Recurrence(copy.deepcopy(cell)), OWN: Unrolled(cell, n)}
        last = {name: network(x[:n], Layout.of([n]))[-1] for name, network in networks.items()}
        apart.append((last[TIED] - last[OWN]).abs().max().item())
        for name, state in last.items():
            counts[name].append(_weights_behind(state))
    own = counts[TIED if tied else OWN]
    one_function, sums = max(apart) < 1e-5, _gradient_difference(cell, x[:5])
    return Outcome(
        "holds" if one_function and sums < 1e-5 and own[-1] == own[0] else "is wrong",
        "Tied over time, an RNN has d_h² + d_h d_x + d_h parameters at any length; untied, it computes the "
        "same with as many for each step. The tied weights apply at every step: their gradient is the sum of "
        "the gradients that each step would give to its own weights.",
        [
            Measured(f"parameters behind state {lengths[-1]}", own[-1], expected=float(2 * D * D + D)),
            Measured("parameters behind state 1", own[0], expected=float(2 * D * D + D)),
            Measured("largest difference of tied and untied states", max(apart), expected=0.0),
            Measured(
                "largest difference of the tied gradient to the sum over steps, relative", sums, expected=0.0
            ),
        ],
        [{"steps": n, **{name: own[i] for name, own in counts.items()}} for i, n in enumerate(lengths)],
        [
            Curves(
                "Parameters of an RNN by sequence length",
                "steps",
                "parameters behind the last state",
                {name: (lengths, n) for name, n in counts.items()},
                log="xy",
            )
        ],
    )


def _gradient_difference(cell: Cell, x: Float[Tensor, "n d"]) -> float:
    """Return the relative difference of the gradients of one cell and the sums over a cell per step."""
    tied, layout = Recurrence(copy.deepcopy(cell)), Layout.of([len(x)])
    untied = Unrolled(cell, len(x))
    for network in (tied, untied):
        network(x, layout)[-1].sum().backward()
    steps = [dict(own.named_parameters()) for own in untied.cells]
    differences = []
    for name, weight in tied.cell.named_parameters():
        parts = [own[name].grad for own in steps]
        assert weight.grad is not None
        whole = torch.stack([part for part in parts if part is not None]).sum(0)
        differences.append(((weight.grad - whole).norm() / whole.norm()).item())
    return max(differences)


# The factor before the positions


def _identified(*, scaled: bool, size: Size) -> Outcome:
    """Test whether a word can be identified from its embedding plus position, with the shared table."""
    d, n_words = (64, 1000) if size == "short" else (512, 10_000)
    scale = math.sqrt(d) if scaled else 1.0
    with seeded(0):
        table = embedding_table(n_words, d)
        words = torch.randint(n_words, (256,))
    embedding = TokenEmbedding(table, Added(SinusoidalPositions(d)), scale=scale)
    with torch.no_grad():
        x = embedding(Tokens(words, Layout.of([64] * 4)))
        found = (x @ table.T).argmax(-1)
        positions = SinusoidalPositions(d)(torch.arange(64))
        sizes = {
            "positions": positions.square().mean().sqrt().item(),
            "embeddings": table.square().mean().sqrt().item(),
            f"embeddings x √{d}": math.sqrt(d) * table.square().mean().sqrt().item(),
        }
    share = (found == words).float().mean().item()
    return Outcome(
        "holds" if share > 0.99 else "is wrong",
        "A table that is tied to the output layer has entries of size d^-0.5; those of the positions have "
        "size 0.7. Added without scaling, the position dominates the word. The paper multiplies embeddings "
        "by √d_model first, which no lecture mentions.",
        [
            Measured("words that can be told from their sums", share, expected=1.0),
            Measured("size of the embeddings' entries", sizes["embeddings"], expected=d**-0.5),
            Measured("size of the positions' entries", sizes["positions"], expected=0.5**0.5),
        ],
        panels=[Bars("Size of the summands", "", "root mean square of the entries", sizes)],
    )


_VASWANI = "Vaswani et al. 2017, section 3.4"

EXPERIMENTS = [
    Experiment(
        "tied-embeddings",
        "Origin of the 65 million parameters",
        "The output matrix contributes about 19 of 65 million parameters, and the input embedding is an "
        "additional set of weights.",
        f"S0, decoder output, and the Transformer architecture; {_VASWANI}; Press and Wolf 2017",
        (35, 51),
        run=lambda size: _tied_embeddings("none", size),
        control=lambda size: _tied_embeddings("three-way", size),
        changed="Both embeddings and the output layer are one matrix.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "tied-over-time",
        "One set of weights for all time steps",
        "Weights that are tied across time steps keep the number of parameters manageable, and the same ones "
        "are responsible for all of history.",
        "S3, quiz 3, question 5",
        (1, 9),
        run=lambda size: _over_time(tied=True, size=size),
        control=lambda size: _over_time(tied=False, size=size),
        changed="Every step has its own cell.",
    ),
    Experiment(
        "embedding-scale",
        "The scale factor that the lectures omit",
        "The position vector is added to the word's embedding as it is.",
        f"S0, S1, S3 and S4, positions; {_VASWANI}",
        (51,),
        run=lambda size: _identified(scaled=False, size=size),
        control=lambda size: _identified(scaled=True, size=size),
        changed="Embeddings are multiplied by √d_model first.",
        expected=("is wrong", "holds"),
    ),
]
