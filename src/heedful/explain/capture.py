"""Explain how a run of any task answers one input: compute the answer, attention maps and views.

The model runs once more over the input and its answer, all positions in parallel. Fast kernels stay in use;
the weights of the requested layers and heads are computed next to them from the same queries and keys
(`heedful.nn.taps.capture`). Only the requested weights take memory.

`heedful.tasks.model_input` describes the axes of the maps, `heedful.explain.attention_sites` the maps of each
model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from heedful.errors import DataError, RequestError
from heedful.explain.alignment.best_head import best_head
from heedful.explain.attention_map import MEMORY, AttentionMap, BestHead
from heedful.explain.attention_sites import (
    EVERY_MAP,
    AttentionSite,
    Selection,
    check_is_list,
    check_memory_limit,
    select_sites,
    sites_of,
    source_part,
)
from heedful.explain.explanation import Explanation
from heedful.explain.provenance import provenance_of
from heedful.explain.views import ALL, VIEWS, check_available, check_names, view_module, views_of
from heedful.limits import too_large
from heedful.nn.taps import capture
from heedful.runs.arguments import check_size, inputs_of
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import AnswerOptions, Axis, ModelInput, PredictionTargets, texts_in
from heedful.tasks.prediction import GIVEN, Prediction, TaskInput
from heedful.text.scripts import NO_WORD
from heedful.typing import JsonObject

LIMIT = 2**30
"""Default maximum bytes at the peak of the capture; 12 layers of 12 heads over 512 tokens take 0.18 GiB."""

BEST_ANSWER = AnswerOptions()


def explain_input(
    run: LoadedRun,
    input: TaskInput,
    *,
    maps: Selection = EVERY_MAP,
    options: AnswerOptions = BEST_ANSWER,
    views: Sequence[str] = (),
    others: Iterable[TaskInput] = (),
    limit: int = LIMIT,
) -> Explanation:
    """Explain one input of a run.

    Args:
        run: of any task.
        input: in the form that `heedful.Run.predict` takes: a text, a pair of texts, an image.
        maps: selection of attention maps; all by default.
        options: options for the answer; by default the run's best answer is explained.
        views: names of `heedful.explain.views.VIEWS`, which are stored in ``views``; or
            `heedful.explain.views.ALL`: all views that the run and the input support.
        others: further inputs, for the views over several inputs; they have no other effect.
        limit: maximum bytes of all maps, including those of other inputs.

    Returns:
        The explanation. ``log_probs`` contains the log-probabilities of the predicted tokens, computed with
        teacher forcing, and None for given tokens (such as the prompt of a language model; the view
        ``losses`` covers those). For a masked language model these are the tokens filled in for the masks.

    Raises:
        RequestError: the model has no attention, or not the selected kind, layer or head; the input is empty,
            or too long for the model or the limit; a view is unknown or not available for the model; or no
            requested view is available for the input (if one is, ``unavailable`` says why others are not).
    """
    check_is_list("kinds", maps.kinds)
    check_is_list("views", views)
    check_names(views)
    sites = _selected_sites(run, maps)
    others, is_all = list(others), ALL in views
    names = views_of(run) if is_all else views
    check_available(run, names, 1 + len(others))
    prepared = prepare_input(run, input, options)
    explanation = capture_maps(run, input, prepared, sites, limit)
    if options.target is not None and explanation.log_probs:
        (log_probs,) = explanation.log_probs.values()
        predicted = [log_prob for log_prob in log_probs if log_prob is not None]
        explanation = replace(
            explanation, answer={**explanation.answer, "log_probs": predicted, "score": sum(predicted)}
        )
    if maps.layers is None and maps.heads is None:
        explanation = replace(explanation, best=_best_head(run, explanation.maps))
    explanations = [explanation]
    for number, other in enumerate(others, 2):
        used_bytes = sum(
            attention_map.weights.nbytes for explained in explanations for attention_map in explained.maps
        )
        try:
            prepared_other = prepare_input(run, other, AnswerOptions(options.decoding))
            explanations.append(capture_maps(run, other, prepared_other, sites, limit, used_bytes))
        except RequestError as error:
            raise type(error)(f"input {number}: {error}") from None
    explained = _with_views(run, prepared, explanations, names, is_all)
    provenance = provenance_of(run, maps, options, [*explained.views], len(explanations))
    return replace(explained, provenance=provenance)


def _selected_sites(run: LoadedRun, maps: Selection) -> list[AttentionSite]:
    """Return the attention sites to capture.

    Raises:
        RequestError: as in `explain_input`.
    """
    if maps.kinds is not None and not maps.kinds:
        return []
    sites = sites_of(run)
    if not sites:
        model, view_names = run.recipe.model, views_of(run)
        setting = f"model.layer.mixer.kind={model.layer.mixer.kind}" if hasattr(model, "layer") else ""
        gradients = f"; gradients: {VIEWS['gradients'].description}" if "gradients" in view_names else ""
        raise RequestError(
            f"{setting or f'this model (model.kind={model.kind})'} has no attention weights; choose a view "
            f"(available views: {', '.join(view_names)}){gradients}"
        )
    return select_sites(sites, maps)


def prepare_input(run: LoadedRun, input: TaskInput, options: AnswerOptions = BEST_ANSWER) -> ModelInput:
    """Prepare and answer one input, on the device of the model.

    Raises:
        RequestError: the input is empty, too long or of the wrong type, or the requested answer does not
            exist.
    """
    columns = run.task.columns
    check_size(input, columns, "the input")
    if columns.input_lists:
        inputs_of(columns, [input])
    elif not columns.images:
        texts_in(input, columns, run.recipe.task.kind)
    if problem := too_large(options.target, columns.longest_text):
        raise RequestError(f"target: {problem}")
    options.check()
    if options.target is not None and run.task.info.writes:
        answer = Prediction(options.target, notes=(GIVEN,))
    else:
        answer = _predicted_answer(run, input, options)
    prepared = run.task.model_input(run.model, input, options, answer)
    return replace(prepared, batch=prepared.batch.to(next(run.model.parameters()).device))


def _predicted_answer(run: LoadedRun, input: TaskInput, options: AnswerOptions) -> Prediction:
    """Return the answer predicted as by `heedful.Run.predict`.

    Raises:
        DataError: the input cannot be read.
        RequestError: the requested alternative does not exist.
    """
    rank, decoding = options.alternative, options.decoding or run.recipe.decoding
    prefix = f"alternative {rank} does not exist: "
    if rank and getattr(decoding, "kind", None) == "greedy":
        raise RequestError(
            f"{prefix}greedy decoding returns one answer; set the kind of decoding to beam, and its beam to "
            f"{rank + 1}"
        )
    beam = getattr(decoding, "beam", None)
    if beam is not None and rank >= beam:
        raise RequestError(
            f"{prefix}a beam of {beam} returns the answers 0 (the best) to {beam - 1}; set the beam of the "
            f"decoding to {rank + 1}"
        )
    has_several = "n_best" in run.task.info.options or run.recipe.decoding is not None
    n_best = rank + 1 if rank and has_several else None
    predictor = run.predictor(
        decoding=options.decoding, n_best=n_best, max_new_tokens=run.task.most_new_tokens(input)
    )
    (best,) = predictor.predict([input])
    if best.error:
        raise DataError(best.error)
    answers = [best, *best.alternatives]
    if rank >= len(answers):
        n_answers = "1 answer" if len(answers) == 1 else f"{len(answers)} answers"
        ranks = "0" if len(answers) == 1 else f"0 (the best) to {len(answers) - 1}"
        raise RequestError(f"{prefix}the run returned {n_answers}; expected {ranks}")
    return replace(answers[rank], notes=best.notes)  # notes on the input come with the best answer


@torch.no_grad()
def capture_maps(
    run: LoadedRun,
    input: TaskInput,
    prepared: ModelInput,
    sites: Sequence[AttentionSite],
    limit: int,
    used_bytes: int = 0,
) -> Explanation:
    """Run the model once with the taps of the sites captured; return the explanation without views.

    Args:
        run: the run.
        input: the input as it was passed.
        prepared: the same in the form the model reads.
        sites: the attention to capture.
        limit: maximum bytes of all maps.
        used_bytes: bytes of the maps of previous inputs.

    Raises:
        RequestError: the maps need more memory.
    """
    axes = {**prepared.axes}
    for site in sites:
        if site.keys == MEMORY:
            axes[MEMORY] = slots_axis(axes[site.queries], site.factor)
    check_memory_limit(sites, axes, limit, used_bytes)
    batch, targets = prepared.batch, prepared.targets
    heads = {site.tap: None if len(site.heads) == site.n_heads else site.heads for site in sites}
    with capture(run.model, heads) as captured:
        hidden = run.model(batch.inputs, batch.source)
    scores: list[float] = targets.scores(hidden, batch).tolist()
    maps = [_attention_map(site, captured[site.tap][-1], axes) for site in sites]
    task, name, answer = run.recipe.task.kind, run.folder.path.resolve().name, prepared.answer.to_dict()
    return Explanation(task, name, input, answer, axes, maps, _log_probs(targets, axes, scores))


def slots_axis(axis: Axis, factor: int) -> Axis:
    """Return the axis of a compressed memory (`heedful.nn.attention.compressed`).

    Its slots are the first token and one per block of ``factor`` tokens.
    """
    end = len(axis.tokens) - len(axis.tokens) % factor
    blocks = [" ".join(axis.tokens[i : i + factor]) for i in range(0, end, factor)]
    tokens = (*axis.tokens[:1], *blocks)
    return Axis(tokens, (NO_WORD,) * len(tokens))


def _attention_map(site: AttentionSite, captured: torch.Tensor, axes: Mapping[str, Axis]) -> AttentionMap:
    weights, tap = captured[0].float().cpu().numpy(), site.tap
    if site.is_part:
        n_source, n_target = (len(axes[name].tokens) - 1 for name in (site.keys, site.queries))
        weights, tap = source_part(weights, n_source, n_target), f"{tap}[{site.queries}, {site.keys}]"
    return AttentionMap(
        tap, site.kind, site.layer, site.queries, site.keys, site.heads, weights, site.is_part
    )


def _log_probs(
    targets: PredictionTargets, axes: Mapping[str, Axis], scores: Sequence[float]
) -> dict[str, list[float | None]]:
    """Return the value of `Explanation.log_probs`."""
    if not targets.are_tokens:
        return {}
    log_probs: list[float | None] = [None] * len(axes[targets.axis].tokens)
    for position, score in list(zip(targets.positions, scores, strict=True))[targets.n_given :]:
        log_probs[position] = score
    return {targets.axis: log_probs}


def _best_head(run: LoadedRun, maps: Sequence[AttentionMap]) -> BestHead | None:
    choice = best_head(run)
    if choice is None:
        return None
    for attention_map in maps:
        if attention_map.kind == "cross" and attention_map.layer == choice.layer:
            return BestHead(attention_map.tap, choice.head, choice.step)
    return None


def _with_views(
    run: LoadedRun,
    prepared: ModelInput,
    explanations: Sequence[Explanation],
    names: Sequence[str],
    is_all: bool,
) -> Explanation:
    """Return the first explanation with the requested views, and why some are missing.

    Raises:
        RequestError: views were requested by name, and none of them is available for the input.
    """
    without_parts = [
        replace(explanation, maps=[m for m in explanation.maps if not m.is_part])
        for explanation in explanations
    ]
    views: JsonObject = {}
    problems: dict[str, RequestError] = {}
    for name in names:
        try:
            views[name] = view_module(name).compute(run, prepared, without_parts)
        except RequestError as error:
            problems[name] = error
    if problems and not views and not is_all:
        raise next(iter(problems.values()))
    unavailable = {name: str(error) for name, error in problems.items()}
    return replace(explanations[0], views=views, unavailable=unavailable)
