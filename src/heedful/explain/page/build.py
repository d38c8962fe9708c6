"""From an explanation to the document: its numbers as JSON, its facts as HTML, one style and one script.

The document may reach nothing: its content security policy allows this very script and this very style,
known by their hashes, and images that stand inside it. What the input says can therefore never run.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.matrix import checked
from heedful.explain.page.further import drawings
from heedful.explain.page.packing import levels_of, shades_of, strongest, text_of
from heedful.explain.summary import alignment_of, mean_of
from heedful.explain.thumbnails import thumbnail
from heedful.explain.view import Axis, Explanation, Map

VERSION = 1
"""Of the numbers inside the document."""

WHOLE = 1_500_000
"""Up to so many weights in all, every matrix is there whole (4 MB in base64)."""

LONGEST = 2000
"""Signs of the input or an answer that stand in the head of the document."""

ALTERNATIVES = 4
"""How many other answers stand there."""

SCRIPT = ("base", "numbers", "colours", "heads", "head", "flows", "token", "further", "page")
"""The files of the page's script, in their order: the last one begins."""

DIGITS = 6
"""Digits of a probability."""

ABOUT_WEIGHTS = (
    "Weights are stored to within 0.00001 and shown to four digits; thumbnails are means over areas.",
    "A weight says where a head looked, not why the answer came out.",
)
"""At the foot of a document that has some."""

_LABELLING = ("classification", "image-classification", "question-answering")

Head = int | None
"""A head, counted from 0; None: the mean of those that are there."""


