"""The two tables of lecture S3 (Transformers: performance) as printed, and details from the papers.

The lecture copies table 2 of Vaswani et al. 2017 and table 4 of Liu et al. 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Pair = Literal["En-De", "En-Fr"]
"""Source and target language; the test set is newstest2014."""

# Translation


@dataclass(frozen=True)
class Translator:
    """A row of the translation table.

    Args:
        name: name of the system.
        kind: a single model, an ensemble (several models whose predictions are averaged), or a Transformer
            (which is a single model).
        bleu: BLEU by language pair, for the pairs it was tested on.
        flops: training cost by language pair, if known, as Vaswani et al. estimate it: time, times the number
            of chips, times the sustained throughput assumed for a chip.
    """

    name: str
    kind: Literal["one model", "ensemble", "Transformer"]
    bleu: Mapping[Pair, float]
    flops: Mapping[Pair, float] = field(default_factory=dict)


BASE, BIG = "transformer-base", "transformer-big"
"""The two Transformers of the table, by the names of their presets."""

TRAINING = {BASE: 3.3e18, BIG: 2.3e19}
"""Their training costs; the table prints one value for both pairs."""


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
"""Vaswani et al. 2017, table 2, in the fifth arXiv version, which the lecture copies."""

BIG_AT_FIRST = _transformer(BIG, 28.4, 41.0)
"""The row of the big model in the first arXiv versions, and in section 6.1 of all versions."""

HOURS = {BASE: 12.0, BIG: 3.5 * 24}
"""Training time on eight P100 (section 5.2)."""
UPDATES = {BASE: 100_000, BIG: 300_000}
SECONDS = {BASE: 0.4, BIG: 1.0}
"""Seconds per update (section 5.2)."""
TOKENS = 25_000
"""Approximate source tokens per update, and as many target tokens (section 5.1)."""
CHIPS = 8
SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Assumed sustained fp32 throughput of a chip, in operations per second (section 6.1, footnote)."""

# Summarisation


@dataclass(frozen=True)
class Summariser:
    """A row of the summarisation table (WikiSum: write the lead of an article from its references).

    Args:
        name: name of the architecture.
        read: L, the number of source tokens it reads.
        experts: number of experts of its mixture of experts; 0 if it has none.
        perplexity: value in the column headed "test perplexity".
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
"""Liu et al. 2018, table 4; from the recurrent model to the one with most experts."""

LOG_PERPLEXITY = 2.46645
"""Transformer-ED with L = 500 in table 3 of the same paper, whose column is headed "test log-perplexity"
(ROUGE-L is 34.2 there too). Figure 3 plots all of these values as log-perplexities."""
