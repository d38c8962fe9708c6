"""Build the HTML document of an explanation: numbers as JSON, facts as HTML, one style sheet and one script.

The document loads nothing. Its content security policy allows only its own script and style, by their
hashes, and embedded images, so markup or scripts in the input are never executed.
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.drawing.matrix import check_weights, thumbnail
from heedful.explain.drawings import Drawing, share_scales
from heedful.explain.page.packing import encode_base64, quantise, quantise_shades, strongest
from heedful.explain.provenance import settings_line
from heedful.explain.summary import (
    ABOUT_ATTENTION,
    alignment_of,
    probability_of_answer,
    probability_text,
    rounded_probability,
    summary_matrix,
)
from heedful.explain.views import VIEWS, view_module
from heedful.tasks.model_input import Axis
from heedful.tasks.prediction import answer_text
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

VERSION = 1
"""Format version of the JSON in the document."""

MAX_WHOLE_WEIGHTS = 1_500_000
"""Maximum total number of weights for which every matrix is stored whole (4 MB in base64)."""

LONGEST = 2000
"""Maximum characters of the input or an answer at the top of the document."""

ALTERNATIVES = 4
"""Maximum number of alternative answers at the top of the document."""

SCRIPT = ("base", "numbers", "colours", "heads", "head", "flows", "token", "further", "page")
"""Files of the page's script, in order; the last one starts it."""

ABOUT_WEIGHTS = (
    "Weights are stored to within 0.00001 and shown to four decimal places; thumbnail cells are means.",
    ABOUT_ATTENTION + " Views such as occlusion show which words decided.",
)
"""Notes at the end of a document that has attention maps."""

KINDS = ("tokens", "table", "patches", "heat", "image")
"""Kinds of drawings (`heedful.explain.drawings`)."""

_OF_AXES = ("tokens", "patches")

Head = int | None
"""Index of a head, from 0; None: the mean of the heads in the map."""


def page(explanation: "Explanation", *, exact: Sequence[tuple[str, int]] = ()) -> str:
    """Return an explanation as one HTML document, to be written in UTF-8.

    Equal explanations give equal documents. If all matrices together are small (`MAX_WHOLE_WEIGHTS`), all are
    stored whole. Otherwise the document has a thumbnail of every head, the largest weights of each row, and
    the whole matrices of the heads in ``exact``. `heedful.explain.page.packing` describes the precision.

    Args:
        explanation: the explanation.
        exact: heads whose matrix is stored whole: the tap of the map, and the index of the head, from 0.

    Raises:
        RequestError: ``exact`` names a head that is not in the explanation.
        ValueError: a weight is not between 0 and 1.
    """
    data = page_data(explanation, exact)
    style, script = asset("page.css"), "\n".join(asset(f"script/{name}.js") for name in SCRIPT)
    hashes = f"style-src {csp_hash(style)}; script-src {csp_hash(script)}"
    return Template(asset("page.html")).substitute(
        head=head_html(explanation, f"default-src 'none'; img-src data:; {hashes}", style),
        facts=_facts_html(explanation),
        script=script,
        data=as_script(data),
        provenance=provenance_html(explanation),
        about_weights="".join(f"\n{note}" for note in ABOUT_WEIGHTS if data["maps"]),
    )


def head_html(explanation: "Explanation", policy: str, style: str) -> str:
    """Return a document up to its body.

    Args:
        explanation: one of those that are shown; its run and task are the title.
        policy: what the document may load (Content-Security-Policy).
        style: its style sheet.
    """
    title = escape(f"{explanation.run}: {explanation.task}")
    return Template(asset("head.html")).substitute(policy=policy, title=title, style=style)


@cache
def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """Return the hash of an inline script or style in the form used by content security policies."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def as_script(value: object) -> str:
    """Return JSON that is safe inside a script element: ASCII, without ``<``.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def page_data(explanation: "Explanation", exact: Sequence[tuple[str, int]] = ()) -> JsonObject:
    """Return the data of the page's script, JSON-ready. Maps without weights are omitted.

    Raises:
        RequestError: ``exact`` names a head that is not in the explanation.
    """
    maps = [attention_map for attention_map in explanation.maps if attention_map.weights.size]
    whole_heads = _whole_heads(maps, exact)
    input_step_maps, best = _best_head(explanation)
    return {
        "version": VERSION,
        "sides": {name: _axis_json(axis) for name, axis in explanation.axes.items()},
        "maps": [
            *(_map_json(attention_map, whole_heads) for attention_map in maps),
            *input_step_maps,
            *_rollouts(explanation),
        ],
        "best": best,
        "written": {
            name: [None if log_prob is None else rounded_probability(log_prob) for log_prob in log_probs]
            for name, log_probs in explanation.log_probs.items()
            if any(
                log_prob is not None for log_prob in log_probs
            )  # none, for example, in a text without masks
        },
        "more": drawings(explanation),
    }


