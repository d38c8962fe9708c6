"""Tables of published scores: which systems are better and by how much, and the units of the numbers.

Items 58 (translation), 59, 92 and 95 (summarisation) and 80 (days of training image classifiers) of the
lectures. The tables are those of lecture S3 (Transformers: performance) as printed, with details from the
papers. The lecture copies table 2 of Vaswani et al. 2017 and table 4 of Liu et al. 2018.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Literal

from heedful.lab.drawing import Bars, Dots
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.experiments.arithmetic import BASE, BIG, summary
from heedful.model_summary.summary import ModelSummary, describe
from heedful.models.registry import preset
from heedful.models.resnet import ResNetConfig

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


def _both(german: float, french: float) -> dict[Pair, float]:
    return {"En-De": german, "En-Fr": french}


TRAINING = {BASE: 3.3e18, BIG: 2.3e19}
"""Training costs of the Transformers; the table prints one value for both pairs."""
BIG_COSTS = _both(TRAINING[BIG], TRAINING[BIG])
TRANSLATION = (
    Translator("ByteNet", "one model", {"En-De": 23.75}),
    Translator("Deep-Att + PosUnk", "one model", {"En-Fr": 39.2}, {"En-Fr": 1.0e20}),
    Translator("GNMT + RL", "one model", _both(24.6, 39.92), _both(2.3e19, 1.4e20)),
    Translator("ConvS2S", "one model", _both(25.16, 40.46), _both(9.6e18, 1.5e20)),
    Translator("MoE", "one model", _both(26.03, 40.56), _both(2.0e19, 1.2e20)),
    Translator("Deep-Att + PosUnk ensemble", "ensemble", {"En-Fr": 40.4}, {"En-Fr": 8.0e20}),
    Translator("GNMT + RL ensemble", "ensemble", _both(26.30, 41.16), _both(1.8e20, 1.1e21)),
    Translator("ConvS2S ensemble", "ensemble", _both(26.36, 41.29), _both(7.7e19, 1.2e21)),
    Translator(BASE, "Transformer", _both(27.3, 38.1), _both(TRAINING[BASE], TRAINING[BASE])),
    Translator(BIG, "Transformer", _both(28.4, 41.8), BIG_COSTS),
)
"""Vaswani et al. 2017, table 2, in the fifth arXiv version, which the lecture copies."""
BIG_AT_FIRST = Translator(BIG, "Transformer", _both(28.4, 41.0), BIG_COSTS)
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
        n_source: L, the number of source tokens it reads.
        experts: number of experts of its mixture of experts; 0 if it has none.
        perplexity: value in the column headed "test perplexity".
        rouge_l: F1, in percent.
    """

    name: str
    n_source: int
    experts: int
    perplexity: float
    rouge_l: float

    @property
    def label(self) -> str:
        """Its name and the number of tokens it reads."""
        return f"{self.name}, L = {self.n_source:,}"


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

# Scores and costs of translators

PAIRS: tuple[Pair, ...] = ("En-De", "En-Fr")


@dataclass(frozen=True)
class Comparison:
    """A Transformer compared with another system.

    Args:
        pair: languages.
        transformer, rival: the Transformer and the other system.
    """

    pair: Pair
    transformer: Translator
    rival: Translator

    @property
    def ahead(self) -> float:
        """Difference in BLEU to the rival."""
        return self.transformer.bleu[self.pair] - self.rival.bleu[self.pair]

    @property
    def relative_cost(self) -> float:
        """Training cost of the rival relative to the Transformer; NaN if unknown."""
        return self.rival.flops.get(self.pair, math.nan) / self.transformer.flops[self.pair]

    @property
    def is_cost_known(self) -> bool:
        """Whether the training cost of the rival is known."""
        return self.pair in self.rival.flops

    @property
    def won(self) -> bool:
        """Whether the Transformer is better, and cheaper as far as costs are known."""
        return self.ahead > 0 and not self.relative_cost <= 1


def comparisons(table: Sequence[Translator]) -> Iterator[Comparison]:
    """Pair every Transformer with every other system, for each language pair."""
    for pair in PAIRS:
        transformers = [system for system in table if system.kind == "Transformer" and pair in system.bleu]
        rivals = [system for system in table if system.kind != "Transformer" and pair in system.bleu]
        yield from (Comparison(pair, system, rival) for system in transformers for rival in rivals)


def transformer_wins(table: Sequence[Translator]) -> dict[Pair, list[bool]]:
    """Return for each language pair and each Transformer whether it beats all rivals at less cost."""
    wins_by_pair: dict[Pair, dict[str, bool]] = {pair: {} for pair in PAIRS}
    for comparison in comparisons(table):
        wins = wins_by_pair[comparison.pair]
        wins[comparison.transformer.name] = wins.get(comparison.transformer.name, True) and comparison.won
    return {pair: list(wins.values()) for pair, wins in wins_by_pair.items()}


