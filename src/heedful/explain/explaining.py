"""From one input to an `Explanation`: what the run answers, and where the model looks, of any task.

The model runs once more over the input and its answer, all positions at once, as it always does: fast
kernels stay, and the weights of the layers and heads that are asked for are computed beside them from the
very queries and keys (`heedful.nn.taps.capture`). Nothing else takes memory.

Who stands along the axes is told in `heedful.explain.attention_sites` and `heedful.explain.reading`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.errors import RequestError
from heedful.explain.attention_sites import (
    EVERY_MAP,
    MEMORY,
    AttentionSite,
    Selection,
    chosen,
    refuse_text,
    refuse_too_much,
)
from heedful.explain.best_head import best_head
from heedful.explain.one_text import points_of, source_part
from heedful.explain.reading import ITS_BEST, AnswerOptions, ModelInput, Questions, read
from heedful.explain.sides import slots_side
from heedful.explain.view import Axis, Best, Explanation, Map
from heedful.explain.views import ALL, VIEWS, check_names, maker, refuse_absent, views_of
from heedful.nn.taps import capture
from heedful.tasks.prediction import Prediction

if TYPE_CHECKING:
    from heedful.runs.run import Run

LIMIT = 2**30
"""Bytes that attention maps may take, unless said otherwise: twelve layers of twelve heads over 512 tokens
take 0.16 GiB."""


def explain_input(
    run: "Run",
    input: Any,
    *,
    maps: Selection = EVERY_MAP,
    asked: AnswerOptions = ITS_BEST,
    views: Sequence[str] = (),
    others: Iterable[Any] = (),
    limit: int = LIMIT,
) -> Explanation:
    """Look inside a run while it answers one input.

    Args:
        run: of any task.
        input: as `Run.predict` takes one: a text, a pair of texts, an image.
        maps: whose attention is wanted; by default all.
        asked: how the input is answered; by default as the run does, and its best answer is looked at.
        views: names of `heedful.explain.views.VIEWS`, which are put into ``more``; or
            `heedful.explain.views.ALL`: all that the run and the input have.
        others: further inputs, for the views that look at several together; of them nothing else is told.
        limit: bytes that the maps may take, those of other inputs included.

    ``written`` has the log-probabilities of the tokens that were written, from the forced pass; of tokens
    that were given (the prompt of a language model) it has None, and the view ``losses`` tells of them too.
    Of a masked model, it has those of the tokens that were filled in, at the gaps.

    Raises:
        RequestError: the model has no attention, or not the layer, head or kind; the input is empty or too
            long, for the model or for the limit; there is no such view, or none of this model.
    """
    refuse_text("kinds", maps.kinds)
    refuse_text("views", views)
    check_names(views)
    wanted = _wanted(run, maps)
    is_all = ALL in views
    names = views_of(run) if is_all else views
    refuse_absent(run, names)
    others = list(others)
    if others and not any(VIEWS[name].is_over_inputs for name in names):
        together = " and ".join(name for name, view in VIEWS.items() if view.is_over_inputs)
        raise RequestError(
            f"{1 + len(others)} inputs: only the views {together} look at several together; add one of them, "
            "or give one input (a text with blanks in quotes)"
        )
    reading = read(run, input, asked)
    seen = _seen(run, input, reading, wanted, limit)
    if maps.layers is None and maps.heads is None:
        seen = replace(seen, best=_best(run, seen.maps))
    every = [seen, *_further(run, others, wanted, asked.decoding, limit, _taken(seen))]
    whole = [replace(each, maps=[own for own in each.maps if not own.is_part]) for each in every]
    more, absent = _more(run, reading, whole, names, is_all)
    return replace(seen, more=more, absent=absent)


def _more(
    run: "Run", reading: ModelInput, every: Sequence[Explanation], names: Sequence[str], is_all: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """The views by their names; where all were asked for, why those are left out that the input has not.

    Raises:
        RequestError: a view that was asked for by its name cannot be had of the input.
    """
    found, absent = {}, {}
    for name in names:
        try:
            found[name] = maker(name).compute(run, reading, every)
        except RequestError as error:
            if not is_all:
                raise
            absent[name] = str(error)
    return found, absent


def _seen(
    run: "Run", input: Any, reading: ModelInput, wanted: Sequence[AttentionSite], limit: int, taken: int = 0
) -> Explanation:
    """What is seen of an input, without views; the maps of inputs before it have ``taken`` some bytes.

    Raises:
        RequestError: it takes more than ``limit`` bytes.
    """
    sides = _with_slots(reading.sides, wanted)
    refuse_too_much(wanted, sides, limit, taken)
    maps, scores = _watched(run.model, reading, wanted)
    answer = (
        _scored(reading.answer, scores[reading.questions.given :]) if reading.is_given else reading.answer
    )
    return Explanation(
        task=run.recipe.task.kind,
        run=run.folder.path.resolve().name,
        input=input,
        answer=answer.to_dict(),
        sides=sides,
        maps=maps,
        written=written(reading.questions, sides, scores),
    )


def _further(
    run: "Run", others: Sequence[Any], wanted: Sequence[AttentionSite], decoding: Any, limit: int, taken: int
) -> Iterator[Explanation]:
    """What is seen of the inputs after the first.

    Raises:
        RequestError: with the number of the input, from 2.
    """
    for number, input in enumerate(others, 2):
        try:
            seen = _seen(run, input, read(run, input, AnswerOptions(decoding)), wanted, limit, taken)
        except RequestError as error:
            raise type(error)(f"input {number}: {error}") from None
        taken += _taken(seen)
        yield seen


def _taken(seen: Explanation) -> int:
    """Bytes of all weights."""
    return sum(each.weights.nbytes for each in seen.maps)


def _best(run: "Run", maps: Sequence[Map]) -> Best | None:
    """`Explanation.best`."""
    choice = best_head(run)
    if choice is None:
        return None
    for each in maps:
        if each.kind == "cross" and each.layer == choice.layer:
            return Best(each.tap, choice.head, choice.step)
    return None


def _wanted(run: "Run", maps: Selection) -> list[AttentionSite]:
    """The points to watch.

    Raises:
        RequestError: see `explain_input`.
    """
    if maps.kinds is not None and not maps.kinds:
        return []
    there_are = points_of(run)
    if not there_are:
        names = views_of(run)
        instead = f"; gradients: {VIEWS['gradients'].description}" if "gradients" in names else ""
        raise RequestError(f"{no_attention(run)}; it has the views {', '.join(names)} (--view NAME){instead}")
    return chosen(there_are, maps)


def no_attention(run: "Run") -> str:
    """Why the model of a run has no attention weights."""
    model = run.recipe.model
    if hasattr(model, "mixer"):
        return f"model.mixer={model.mixer} has no attention weights to look at"
    return f"this model (model.kind={model.kind}) has no attention weights to look at"


def _with_slots(sides: Mapping[str, Axis], wanted: Sequence[AttentionSite]) -> dict[str, Axis]:
    """The sides, with that of a compressed memory where it is looked at."""
    compressed = next((point for point in wanted if point.keys == MEMORY), None)
    if compressed is None:
        return dict(sides)
    return {**sides, MEMORY: slots_side(sides[compressed.queries], compressed.factor)}


@torch.no_grad()
def _watched(
    model: Any, reading: ModelInput, wanted: Sequence[AttentionSite]
) -> tuple[list[Map], list[float]]:
    """The maps, and the scores of the answers."""
    asked = {p.tap: None if len(p.heads) == p.n_heads else p.heads for p in wanted}
    batch = reading.batch
    with capture(model, asked) as seen:
        hidden = model(batch.inputs, batch.source)
    scores: list[float] = reading.questions.scores(hidden).tolist()
    return [_map(point, seen[point.tap][-1], reading.sides) for point in wanted], scores


def _map(point: AttentionSite, weights: Tensor, sides: Mapping[str, Axis]) -> Map:
    found, tap = weights[0].float().cpu().numpy(), point.tap
    if point.is_part:
        n_source, n_target = (len(sides[name].tokens) - 1 for name in (point.keys, point.queries))
        found, tap = source_part(found, n_source, n_target), f"{tap}[{point.queries}, {point.keys}]"
    return Map(
        tap, point.kind, point.layer, point.queries, point.keys, point.heads, found, is_part=point.is_part
    )


def _scored(answer: Prediction, scores: list[float]) -> Prediction:
    """The answer that was given, with what the model says of it."""
    return replace(answer, log_probs=scores, score=sum(scores))


def written(
    questions: Questions, sides: Mapping[str, Axis], scores: Sequence[float]
) -> dict[str, list[float | None]]:
    """`Explanation.written`."""
    if not questions.are_tokens:
        return {}
    found: list[float | None] = [None] * len(sides[questions.side].tokens)
    for i, (place, score) in enumerate(zip(questions.places, scores, strict=True)):
        if i >= questions.given:
            found[place] = score
    return {questions.side: found}
