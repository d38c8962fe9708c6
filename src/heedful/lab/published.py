"""The two tables of lecture S3 (Transformers: performance), as it prints them, and what the papers add.

The lecture copies table 2 of Vaswani et al. 2017 and table 4 of Liu et al. 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Pair = Literal["En-De", "En-Fr"]
"""From and to which language; newstest2014 of each."""

# Translation


@dataclass(frozen=True)
class Translator:
    """A row of the table of translation.

    Args:
        name: of the system.
        kind: one model, several whose predictions are averaged, or a Transformer (which is one model).
        bleu: of each pair that it was tested on.
        flops: what training for each pair took, where it is known, as Vaswani et al. estimate it: time, times
            chips, times what a chip is taken to sustain.
    """

    name: str
    kind: Literal["one model", "ensemble", "Transformer"]
    bleu: Mapping[Pair, float]
    flops: Mapping[Pair, float] = field(default_factory=dict)


BASE, BIG = "transformer-base", "transformer-big"
"""The two Transformers of the table, by the names of their presets."""

TRAINING = {BASE: 3.3e18, BIG: 2.3e19}
"""Their costs, which the table prints once for both pairs."""


def _transformer(name: str, english_german: float, english_french: float) -> Translator:
    cost = TRAINING[name]
    return Translator(
        name,
        "Transformer",
        {"En-De": english_german, "En-Fr": english_french},
        {"En-De": cost, "En-Fr": cost},
    )


def _both(german: float, french: float) -> dict[Pair, float]:
    return {"En-De": german, "En-Fr": french}


TRANSLATION = (
    Translator("ByteNet", "one model", {"En-De": 23.75}),
    Translator("Deep-Att + PosUnk", "one model", {"En-Fr": 39.2}, {"En-Fr": 1.0e20}),
    Translator("GNMT + RL", "one model", _both(24.6, 39.92), _both(2.3e19, 1.4e20)),
    Translator("ConvS2S", "one model", _both(25.16, 40.46), _both(9.6e18, 1.5e20)),
    Translator("MoE", "one model", _both(26.03, 40.56), _both(2.0e19, 1.2e20)),
    Translator("Deep-Att + PosUnk ensemble", "ensemble", {"En-Fr": 40.4}, {"En-Fr": 8.0e20}),
    Translator("GNMT + RL ensemble", "ensemble", _both(26.30, 41.16), _both(1.8e20, 1.1e21)),
    Translator("ConvS2S ensemble", "ensemble", _both(26.36, 41.29), _both(7.7e19, 1.2e21)),
    _transformer(BASE, 27.3, 38.1),
    _transformer(BIG, 28.4, 41.8),
)
"""Vaswani et al. 2017, table 2, the fifth version on arXiv, which the lecture copies."""

BIG_AT_FIRST = _transformer(BIG, 28.4, 41.0)
"""The big model's row as the paper's first versions have it, and section 6.1 of all of them."""

HOURS = {BASE: 12.0, BIG: 3.5 * 24}
"""On eight P100 (section 5.2)."""
UPDATES = {BASE: 100_000, BIG: 300_000}
SECONDS = {BASE: 0.4, BIG: 1.0}
"""Of an update (section 5.2)."""
TOKENS = 25_000
"""Of the source, and of the target, in an update; about (section 5.1)."""
CHIPS = 8
SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""fp32 operations a second that a chip is taken to sustain (section 6.1, footnote)."""

# Summarisation


@dataclass(frozen=True)
class Summariser:
    """A row of the table of summarisation (WikiSum: the beginning of an article from what it cites).

    Args:
        name: of the architecture.
        read: L, tokens of the source that it reads.
        experts: of a mixture of experts, where it has one.
        perplexity: in the column that is headed "test perplexity", of the test set.
        rouge_l: F1, in percent.
    """

    name: str
    read: int
    experts: int
    perplexity: float
    rouge_l: float


SUMMARISATION = (
    Summariser("seq2seq-attention", 500, 0, 5.04952, 12.7),
    Summariser("Transformer-ED", 500, 0, 2.46645, 34.2),
    Summariser("Transformer-D", 4_000, 0, 2.22216, 33.6),
    Summariser("Transformer-DMCA", 11_000, 0, 2.05159, 36.2),
    Summariser("Transformer-DMCA, MoE-128", 11_000, 128, 1.92871, 37.9),
    Summariser("Transformer-DMCA, MoE-256", 7_500, 256, 1.90325, 38.8),
)
"""Liu et al. 2018, table 4; from the recurrent model to the one with the most experts."""

LOG_PERPLEXITY = 2.46645
"""Transformer-ED with L = 500 in table 3 of the same paper, where the column is headed "test log-perplexity"
(and where it has 34.2 of ROUGE-L too). Figure 3 draws all of them as log-perplexities."""