def _whole_heads(
    maps: Sequence[AttentionMap], exact: Iterable[tuple[str, int]]
) -> frozenset[tuple[str, Head]]:
    """Return the heads, and means of heads, whose matrices are stored whole."""
    heads_by_tap: dict[str, set[Head]] = {attention_map.tap: {*attention_map.heads} for attention_map in maps}
    for tap, head in exact:
        if tap not in heads_by_tap:
            raise RequestError(f"unknown tap {tap!r}; expected one of {sorted(heads_by_tap)}")
        if head not in heads_by_tap[tap]:
            expected = ", ".join(str(known) for known in sorted(heads_by_tap[tap], key=str))
            raise RequestError(f"exact: {tap} has no head {head}; expected one of {expected} (from 0)")
    sizes = [len(_heads_and_mean(attention_map)) * attention_map.weights[0].size for attention_map in maps]
    if sum(sizes) <= MAX_WHOLE_WEIGHTS:
        return frozenset(
            (attention_map.tap, head) for attention_map in maps for head in _heads_and_mean(attention_map)
        )
    requested: set[tuple[str, Head]] = {*exact}
    means = {
        (tap, None) for tap, heads in heads_by_tap.items() if {(tap, head) for head in heads} <= requested
    }
    return frozenset(requested | means)


def _heads_and_mean(attention_map: AttentionMap) -> list[Head]:
    """Return the heads of a map, followed by their mean if there are several."""
    return [*attention_map.heads, None] if len(attention_map.heads) > 1 else [*attention_map.heads]


def _map_json(attention_map: AttentionMap, whole_heads: frozenset[tuple[str, Head]]) -> JsonObject:
    rows, columns = attention_map.weights.shape[1:]
    queries, keys = ([""] * n for n in (rows, columns))
    head_entries = []
    for head in _heads_and_mean(attention_map):
        weights = (
            attention_map.weights.mean(axis=0, dtype=np.float64) if head is None else attention_map.head(head)
        )
        head_entries.append(
            _head_json(head, check_weights(keys, queries, weights), (attention_map.tap, head) in whole_heads)
        )
    return {
        "tap": attention_map.tap,
        "kind": attention_map.kind,
        "layer": attention_map.layer,
        "queries": attention_map.queries,
        "keys": attention_map.keys,
        "size": [rows, columns],
        "views": head_entries,
        **({"part": True} if attention_map.is_part else {}),
    }


def _best_head(explanation: "Explanation") -> tuple[list[JsonObject], JsonObject | None]:
    """Return the head with the best known alignment as ``tap`` and ``head``.

    If its rows are those of the input step, also return a map of its own, stored whole, whose rows are those
    of the target words.
    """
    if explanation.best is None:
        return [], None
    tap, head, step = astuple(explanation.best)
    if step == "output":
        return [], {"tap": tap, "head": head}
    (attention_map,) = (each for each in explanation.maps if each.tap == tap)
    weights = summary_matrix(explanation).weights[None].astype(np.float32)
    step_map = replace(attention_map, tap=f"{tap}.{step}", heads=(head or 0,), weights=weights)
    return [{**_whole_map(step_map, head), "read": True}], {"tap": step_map.tap, "head": head}


def _rollouts(explanation: "Explanation") -> list[JsonObject]:
    """Return the matrices of the view ``rollout`` as maps, stored whole and drawn as means of heads."""
    maps = []
    for number, matrix in enumerate(explanation.views.get("rollout", {}).get("matrices", ())):
        queries, keys = matrix["queries"], matrix["keys"]
        weights = np.asarray([matrix["weights"]], dtype=np.float32)
        if not weights.size:
            continue
        rollout_map = AttentionMap(
            f"rollout.{number}", "self" if queries == keys else "cross", 0, queries, keys, (0,), weights
        )
        maps.append({**_whole_map(rollout_map, None), "rollout": True})
    return maps


def _whole_map(attention_map: AttentionMap, head: Head) -> JsonObject:
    """Return a map with one matrix, stored whole, labelled with a head or, if None, as a mean."""
    packed = _map_json(attention_map, frozenset({(attention_map.tap, attention_map.heads[0])}))
    packed["views"][0]["head"] = head
    return packed