@measures("translation-table", translators=(TRANSLATION, (*TRANSLATION[:-1], BIG_AT_FIRST)))
def compare_translators(size: Size, translators: Sequence[Translator]) -> Series:
    """Compare both Transformers with all other systems."""
    pairs = list(comparisons(translators))
    return Series(
        {measured.name: measured for measured in _measure_leads(pairs)}
        | {"won": transformer_wins(translators)},
        [
            {
                "pair": comparison.pair,
                "model": comparison.transformer.name,
                "rival": comparison.rival.name,
                "BLEU ahead": round(comparison.ahead, 2),
                "rival's cost": f"{comparison.relative_cost:.1f} times"
                if comparison.is_cost_known
                else "unknown",
                "better and cheaper": "yes" if comparison.won else "no",
            }
            for comparison in pairs
        ],
        [_scores_over_costs(pair, translators) for pair in PAIRS],
    )


PAPER = {("En-De", BIG, "BLEU"): 2.0, ("En-Fr", BIG, "cost"): 4.0}
"""Section 6.1: more than 2.0 BLEU better than all others; less than a quarter of the previous best's cost."""


def _measure_leads(comparisons: Sequence[Comparison]) -> Iterator[Measured]:
    """Compare each Transformer with the best rival of a pair, and with the cost of the cheapest."""
    for pair, name in dict.fromkeys(
        (comparison.pair, comparison.transformer.name) for comparison in comparisons
    ):
        rivals = [
            comparison
            for comparison in comparisons
            if (comparison.pair, comparison.transformer.name) == (pair, name)
        ]
        least_ahead = min(comparison.ahead for comparison in rivals)
        least_cost = min(comparison.relative_cost for comparison in rivals if comparison.is_cost_known)
        claimed_bleu, claimed_share = (PAPER.get((pair, name, field)) for field in ("BLEU", "cost"))
        yield Measured(f"{pair}, {name}, above the best rival", least_ahead, "BLEU", claimed_bleu)
        yield Measured(
            f"{pair}, {name}, cost of the cheapest rival", least_cost, "times its own", claimed_share
        )


def _scores_over_costs(pair: Pair, table: Sequence[Translator]) -> Dots:
    """Draw systems with known cost as points, and the others as lines."""
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for system in table:
        if pair in system.bleu and pair in system.flops:
            points.setdefault(system.kind, {})[system.name] = system.flops[pair], system.bleu[pair]
    unknown = {
        system.name: system.bleu[pair] for system in table if pair in system.bleu and pair not in system.flops
    }
    return Dots(
        f"newstest2014, {pair}",
        "training cost, FLOPs",
        "BLEU",
        points,
        levels={f"{name} (cost not known)": score for name, score in unknown.items()},
        log=True,
        inches=(6.4, 4.8),
    )


# The origin of the costs


@measures("training-cost", chip=("P100", "K80"))
def compare_training_costs(size: Size, chip: str) -> Series:
    """Compare the printed costs with time, chips and throughput, and with the operations of the models."""
    estimates = {name: CHIPS * SUSTAINED[chip] * 3600 * hours for name, hours in HOURS.items()}
    matrix_products = {
        name: summary(name).training_flops_per_token * TOKENS * UPDATES[name] for name in TRAINING
    }
    errors = {
        origin: max(abs(costs[name] / printed - 1) for name, printed in TRAINING.items())
        for origin, costs in (("estimated", estimates), ("counted", matrix_products))
    }
    shares = {name: matrix_products[name] / estimates[name] for name in TRAINING}
    hours = {name: UPDATES[name] * SECONDS[name] / 3600 for name in TRAINING}
    bars = {"printed": TRAINING, "by time": estimates, "by matrix\nproducts": matrix_products}
    return Series(
        {
            **measured_each("{}, by time", estimates, "FLOPs", TRAINING),
            **measured_each("{}, by its matrix products", matrix_products, "FLOPs", TRAINING),
            **measured_each("{}, share of the chips' rate", shares),
            **measured_each("{}, time by its updates", hours, "hours", HOURS),
            **errors,
        },
        table_of(
            {
                "model": TRAINING,
                "printed": TRAINING.values(),
                "by time": estimates.values(),
                "counted": matrix_products.values(),
            }
        ),
        [
            Bars(f"Training cost of {name}", "", "FLOPs", {bar: costs[name] for bar, costs in bars.items()})
            for name in TRAINING
        ],
    )


# Days of training image classifiers

VIT, BIT = "ViT-H/14", "BiT-L (ResNet152x4)"
CORE_DAYS = {VIT: 2500.0, BIT: 9900.0}
"""Days of a TPUv3 core for pre-training on JFT-300M (Dosovitskiy et al. 2021, table 2)."""
N_IMAGES, N_CLASSES, SIDE = 303e6, 18_291, 224
"""Images and classes of JFT, and their size in pixels in pre-training (section 4.1)."""
EPOCHS = {VIT: 14, BIT: 40}
"""Dosovitskiy et al. 2021, table 6; Kolesnikov et al. 2020, section 3.3."""
PUBLISHED = {VIT: 4.262e21}
"""Operations of pre-training (Dosovitskiy et al. 2021, table 6)."""
CORE = 123e12 / 2
"""Peak of a TPUv3 core in bf16, half of a chip's, in operations per second (Jouppi et al. 2020)."""


