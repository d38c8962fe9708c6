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
the answers that a word supports, as judged. Sign agreement and top sign are not defined for gradients, whose
sign is not evidence.

Replacement is also judged by itself, with other replacements, as ``other draws``: about the most that a
method can reach in what is about single words (rank, signs, top). Whether a method is better than a random
order by the same judge is decided by the 95 % interval of their difference of comprehensiveness
(`heedful.tasks.metrics.significance`). Measures by different judges are not comparable.
"""

import html
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic

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

OVER_BEST = "over_best"
"""Entry of a score's details: the difference of its value to the best one by the same judge, if it is not the
best."""

SIGNED = ("sign_agreement", "top_sign")
"""Measures that are not defined for views without signs."""

BETTER = "better than a random order"
WORSE = "worse than a random order"
BY_CHANCE = "not better beyond chance"

TIMED, LONG = 5, 15.0
"""Number of inputs by which the time is estimated, and the seconds from which it is logged."""

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

    def __str__(self) -> str:
        return "\n".join([self.heading, *self.lines(), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the same text in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    @property
    def heading(self) -> str:
        """The data set, and how many inputs were judged."""
        counts = self.scores[0].counts
        return f"{self.split}: {counts['judged']:,} of {counts['rows']:,} inputs"

    @property
    def conclusion(self) -> str:
        """Which view found the deciding words best on these inputs, in a sentence; empty of one input.

        Only views with the same judge are compared. A view whose interval of the difference to the best one
        contains 0 is as good.
        """
        compared = [score for score in self.scores if score.details.get(OVER_RANDOM)]
        parts = []
        for judge in dict.fromkeys(score.details["judge"] for score in compared):
            group = [score for score in compared if score.details["judge"] == judge]
            parts.append(_best_of(group, judge))
        if not parts:
            return ""
        text = f"On these inputs, {'; '.join(parts)}"
        if len(parts) > 1:
            text += " (judges cannot be compared)"
        others = [score.name for score in compared if score.details[OVER_RANDOM]["verdict"] != BETTER]
        return f"{text}. Not better than a random order: {', '.join(others) or 'none'}."

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
        yield "  compr.: comprehensiveness, the fall of the probability without the words that"
        yield "  are ranked first: higher is better; suffic.: sufficiency, its fall with only"
        yield "  these words: lower is better"
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
        if self.conclusion:
            yield ""
            yield from textwrap.wrap(self.conclusion, 78, initial_indent="  ", subsequent_indent="  ")

    def rows(self) -> Iterator[JsonMapping]:
        """The measures of each input, with the version of their format."""
        return ({"version": VERSION, **record} for record in self.records())


def _best_of(scores: Sequence[Score], judge: str) -> str:
    """Return which of the views of a judge was best."""
    best = max(scores, key=float)
    if best.details[OVER_RANDOM]["verdict"] != BETTER:
        return f"no view judged by {judge} was better than a random order"
    if len(scores) == 1:
        return f"{best.name}, the only view judged by {judge}, was better than a random order"
    equal = [
        score.name
        for score in scores
        if score.details.get(OVER_BEST) and score.details[OVER_BEST]["high"] >= 0
    ]
    text = f"of the views judged by {judge}, {best.name} found the deciding words best"
    return f"{text}, and {' and '.join(equal)} as well within chance" if equal else text


def evaluate_faithfulness(
    run: LoadedRun,
    split: str,
    source: Source,
    *,
    limit: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
    log: Callable[[str], None] = lambda line: None,
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
        log: called once with an estimate of the time, unless it is short.

    Raises:
        DataError: no row can be judged.
    """
    rows = list(islice(rows_of(run.recipe, source), limit))
    inputs = [run.task.columns.input_of(row.row) for row in rows]
    found: dict[Key, dict[int, list[Judgement]]] = {}
    words: Replacements | None = None
    notes: list[str] = []
    refused = 0
    start = monotonic()
    with evaluating(run.model), torch.inference_mode(False):
        for number, task_input in enumerate(inputs):
            if number == TIMED and (seconds := (monotonic() - start) / TIMED * len(inputs)) >= LONG:
                log(f"{split}: {len(inputs):,} inputs take about {_duration(seconds)}; --limit N takes fewer")
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
    best = {judge: _best_method(found, judge) for _, judge in found}
    scores = [
        _score(key, found[key], found[RANDOM, key[1]], found[best[key[1]]], signature, counts)
        for key in sorted(found, key=lambda key: key[1] != REPLACEMENT)
    ]
    locations = [str(row.location) for row in rows]
    return FaithfulnessEvaluation(split, scores, notes=notes, records=partial(_records, found, locations))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _records(found: Mapping[Key, ByInput], locations: Sequence[str]) -> Iterator[JsonMapping]:
    """Yield the measures of each judged input, by method and judge."""
    for number in sorted({number for by_input in found.values() for number in by_input}):
        measures = [
            {"method": name, "judge": judge, **_means(by_input[number], name)}
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


def _means(judgements: Sequence[Judgement], method: str) -> dict[str, float | None]:
    """Return the mean of each measure; None of those of signs if the method has none."""
    undefined = SIGNED if method in METHODS and not VIEWS[method].has_word_scores else ()
    return {
        name: None if name in undefined else _mean([getattr(each, field) for each in judgements])
        for name, field in FIELDS.items()
    }


def _best_method(found: Mapping[Key, ByInput], judge: str) -> Key:
    """Return the method with the highest comprehensiveness of those with this judge."""
    keys = [key for key in found if key[1] == judge and key[0] in METHODS]
    values = {
        key: np.mean([each.comprehensiveness for parts in found[key].values() for each in parts])
        for key in keys
    }
    return max(keys, key=lambda key: values[key])


def _score(
    key: Key,
    by_input: ByInput,
    by_random: ByInput,
    by_best: ByInput,
    signature: str,
    counts: dict[str, int],
) -> Score:
    name, judge = key
    judgements = [each for parts in by_input.values() for each in parts]
    means = _means(judgements, name)
    value = means.pop("comprehensiveness")
    assert value is not None
    details: JsonObject = {
        "judge": judge,
        **means,
        "without_supporting_word": sum(math.isnan(each.top) for each in judgements),
    }
    if name in METHODS:
        details[OVER_RANDOM] = _over_random(by_input, by_random)
        if by_best is not by_input:
            details[OVER_BEST] = _difference(by_best, by_input)
    label = f"{name}, {judge}" if name == RANDOM else name
    return Score(label, value, f"judge:{judge}|{signature}", details, {**counts, "answers": len(judgements)})


def _over_random(by_input: ByInput, by_random: ByInput) -> JsonObject | None:
    """Return the difference of comprehensiveness to a random order, and the verdict."""
    over = _difference(by_random, by_input)
    if over is None:
        return None
    verdict = BETTER if over["low"] > 0 else WORSE if over["high"] < 0 else BY_CHANCE
    return {**over, "verdict": verdict}


def _difference(by_first: ByInput, by_second: ByInput) -> JsonObject | None:
    """Return the difference of comprehensiveness of two methods; None of a single input.

    The interval is that of a paired bootstrap over inputs.
    """
    numbers = [number for number in by_second if number in by_first]
    if len(numbers) < 2:
        return None
    first, second = (_comprehensiveness([each[n] for n in numbers]) for each in (by_first, by_second))
    compared = paired_test(first, second)
    return {
        "difference": compared.difference,
        "low": compared.low,
        "high": compared.high,
        "rows": compared.rows,
    }


def _comprehensiveness(rows: Sequence[Sequence[Judgement]]) -> RowStatistics:
    """Return the statistics of the mean over all parts of the answers, by input."""
    sums = [sum(each.comprehensiveness for each in parts) for parts in rows]
    return ratio(sums, [len(parts) for parts in rows])


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that are defined; None if there is none."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else None
