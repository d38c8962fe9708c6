"""Faithfulness: how well the words that a method names are those whose removal changes the answer.

The judge removes words in another way than the method: effects of leaving out are judged by replacement,
those of replacement by leaving out, gradients by replacement. With words ranked by a method's scores, and p
the probability of the answer (a number, for regression):

| measure | definition |
|---|---|
| comprehensiveness | mean over k of p(x) - p(x without the first k % of words), higher is better |
| sufficiency | mean over k of p(x) - p(the first k % of words alone), lower is better |
| rank correlation | Spearman correlation of scores and the effects of single words, as judged |
| sign agreement | share of equal signs among words whose judged effect exceeds a tenth of the largest |
| top sign | how often the score of the word with the largest judged effect is positive |
| top agreement | how often the highest score is that of the word with the largest judged effect |

k is 1, 5, 10, 20 and 50, at least one word. Source: DeYoung et al. 2020, section 4.2 (equations 1 and 2, and
their mean over k); the others use log-odds instead of probabilities. Top sign and agreement are means over
the answers that a word supports, as judged.

Replacement is also judged by itself, with other replacements, as ``other draws``: about the most that a
method can reach in what is about single words (rank, signs, top). Whether a method is better than a random
order by the same judge is decided by the 95 % interval of their difference of comprehensiveness
(`heedful.tasks.metrics.significance`). Measures by different judges are not comparable.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.lines import Source
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError, RequestError
from heedful.explain.attribution.integrated_gradients import gradient_times_input, integrated_gradients
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import DRAWS, effects, occlusion
from heedful.explain.attribution.removal import MOST_PARTS
from heedful.explain.attribution.replacements import (
    Replacements,
    replacements_from,
    texts_of,
    training_replacements,
)
from heedful.explain.capture import prepare_input
from heedful.explain.views import LEAVING_OUT, REPLACEMENT, VIEWS
from heedful.nn.modes import evaluating
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import rows_of
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.metrics.regression import spearman
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.significance import paired_test
from heedful.tasks.metrics.statistics import RowStatistics, ratio
from heedful.typing import JsonMapping, JsonObject

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of words that are removed, or kept."""

STRONG = 0.1
"""Signs are compared of words whose effect exceeds this share of the largest."""

Key = tuple[str, str]
"""A method and its judge."""

OTHER_SEED = 2**31
"""Seed of the replacements of the method, which must be others than those of the judge."""

Scores = NDArray[np.float64]
Method = Callable[[Measured, Replacements], Tensor]

METHODS: dict[str, Method] = {
    "occlusion": lambda measured, words: occlusion(measured),
    "replacement": lambda measured, words: occlusion(measured, words, seed=OTHER_SEED),
    "integrated-gradients": lambda measured, words: integrated_gradients(measured).scores,
    "gradients": lambda measured, words: gradient_times_input(measured),
}
"""Scores of each method; it is judged by the first judge of the view, or by replacement."""

RANDOM = "random order"

OTHER_DRAWS = "other draws"
"""The judge itself, judged with other replacements: see the module."""

OVER_RANDOM = "over_random"
"""Entry of a score's details: the difference of its value to that of the random order by the same judge."""

BETTER = "better than a random order"
WORSE = "worse than a random order"
BY_CHANCE = "not better beyond chance"

VERSION = 1
"""Version of the measures of an input."""

COLUMNS = {
    "comprehensiveness": "compr.",
    "sufficiency": "suffic.",
    "rank_correlation": "rank",
    "sign_agreement": "signs",
    "top_sign": "top sign",
    "top_agreement": "top word",
}
"""The measures, and their names in the table, which fits into 80 columns."""

FIELDS = dict(
    zip(COLUMNS, ("comprehensiveness", "sufficiency", "correlation", "signs", "top_sign", "top"), strict=True)
)
"""The measures, and the fields of `Judgement` that have them."""


@dataclass(frozen=True)
class Judgement:
    """What is measured of one part of an answer for a method.

    Args:
        comprehensiveness: see the module; ``sufficiency`` too.
        sufficiency: see there.
        correlation: the rank correlation; NaN if all effects or scores are equal.
        signs: the sign agreement; NaN if no word has an effect.
        top_sign: 1 if the score of the word with the largest effect is positive, otherwise 0; NaN if no word
            supports the answer, as judged.
        top: 1 if the words with the highest score and with the largest effect are the same, otherwise 0; NaN
            as before.
    """

    comprehensiveness: float
    sufficiency: float
    correlation: float
    signs: float
    top_sign: float
    top: float


ByInput = Mapping[int, Sequence[Judgement]]
"""What is measured of the parts of each answer, by the number of the input."""