def _classifiers() -> dict[str, ModelSummary]:
    bit = ResNetConfig(n_blocks=[3, 8, 36, 3], width=256, image_size=SIDE)
    return {VIT: describe(preset("vit-h-14"), n_classes=N_CLASSES), BIT: describe(bit, n_classes=N_CLASSES)}


@measures("vision-training-cost", epochs=(EPOCHS, dict.fromkeys(EPOCHS, 14)))
def compare_vision_training_costs(size: Size, epochs: Mapping[str, int]) -> Series:
    """Compare the printed days with the operations of the models, and with those that a core can execute."""
    n_tokens = {VIT: 257, BIT: 49}
    operations = {
        name: model.training_flops_per_token * n_tokens[name] * N_IMAGES * epochs[name]
        for name, model in _classifiers().items()
    }
    possible = {name: days * 24 * 3600 * CORE for name, days in CORE_DAYS.items()}
    shares = {name: operations[name] / possible[name] for name in CORE_DAYS}
    ratio, days_ratio = operations[BIT] / operations[VIT], CORE_DAYS[BIT] / CORE_DAYS[VIT]
    return Series(
        {
            **measured_each("{}, operations", operations, "FLOPs", PUBLISHED),
            **measured_each("{}, share of the peak of its core-days", shares),
            "ratio": Measured("operations of BiT-L", ratio, "times ViT-H/14's"),
            "days_ratio": Measured("core-days of BiT-L", days_ratio, "times ViT-H/14's"),
            "largest_share": max(shares.values()),
        },
        table_of(
            {
                "model": CORE_DAYS,
                "core-days": CORE_DAYS.values(),
                "epochs": [epochs[name] for name in CORE_DAYS],
                "operations": [operations[name] for name in CORE_DAYS],
                "share of the peak": shares.values(),
            }
        ),
        [
            Bars("Days of a TPUv3 core", "", "days", CORE_DAYS),
            Bars("Operations of the training", "", "FLOPs", operations),
        ],
    )


# Scores of summarisation models


@measures(
    "summarisation-table", models=(SUMMARISATION, sorted(SUMMARISATION, key=lambda model: model.n_source))
)
def count_improvements_of_summarisers(size: Size, models: Sequence[Summariser]) -> Series:
    """Count the rows that are better than the one above, by either score."""
    pairs = list(pairwise(models))
    n_fell = sum(later.perplexity < earlier.perplexity for earlier, later in pairs)
    n_rose = sum(later.rouge_l > earlier.rouge_l for earlier, later in pairs)
    best = max(models, key=lambda model: model.rouge_l)
    rouge_l = {model.label: model.rouge_l for model in models}
    perplexities = {model.label: model.perplexity for model in models}
    n, columns = float(len(pairs)), ("model", "L", "experts", "“test perplexity”", "ROUGE-L")
    return Series(
        {
            "fell": Measured("steps after which perplexity is lower", n_fell, expected=n),
            "rose": Measured("steps after which ROUGE-L is higher", n_rose, expected=n),
            "best": Measured("best ROUGE-L", best.rouge_l, "%", 38.8),
            "read": Measured("tokens that the best reads", best.n_source),
            "n_steps": n,
        },
        [dict(zip(columns, astuple(model), strict=True)) for model in models],
        [
            Bars("WikiSum, test", "", "ROUGE-L", rouge_l),
            Bars("WikiSum, test", "", "column “test perplexity”", perplexities),
        ],
    )


@measures("perplexity-of-summaries", logarithm=(False, True))
def compare_bits_of_wordpiece(size: Size, *, logarithm: bool) -> Series:
    """Convert the column to bits per wordpiece, as perplexities or logarithms, and compare with table 3."""
    column = {model.label: model.perplexity for model in SUMMARISATION}
    nats = column if logarithm else {label: math.log(value) for label, value in column.items()}
    bits = {label: nats_of_piece / math.log(2) for label, nats_of_piece in nats.items()}
    bits_of_table_3 = LOG_PERPLEXITY / math.log(2)
    bits_of_transformer = bits["Transformer-ED, L = 500"]
    perplexities = {model.name: math.exp(model.perplexity) for model in SUMMARISATION}
    return Series(
        {
            "bits": Measured(
                "Transformer-ED, bits of a wordpiece", bits_of_transformer, "bits", bits_of_table_3
            ),
            **measured_each("perplexity of {}, if that is its logarithm", perplexities),
            "elsewhere": bits_of_table_3,
        },
        panels=[
            Bars("Cost of a wordpiece", "", "bits", {**bits, "Transformer-ED, by table 3": bits_of_table_3})
        ],
    )