def page(explanation: Explanation, *, exact: Sequence[tuple[str, int]] = ()) -> str:
    """One HTML document, to be written in UTF-8. Equal explanations give equal documents.

    Where all matrices together are small (`WHOLE`), all are there. Otherwise every head has a thumbnail and
    the strongest links of each of its rows, and those named by ``exact`` have all their weights. How exact
    these are, `heedful.explain.page.packing` says.

    Args:
        explanation: what is drawn.
        exact: heads of which every weight is wanted: the tap of their map, and their number from 0.

    Raises:
        RequestError: ``exact`` names a head that the explanation does not have.
        ValueError: a weight is not from 0 to 1.
    """
    numbers = numbers_of(explanation, exact)
    style, script = _part("page.css"), "\n".join(_part(f"script/{name}.js") for name in SCRIPT)
    return Template(_part("page.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        title=_escaped(f"{explanation.run}: {explanation.task}"),
        facts=_facts(explanation),
        style=style,
        script=script,
        data=as_script(numbers),
        about_weights="".join(f"\n{each}" for each in ABOUT_WEIGHTS if numbers["maps"]),
    )


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a content security policy names what stands between two tags."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def as_script(value: Any) -> str:
    """JSON that can stand inside a script element: plain ASCII without a single ``<``.

    Raises:
        ValueError: a number is not finite.
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c")


def numbers_of(explanation: Explanation, exact: Sequence[tuple[str, int]] = ()) -> dict[str, Any]:
    """What the script draws, JSON-ready. Maps without a single weight are left out.

    Raises:
        RequestError: ``exact`` names a head that is not there.
    """
    maps = [each for each in explanation.maps if each.weights.size]
    wanted = _wanted(maps, exact)
    read, best = _best(explanation)
    return {
        "version": VERSION,
        "sides": {name: _side(side) for name, side in explanation.sides.items()},
        "maps": [*(_map(each, wanted) for each in maps), *read, *_rollouts(explanation)],
        "best": best,
        "written": {
            name: [None if each is None else _probability(each) for each in log_probs]
            for name, log_probs in explanation.written.items()
            if any(each is not None for each in log_probs)  # a text without a gap, say, has none
        },
        "more": drawings(explanation),
    }


def _wanted(maps: Sequence[Map], exact: Iterable[tuple[str, int]]) -> frozenset[tuple[str, Head]]:
    """The heads, and means of heads, whose matrices are there whole."""
    known: dict[str, set[Head]] = {each.tap: {*each.heads} for each in maps}
    for tap, head in exact:
        if tap not in known:
            raise RequestError(f"there are no weights of {tap!r}; there are some of {sorted(known)}")
        if head not in known[tap]:
            raise RequestError(f"{tap} has no head {head + 1} here")
    if sum(len(_views(each)) * each.weights[0].size for each in maps) <= WHOLE:
        return frozenset((each.tap, head) for each in maps for head in _views(each))
    asked: set[tuple[str, Head]] = {*exact}
    means = {(tap, None) for tap, heads in known.items() if {(tap, head) for head in heads} <= asked}
    return frozenset(asked | means)


def _views(each: Map) -> list[Head]:
    """The heads, then their mean, where there is more than one."""
    return [*each.heads, None] if len(each.heads) > 1 else [*each.heads]


def _map(each: Map, wanted: frozenset[tuple[str, Head]]) -> dict[str, Any]:
    rows, columns = each.weights.shape[1:]
    queries, keys = ([""] * n for n in (rows, columns))
    views = []
    for head in _views(each):
        weights = each.weights.mean(axis=0, dtype=np.float64) if head is None else each.head(head)
        views.append(_view(head, checked(keys, queries, weights), (each.tap, head) in wanted))
    return {
        "tap": each.tap,
        "kind": each.kind,
        "layer": each.layer,
        "queries": each.queries,
        "keys": each.keys,
        "size": [rows, columns],
        "views": views,
        **({"part": True} if each.is_part else {}),
    }


def _best(explanation: Explanation) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The head that is known to align best, as ``tap`` and ``head``.

    Where it aligns as it reads words, it has a map of its own, with every weight, whose rows are those of the
    words.
    """
    if explanation.best is None:
        return [], None
    tap, head, step = astuple(explanation.best)
    if step == "output":
        return [], {"tap": tap, "head": head}
    (own,) = (each for each in explanation.maps if each.tap == tap)
    weights = mean_of(explanation).weights[None].astype(np.float32)
    made = replace(own, tap=f"{tap}.{step}", heads=(head or 0,), weights=weights)
    return [{**_whole(made, head), "read": True}], {"tap": made.tap, "head": head}


def _rollouts(explanation: Explanation) -> list[dict[str, Any]]:
    """Those of the view ``rollout``, with every weight: drawn as attention is, as a mean of heads."""
    found = []
    for number, matrix in enumerate(explanation.more.get("rollout", {}).get("matrices", ())):
        queries, keys = matrix["queries"], matrix["keys"]
        weights = np.asarray([matrix["weights"]], dtype=np.float32)
        if not weights.size:
            continue
        made = Map(
            f"rollout.{number}", "self" if queries == keys else "cross", 0, queries, keys, (0,), weights
        )
        found.append({**_whole(made, None), "rollout": True})
    return found


def _whole(made: Map, head: Head) -> dict[str, Any]:
    """A map of one matrix, with every weight, which is that of a head or, with None, of a mean."""
    packed = _map(made, frozenset({(made.tap, made.heads[0])}))
    packed["views"][0]["head"] = head
    return packed


def _view(head: Head, weights: NDArray[np.float64], whole: bool) -> dict[str, Any]:
    levels, small = levels_of(weights), thumbnail(weights)
    shades, greatest = shades_of(small)
    row, column = np.unravel_index(int(levels.argmax()), levels.shape)
    view = {
        "head": head,
        "strongest": [int(row), int(column), int(levels[row, column])],
        "cells": [*small.shape],
        "shades": text_of(shades),
        "greatest": greatest,
    }
    if whole:
        return {**view, "levels": text_of(levels)}
    places, kept = strongest(levels)
    return {**view, "places": text_of(places), "kept": text_of(kept)}


def _side(side: Axis) -> dict[str, Any]:
    image = side.image and f"data:image/png;base64,{base64.b64encode(side.image).decode('ascii')}"
    return {
        "tokens": side.tokens,
        "words": side.words,
        "surface": side.surface,
        "grid": side.grid,
        "before": side.before,
        "image": image or None,
    }


def _probability(log_prob: float) -> float | None:
    """Short enough for JSON; None for NaN."""
    return None if math.isnan(log_prob) else float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def _facts(explanation: Explanation) -> str:
    """The head of the document, in plain HTML: what there is to know without a script."""
    answer = explanation.answer
    facts = [("Input", _quoted(_told(explanation.input)))]
    if answer.get("error"):
        facts.append(("No answer", _escaped(answer["error"])))
    elif answer:
        facts.append(("Answer", _answered(answer, explanation.task)))
    if answer.get("note"):
        facts.append(("Note", _escaped(answer["note"])))
    if answer.get("follows") is not None:
        facts.append(("The second text follows the first", f"probability {_number(answer['follows'])}"))
    if links := alignment_of(explanation):
        facts.append(("Word alignment", f'<span title="source-target, from 0">{_escaped(links)}</span>'))
    others = answer.get("alternatives", ())[:ALTERNATIVES]
    if others:
        items = "".join(f"<li>{_answered(other, explanation.task)}</li>" for other in others)
        facts.append(("Other answers", f"<ol>{items}</ol>"))
    lines = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    run, task = _escaped(explanation.run), _escaped(explanation.task)
    heading = f'<h1><bdi>{run}</bdi> <span class="task">{task}</span></h1>'
    return f'{heading}\n<dl class="facts">{lines}</dl>'


def _answered(answer: Mapping[str, Any], task: str) -> str:
    """The text of an answer, and how probable it is."""
    probability = _certainty(answer, task)
    shown = "" if probability is None else f' <span class="p">probability {_number(probability)}</span>'
    text = answer.get("text", "")
    return (_quoted(text) if text else '<span class="hint">nothing</span>') + shown


def _certainty(answer: Mapping[str, Any], task: str) -> float | None:
    """The probability of what was written, or of a label; None where the score is something else."""
    if answer.get("log_probs"):
        return _probability(math.fsum(answer["log_probs"]))
    return _probability(answer.get("score", 0.0)) if task in _LABELLING else None


def _number(probability: float) -> str:
    """Four digits, or as many zeros as there are."""
    return f"{probability:.4f}" if probability >= 1e-4 or probability == 0 else f"{probability:.1e}"


def _told(value: Any) -> str:
    """An input in words."""
    if isinstance(value, str | Path | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_told(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return " | ".join(map(_told, value))
    return "an image"


def _quoted(text: str) -> str:
    """Text in its own direction of writing, cut where it is very long."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + " \N{HORIZONTAL ELLIPSIS}"
    return f'<span class="said" dir="auto">{_escaped(cut)}</span>'


def _escaped(text: str) -> str:
    """Safe inside HTML; halves of signs, which UTF-8 cannot say, are replaced."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