@dataclass(frozen=True)
class FaithfulnessEvaluation(Evaluation):
    """The faithfulness of each method; a score's value is the comprehensiveness."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table of all methods by judge, and whether each is better than a random order.

        Measures by different judges are not comparable.
        """
        yield f"  {'method':<22}  {'  '.join(COLUMNS.values())}"
        for judge in dict.fromkeys(score.details["judge"] for score in self.scores):
            yield f"  judged by {judge}"
            for score in self.scores:
                if score.details["judge"] == judge:
                    values = [score.value, *(score.details[name] for name in list(COLUMNS)[1:])]
                    cells = [
                        ("-" if value is None else f"{value:.3f}").rjust(len(name))
                        for name, value in zip(COLUMNS.values(), values, strict=True)
                    ]
                    yield f"    {score.name.removesuffix(f', {judge}'):<20}  {'  '.join(cells)}"
        yield "  compr.: comprehensiveness, higher is better; suffic.: sufficiency, lower is"
        yield "  other draws: the judge with other replacements; bounds rank, signs and top"
        compared = [score for score in self.scores if score.details.get(OVER_RANDOM)]
        if compared:
            yield ""
            yield "  comprehensiveness minus that of a random order by the same judge (95 %):"
        for score in compared:
            over = score.details[OVER_RANDOM]
            numbers = f"{over['difference']:+.3f} ({over['low']:+.3f} to {over['high']:+.3f})"
            yield f"    {score.name:<20}  {numbers}  {over['verdict']}"
        if any(score.details[OVER_RANDOM]["verdict"] != BETTER for score in compared):
            yield f"  Do not show a view as a reason that is not {BETTER}."

    def rows(self) -> Iterator[JsonMapping]:
        """The measures of each input, with the version of their format."""
        return ({"version": VERSION, **record} for record in self.records())


def evaluate_faithfulness(
    run: LoadedRun,
    split: str,
    source: Source,
    *,
    limit: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
) -> FaithfulnessEvaluation:
    """Measure the faithfulness of each method on the inputs of a data set.

    Args:
        run: the run.
        split: name of the data set in the result.
        source: its source.
        limit: use only this many leading rows.
        draws: number of replacements of each word.
        seed: of the replacements and of the random order.
        progress: called with the number of rows just done.

    Raises:
        DataError: no row can be judged.
    """
    rows = list(islice(rows_of(run.recipe, source), limit))
    inputs = [run.task.columns.input_of(row.row) for row in rows]
    found: dict[Key, dict[int, list[Judgement]]] = {}
    words: Replacements | None = None
    notes: list[str] = []
    refused = 0
    with evaluating(run.model), torch.inference_mode(False):
        for number, task_input in enumerate(inputs):
            try:
                measured = Measured.of(run.model, prepare_input(run, task_input))
                if len(measured.features) < 2:
                    raise RequestError("a single word cannot be ranked")
            except (RequestError, DataError):
                refused += 1
                progress(1)
                continue
            if words is None:
                words, notes = _words(run, measured, rows)
            for key, judgements in _judge(measured, words, draws, seed + number).items():
                found.setdefault(key, {})[number] = judgements
            progress(1)
    if not found:
        raise DataError(f"{split}: no input can be judged; it must have at least two words and an answer")
    if refused:
        notes.append(f"{refused} of {len(inputs)} inputs could not be judged (one word, or no answer)")
    counts = {"rows": len(inputs), "judged": len(inputs) - refused}
    signature = f"draws:{draws}|shares:{','.join(map(str, SHARES))}|seed:{seed}"
    scores = [
        _score(key, found[key], found[RANDOM, key[1]], signature, counts)
        for key in sorted(found, key=lambda key: key[1] != REPLACEMENT)
    ]
    locations = [str(row.location) for row in rows]
    return FaithfulnessEvaluation(split, scores, notes=notes, records=partial(_records, found, locations))


def _records(found: Mapping[Key, ByInput], locations: Sequence[str]) -> Iterator[JsonMapping]:
    """Yield the measures of each judged input, by method and judge."""
    for number in sorted({number for by_input in found.values() for number in by_input}):
        measures = [
            {"method": name, "judge": judge, **_means(by_input[number])}
            for (name, judge), by_input in found.items()
            if number in by_input
        ]
        yield {"row": locations[number], "methods": measures}


def _words(
    run: LoadedRun, measured: Measured, rows: Sequence[LocatedRow[Row]]
) -> tuple[Replacements, list[str]]:
    """Return replacements from the training data; from the evaluated rows if these are not at hand."""
    try:
        return training_replacements(run, measured), []
    except RequestError as error:
        note = f"words that replace others are those of the evaluated inputs ({error})"
        return replacements_from(run, texts_of(run, rows), measured), [note]


