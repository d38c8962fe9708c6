"""Explain how a run of any task answers one input: compute the answer, attention maps and views.

The model runs once more over the input and its answer, all positions in parallel. Fast kernels stay in use;
the weights of the requested layers and heads are computed next to them from the same queries and keys
(`heedful.nn.taps.capture`). Only the requested weights take memory.

`heedful.explain.attention_sites` and `heedful.explain.reading` describe the axes of the maps.
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
from heedful.explain.one_text import sites_of, source_part
from heedful.explain.reading import ITS_BEST, AnswerOptions, ModelInput, Questions, read
from heedful.explain.sides import slots_side
from heedful.explain.view import Axis, Best, Explanation, Map
from heedful.explain.views import ALL, VIEWS, check_names, refuse_absent, view_module, views_of
from heedful.nn.taps import capture
from heedful.tasks.prediction import Prediction
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.run import Run

LIMIT = 2**30
"""Default maximum bytes of attention maps. 12 layers of 12 heads over 512 tokens take 0.16 GiB."""


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
    """Explain one input of a run.

    Args:
        run: of any task.
        input: in the form that `Run.predict` takes: a text, a pair of texts, an image.
        maps: selection of attention maps; all by default.
        asked: options for the answer; by default the run's best answer is explained.
        views: names of `heedful.explain.views.VIEWS`, which are stored in ``more``; or
            `heedful.explain.views.ALL`: all views that the run and the input support.
        others: further inputs, for the views over several inputs; they have no other effect.
        limit: maximum bytes of all maps, including those of other inputs.

    Returns:
        The explanation. ``written`` contains the log-probabilities of the predicted tokens, computed with
        teacher forcing, and None for given tokens (such as the prompt of a language model; the view
        ``losses`` covers those). For a masked language model these are the tokens filled in for the masks.

    Raises:
        RequestError: the model has no attention, or not the selected kind, layer or head; the input is empty,
            or too long for the model or the limit; or a view is unknown or not available for the model.
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
            f"only the views {together} support several inputs, got {1 + len(others)} inputs; add one of "
            "these views, or give one input (put a text with spaces in quotes)"
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
) -> tuple[JsonObject, dict[str, str]]:
    """Return the requested views by name and, if all were requested, why views are missing.

    Raises:
        RequestError: a view that was requested by name is not available for the input.
    """
    found, absent = {}, {}
    for name in names:
        try:
            found[name] = view_module(name).compute(run, reading, every)
        except RequestError as error:
            if not is_all:
                raise
            absent[name] = str(error)
    return found, absent


def _seen(
    run: "Run", input: Any, reading: ModelInput, wanted: Sequence[AttentionSite], limit: int, taken: int = 0
) -> Explanation:
    """Return the explanation of one input without views; maps of previous inputs take ``taken`` bytes.

    Raises:
        RequestError: the maps need more than ``limit`` bytes.
    """
    sides = _with_slots(reading.sides, wanted)
    refuse_too_much(wanted, sides, limit, taken)
    maps, scores = _captured(run.model, reading, wanted)
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
    """Yield the explanations of the other inputs.

    Raises:
        RequestError: an input cannot be explained; the message starts with its number, from 2.
    """
    for number, input in enumerate(others, 2):
        try:
            seen = _seen(run, input, read(run, input, AnswerOptions(decoding)), wanted, limit, taken)
        except RequestError as error:
            raise type(error)(f"input {number}: {error}") from None
        taken += _taken(seen)
        yield seen


def _taken(seen: Explanation) -> int:
    """Return the bytes of all weights."""
    return sum(each.weights.nbytes for each in seen.maps)


def _best(run: "Run", maps: Sequence[Map]) -> Best | None:
    """Return the value of `Explanation.best`."""
    choice = best_head(run)
    if choice is None:
        return None
    for each in maps:
        if each.kind == "cross" and each.layer == choice.layer:
            return Best(each.tap, choice.head, choice.step)
    return None


def _wanted(run: "Run", maps: Selection) -> list[AttentionSite]:
    """Return the attention sites to capture.

    Raises:
        RequestError: as in `explain_input`.
    """
    if maps.kinds is not None and not maps.kinds:
        return []
    sites = sites_of(run)
    if not sites:
        names = views_of(run)
        gradients = f"; gradients: {VIEWS['gradients'].description}" if "gradients" in names else ""
        raise RequestError(
            f"{no_attention(run)}; available views: {', '.join(names)} (--view NAME){gradients}"
        )
    return chosen(sites, maps)


def no_attention(run: "Run") -> str:
    """Return a message that the model of a run has no attention weights, and why."""
    model = run.recipe.model
    if hasattr(model, "layer"):
        return f"model.layer.mixer.kind={model.layer.mixer.kind} has no attention weights"
    return f"this model (model.kind={model.kind}) has no attention weights"


def _with_slots(sides: Mapping[str, Axis], wanted: Sequence[AttentionSite]) -> dict[str, Axis]:
    """Return the sides, with the memory slots if a selected site attends to them."""
    compressed = next((site for site in wanted if site.keys == MEMORY), None)
    if compressed is None:
        return dict(sides)
    return {**sides, MEMORY: slots_side(sides[compressed.queries], compressed.factor)}


@torch.no_grad()
def _captured(
    model: Any, reading: ModelInput, wanted: Sequence[AttentionSite]
) -> tuple[list[Map], list[float]]:
    """Run the model; return the maps, and the scores of the answers."""
    asked = {p.tap: None if len(p.heads) == p.n_heads else p.heads for p in wanted}
    batch = reading.batch
    with capture(model, asked) as seen:
        hidden = model(batch.inputs, batch.source)
    scores: list[float] = reading.questions.scores(hidden).tolist()
    return [_map(site, seen[site.tap][-1], reading.sides) for site in wanted], scores


def _map(site: AttentionSite, weights: Tensor, sides: Mapping[str, Axis]) -> Map:
    found, tap = weights[0].float().cpu().numpy(), site.tap
    if site.is_part:
        n_source, n_target = (len(sides[name].tokens) - 1 for name in (site.keys, site.queries))
        found, tap = source_part(found, n_source, n_target), f"{tap}[{site.queries}, {site.keys}]"
    return Map(tap, site.kind, site.layer, site.queries, site.keys, site.heads, found, is_part=site.is_part)


def _scored(answer: Prediction, scores: list[float]) -> Prediction:
    """Return the given answer with its scores under the model."""
    return replace(answer, log_probs=scores, score=sum(scores))


def written(
    questions: Questions, sides: Mapping[str, Axis], scores: Sequence[float]
) -> dict[str, list[float | None]]:
    """Return the value of `Explanation.written`."""
    if not questions.are_tokens:
        return {}
    found: list[float | None] = [None] * len(sides[questions.side].tokens)
    for i, (place, score) in enumerate(zip(questions.places, scores, strict=True)):
        if i >= questions.given:
            found[place] = score
    return {questions.side: found}