def _head_json(head: Head, weights: NDArray[np.float64], is_whole: bool) -> JsonObject:
    levels, cells = quantise(weights), thumbnail(weights)
    shades, largest = quantise_shades(cells)
    row, column = np.unravel_index(int(levels.argmax()), levels.shape)
    view = {
        "head": head,
        "strongest": [int(row), int(column), int(levels[row, column])],
        "cells": [*cells.shape],
        "shades": encode_base64(shades),
        "greatest": largest,
    }
    if is_whole:
        return {**view, "levels": encode_base64(levels)}
    columns, kept_levels = strongest(levels)
    return {**view, "places": encode_base64(columns), "kept": encode_base64(kept_levels)}


def drawings(explanation: "Explanation") -> list[JsonObject]:
    """Return the drawings of all views of an explanation, in order.

    A view with a ``kind`` is a drawing itself. Other views that have no module, and drawings of axes that the
    explanation does not have, are ignored.
    """
    found: list[JsonMapping | Drawing] = []
    for name, view in explanation.views.items():
        if view.get("kind") in KINDS:
            found.append(view)
        elif name in VIEWS:
            found += view_module(name).drawings(explanation, view)
    entries = [
        each.to_dict() if isinstance(each, Drawing) else dict(each)
        for each in share_scales(found)
        if not isinstance(each, Drawing) or "page" in each.media
    ]
    return [
        drawing
        for drawing in entries
        if drawing["kind"] not in _OF_AXES or "labels" in drawing or drawing["side"] in explanation.axes
    ]


def _axis_json(axis: Axis) -> JsonObject:
    image = axis.image and f"data:image/png;base64,{base64.b64encode(axis.image).decode('ascii')}"
    return {
        "tokens": axis.tokens,
        "words": axis.words,
        "surface": axis.surface,
        "grid": axis.grid,
        "before": axis.before,
        "image": image or None,
    }


def _facts_html(explanation: "Explanation") -> str:
    """Return the top of the document in plain HTML, readable without the script."""
    answer = explanation.answer
    facts = [("Input", quoted_html(input_text(explanation.input)))]
    if answer.get("error"):
        facts.append(("No answer", escape(answer["error"])))
    elif answer:
        facts.append(("Answer", answer_html(answer, explanation.task)))
    if answer.get("notes"):
        facts.append(("Note", escape("; ".join(answer["notes"]))))
    if answer.get("follows") is not None:
        facts.append(("Second text follows the first", f"probability {probability_text(answer['follows'])}"))
    if links := alignment_of(explanation):
        name, pairs = links
        facts.append((name.capitalize(), f'<span title="source-target, from 0">{escape(pairs)}</span>'))
    alternatives = answer.get("alternatives", ())[:ALTERNATIVES]
    if alternatives:
        items = "".join(
            f"<li>{answer_html(alternative, explanation.task)}</li>" for alternative in alternatives
        )
        facts.append(("Other answers", f"<ol>{items}</ol>"))
    for view, reason in explanation.unavailable.items():
        facts.append((f"No view {view}", escape(reason)))
    lines = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    run, task = escape(explanation.run), escape(explanation.task)
    heading = f'<h1><bdi>{run}</bdi> <span class="task">{task}</span></h1>'
    return f'{heading}\n<dl class="facts">{lines}</dl>'


def provenance_html(explanation: "Explanation") -> str:
    """Return what the document was made with; empty if that is not known."""
    provenance = explanation.provenance
    if not provenance:
        return ""
    weights = provenance.get("weights", "not known")
    return (
        f"\n<p>Model: run <bdi>{escape(explanation.run)}</bdi>, SHA-256 of its weights "
        f'<span class="hash">{escape(weights)}</span>. Made with heedful {escape(provenance["heedful"])}; '
        f"{escape(settings_line(provenance))}.</p>"
    )


def answer_html(answer: JsonMapping, task: str) -> str:
    """Return an answer with its probability, if it has one."""
    probability = probability_of_answer(answer, task)
    probability_html = f' <span class="p">{probability}</span>' if probability else ""
    text = answer_text(answer)
    return (quoted_html(text) if text else '<span class="hint">nothing</span>') + probability_html


def input_text(value: object) -> str:
    """Return an input as text."""
    if isinstance(value, str | Path | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {input_text(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return " | ".join(map(input_text, value))
    return "an image"


def quoted_html(text: str, longest: int = LONGEST) -> str:
    """Return a text in its own writing direction, truncated to a number of characters."""
    truncated = text if len(text) <= longest else text[:longest] + " \N{HORIZONTAL ELLIPSIS}"
    return f'<span class="quoted" dir="auto">{escape(truncated)}</span>'


def escape(text: str) -> str:
    """Escape a text for HTML; lone surrogates, which UTF-8 cannot encode, are replaced."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