def _judge(measured: Measured, words: Replacements, draws: int, seed: int) -> dict[Key, list[Judgement]]:
    """Judge every method, and a random order by both judges."""
    replacements = {REPLACEMENT: words, LEAVING_OUT: None}
    judges = {by: occlusion(measured, each, draws=draws, seed=seed) for by, each in replacements.items()}
    methods = {
        (name, (*VIEWS[name].judges, REPLACEMENT)[0]): method(measured, words)
        for name, method in METHODS.items()
    }
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randn(judges[REPLACEMENT].shape, generator=generator, dtype=torch.float64)
    methods |= {(RANDOM, by): shuffled for by in judges}
    methods[OTHER_DRAWS, REPLACEMENT] = methods["replacement", LEAVING_OUT]
    found: dict[Key, list[Judgement]] = {}
    for part in _parts(measured):
        for (name, by), scores in methods.items():
            judged, ranked = (each[:, part].sum(1).cpu().numpy() for each in (judges[by], scores))
            valid = np.flatnonzero(~np.isnan(judged) & ~np.isnan(ranked))
            if len(valid) < 2:
                continue
            order = valid[np.argsort(-ranked[valid], kind="stable")]
            removed, kept = set_effects(measured, replacements[by], order, part, draws, seed)
            found.setdefault((name, by), []).append(_judgement(ranked[valid], judged[valid], removed, kept))
    return found


def _parts(measured: Measured) -> list[list[int]]:
    """Return the parts of the answer that are judged together: all words of a written text, or each label."""
    every = list(range(len(measured.answers)))
    return [every] if measured.prepared.targets.are_tokens else [[part] for part in every[:MOST_PARTS]]


def set_effects(
    measured: Measured,
    words: Replacements | None,
    order: NDArray[np.intp],
    part: Sequence[int],
    draws: int,
    seed: int,
) -> tuple[float, float]:
    """Return comprehensiveness and sufficiency of an order of features."""
    sizes = [max(1, math.ceil(share * len(order))) for share in SHARES]
    distinct = sorted({*sizes})
    first = [order[:size].tolist() for size in distinct]
    others = [order[size:].tolist() for size in distinct]
    changes = effects(measured, [*first, *others], words, draws=draws, seed=seed, as_probability=True)
    means = changes[:, part].mean(1).tolist()
    by_size = dict(
        zip(distinct, zip(means[: len(distinct)], means[len(distinct) :], strict=True), strict=True)
    )
    removed, kept = zip(*(by_size[size] for size in sizes), strict=True)
    return sum(removed) / len(sizes), sum(kept) / len(sizes)


def _judgement(scores: Scores, judged: Scores, removed: float, kept: float) -> Judgement:
    strong = np.abs(judged) > STRONG * np.abs(judged).max()
    signs = float((np.sign(scores) == np.sign(judged))[strong].mean()) if strong.any() else math.nan
    top_sign = top = math.nan
    if judged.max() > 0:
        top_sign, top = float(scores[judged.argmax()] > 0), float(scores.argmax() == judged.argmax())
    return Judgement(removed, kept, spearman(scores, judged), signs, top_sign, top)


def _means(judgements: Sequence[Judgement]) -> dict[str, float | None]:
    """Return the mean of each measure."""
    return {name: _mean([getattr(each, field) for each in judgements]) for name, field in FIELDS.items()}


def _score(
    key: Key,
    by_input: ByInput,
    by_random: ByInput,
    signature: str,
    counts: dict[str, int],
) -> Score:
    name, judge = key
    judgements = [each for parts in by_input.values() for each in parts]
    means = _means(judgements)
    value = means.pop("comprehensiveness")
    assert value is not None
    details: JsonObject = {
        "judge": judge,
        **means,
        "without_supporting_word": sum(math.isnan(each.top) for each in judgements),
    }
    if name in METHODS:
        details[OVER_RANDOM] = _over_random(by_input, by_random)
    label = f"{name}, {judge}" if name == RANDOM else name
    return Score(label, value, f"judge:{judge}|{signature}", details, {**counts, "answers": len(judgements)})


def _over_random(by_input: ByInput, by_random: ByInput) -> JsonObject | None:
    """Return the difference of comprehensiveness to a random order; None of a single input.

    The interval is that of a paired bootstrap over inputs.
    """
    numbers = [number for number in by_input if number in by_random]
    if len(numbers) < 2:
        return None
    random, own = (_comprehensiveness([each[n] for n in numbers]) for each in (by_random, by_input))
    compared = paired_test(random, own)
    verdict = BETTER if compared.low > 0 else WORSE if compared.high < 0 else BY_CHANCE
    return {
        "difference": compared.difference,
        "low": compared.low,
        "high": compared.high,
        "rows": compared.rows,
        "verdict": verdict,
    }


def _comprehensiveness(rows: Sequence[Sequence[Judgement]]) -> RowStatistics:
    """Return the statistics of the mean over all parts of the answers, by input."""
    sums = [sum(each.comprehensiveness for each in parts) for parts in rows]
    return ratio(sums, [len(parts) for parts in rows])


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that are defined; None if there is none."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else None
