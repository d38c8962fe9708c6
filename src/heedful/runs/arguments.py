"""Arguments of predictions: inputs of the right types, decodings with changes."""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.checks import check_text, texts, whole_number
from heedful.config import Config
from heedful.decoding.config import (
    BeamConfig,
    DecodingConfig,
    SampleConfig,
    SampleSettings,
    check_streaming,
)
from heedful.decoding.rules import OutputRules
from heedful.errors import DataError, RequestError, nearest, type_name
from heedful.files import is_unicode, parse_json
from heedful.limits import too_large
from heedful.recipes.problems import validate
from heedful.recipes.settings import plain
from heedful.recipes.trees import Mark, Tree
from heedful.tasks.base import Task
from heedful.tasks.generation.streaming import Streaming
from heedful.tasks.prediction import Predictor, TaskInput
from heedful.tasks.task_info import Columns
from heedful.tasks.text_scoring import TextScoring
from heedful.typing import JsonMapping, JsonObject


def inputs_of(columns: Columns, iterable: object) -> list[TaskInput]:
    """Return the inputs after checking that a task with these columns reads them.

    Images are not checked here; if one cannot be read, its prediction has an error.

    Raises:
        RequestError: they are not a list, or one has the wrong type; the message has its number, from 1.
    """
    images, noun = bool(columns.images), "image" if columns.images else "text"
    if hasattr(iterable, "columns"):
        raise RequestError(
            f"expected a list of inputs, got {type_name(iterable)}; pass one of its columns, or for a "
            "task that reads several texts, list(zip(table[…], table[…]))"
        )
    if isinstance(iterable, str | bytes | Mapping | Set) or not isinstance(iterable, Iterable):
        raise RequestError(
            f"expected a list of {noun}s, got {type_name(iterable)}; pass a list, also of a single {noun}: "
            f"[{noun}]"
        )
    if isinstance(iterable, np.ndarray) and _is_single(iterable, images=images):
        remedy = "pass a list, also of a single image: [image]" if images else "pass a list"
        raise RequestError(f"expected a list of {noun}s, got an array of shape {iterable.shape}; {remedy}")
    inputs = list(iterable)
    if not images:
        names, optional = columns.inputs, columns.optional_inputs
        for number, task_input in enumerate(inputs, 1):
            expected = (*names, *optional) if optional and isinstance(task_input, list | tuple) else names
            _check(task_input, expected, f"input {number}", words=columns.input_lists)
            check_size(task_input, columns, f"input {number}")
    return inputs


def check_size(task_input: object, columns: Columns, label: str) -> None:
    """Check the size of an input, or of each of its parts, before it is tokenised.

    Raises:
        RequestError: one is too large (`heedful.limits`).
    """
    has_parts = len((*columns.inputs, *columns.optional_inputs)) > 1
    for part in task_input if has_parts and isinstance(task_input, list | tuple) else (task_input,):
        if problem := too_large(part, columns.longest_text):
            raise RequestError(f"{label}: {problem}")


def _is_single(array: NDArray[Any], *, images: bool) -> bool:
    """Return whether an array is one input: an image in grey or in colour, or a value without axes."""
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)
    return array.ndim == 0 or (images and is_image)


def scored_inputs_of(columns: Columns, iterable: object) -> list[TaskInput]:
    """Return the inputs of `Run.score` after checking that they have the parts ``columns.inputs``.

    Images are not checked here; if one cannot be read, its prediction has an error.

    Raises:
        RequestError: they are not a list, or one has the wrong type; the message has its number, from 1.
    """
    inputs = inputs_of(columns, iterable)
    if not columns.images:
        return inputs
    *_, name = columns.inputs
    for number, pair in enumerate(inputs, 1):
        if not isinstance(pair, list | tuple) or len(pair) != len(columns.inputs):
            expected = f"a tuple ({', '.join(columns.inputs)})"
            raise RequestError(f"input {number}: expected {expected}, got {type_name(pair)}")
        _check_text(pair[-1], f"input {number}: {name}", "a text")
    return inputs


def _check(task_input: object, names: Sequence[str], label: str, *, words: bool) -> None:
    """Check that an input is a text or, if the run reads these, a list of words or a tuple of texts."""
    if len(names) > 1:
        if not isinstance(task_input, list | tuple) or len(task_input) != len(names):
            expected = f"a tuple of {len(names)} texts ({', '.join(names)})"
            raise RequestError(f"{label}: expected {expected}, got {type_name(task_input)}")
        for name, part in zip(names, task_input, strict=True):
            _check_text(part, f"{label}: {name}", "a text")
    elif words and isinstance(task_input, list | tuple):
        for number, word in enumerate(task_input, 1):
            _check_text(word, f"{label}: word {number}", "a text")
    else:
        _check_text(task_input, label, "a text or a list of words" if words else "a text")


def _check_text(text: object, label: str, expected: str) -> None:
    if _is_missing(text):
        remedy = 'replace missing values by empty texts, which have no answer: table["text"].fillna("")'
        raise RequestError(f"{label}: expected {expected}, got {text}, a missing value; {remedy}")
    if not isinstance(text, str):
        remedy = (
            "; pass its values, such as [row['text'] for row in rows]" if isinstance(text, Mapping) else ""
        )
        raise RequestError(f"{label}: expected {expected}, got {type_name(text)}{remedy}")
    if not is_unicode(text):
        raise RequestError(f"{label}: not valid Unicode (half of a surrogate pair)")


def _is_missing(value: object) -> bool:
    """Whether a value stands for a missing one in a table of pandas."""
    return (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


_OTHER_LIBRARIES = {
    **dict.fromkeys(("beam_size", "beam_width", "num_beams", "n_beams"), "beam"),
    **dict.fromkeys(("num_return_sequences", "n_answers", "top_n"), "n_best"),
    **dict.fromkeys(("max_length", "max_tokens"), "max_new_tokens"),
    **dict.fromkeys(("stop_sequences", "stop_strings"), "stop"),
    "top_k": "n_best",
}
"""Options of predictions by their names in other libraries."""


def refuse_options(names: Iterable[str], supported: Sequence[str], task: Task) -> None:
    """Refuse the first option of a prediction that the task does not support.

    Raises:
        RequestError: there is one; for a setting of a decoding, the message has the argument ``decoding``.
    """
    for name in names:
        if name in supported:
            continue
        meant = _OTHER_LIBRARIES.get(name, "")
        if meant in supported or (meant in ("beam", "n_best") and task.recipe.decoding is not None):
            hint = f"; use {meant}"
        else:
            hint = f"{nearest(name, supported)}; expected one of {', '.join(supported)}" if supported else ""
        message = f"{name}: not supported for task {task.recipe.task.kind}{hint}"
        if name == "max_length" and "max_new_tokens" in supported:
            message = f"{name}: use max_new_tokens"
        elif (own := task.recipe.decoding) is not None:
            configs: dict[str, type[Config]] = {
                own.kind: type(own),
                "sample": SampleConfig,
                "beam": BeamConfig,
            }
            if kind := next((kind for kind, config in configs.items() if name in config.model_fields), None):
                value = '{"cap": …}' if name == "max_length" else "…"
                settings = f'{{"kind": "{kind}", "{name}": {value}}}'
                message = f"{name}: is a setting of the decoding; give decoding={settings}"
        raise RequestError(message)


def indices(name: str, given: int | Iterable[int] | None) -> list[int] | None:
    """Return indices as a list, also a single one; None stands for all.

    Raises:
        RequestError: they are not whole numbers.
    """
    if given is None:
        return None
    items: Iterable[int] = given if isinstance(given, Iterable) else [given]
    try:
        return [whole_number(name, item) for item in items]
    except RequestError:
        raise RequestError(f"{name}: expected indices from 0, such as [0, 1], got {given!r}") from None


def at_least_one(name: str, number: object) -> int | None:
    """Return a number of hypotheses, answers or rows, or None if none is given.

    Raises:
        RequestError: it is not a whole number of at least 1.
    """
    return None if number is None else whole_number(name, number, least=1)


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a prediction after checking their types.

    Raises:
        RequestError: one has the wrong type.
    """
    checked = {**options}
    for name, value in options.items():
        match name:
            case "max_new_tokens":
                checked[name] = whole_number(name, value, least=1)
            case "stop":
                checked[name] = texts(name, value)
            case "prefix" | "gap" | "regex":
                check_text(name, value)
            case "words":
                if value not in (None, "blanks", "raw"):
                    raise RequestError(f"words: expected 'blanks' or 'raw', got {value!r}")
            case "json_schema":
                checked[name] = schema_of(value)
    return checked


def schema_of(given: object) -> JsonMapping:
    """Return a JSON schema: the given one, or that of a file.

    Raises:
        RequestError: it is no JSON object.
        DataError: the file cannot be read.
    """
    if isinstance(given, str | Path):
        try:
            given, where = parse_json(Path(given).read_text(encoding="utf-8-sig")), f"{given}"
        except (OSError, ValueError) as error:
            raise DataError(f"{given}: cannot read the JSON schema: {error}") from error
    else:
        where = "json_schema"
    if not isinstance(given, Mapping):
        raise RequestError(f"{where}: expected a JSON schema, which is an object, got {type_name(given)}")
    return given


def decoding_of(
    decoding: DecodingConfig | JsonMapping | None, default: DecodingConfig | None
) -> DecodingConfig | None:
    """Return the decoding to use: the given one, a configuration or a map as in recipes, or the run's.

    Raises:
        RequestError: it is invalid, or the run generates no text.
    """
    if decoding is None:
        return default
    if default is None:
        raise RequestError("decoding: not supported for this run, whose task generates no text")
    if isinstance(decoding, Mapping):
        return decoding_from(Tree.of({"decoding": plain(decoding, "decoding")}, Mark("the request")))
    if not isinstance(decoding, OutputRules):
        raise RequestError(
            "decoding: expected a configuration or a mapping such as {'kind': 'greedy'}, "
            f"got {type_name(decoding)}"
        )
    return decoding


def with_beam(decoding: DecodingConfig | None, beam: int | None, n_best: int | None) -> DecodingConfig | None:
    """Return the decoding with another beam size or number of answers.

    Greedy decoding becomes a beam search; for sampling, ``n_best`` is the number of samples.

    Raises:
        RequestError: there are more answers than the beam size, a beam for sampling, or nothing is decoded.
    """
    if beam is None and n_best is None:
        return decoding
    if decoding is None:
        option = f"n_best={n_best}" if beam is None else f"beam={beam}"
        raise RequestError(f"{option}: not supported for this run, whose task generates no text")
    if isinstance(decoding, SampleSettings):
        if beam is not None:
            raise RequestError(f"beam={beam} is not supported by sampling; set kind=beam")
        changes: JsonObject = {"n" if decoding.kind == "sample" else "n_best": n_best}
    else:
        changes = {"beam": beam, "n_best": n_best}
        if decoding.kind == "greedy":
            changes = {"kind": "beam", "beam": beam or n_best, "n_best": n_best}
    settings = decoding.model_dump(mode="json")
    settings |= {key: value for key, value in changes.items() if value is not None}
    return decoding_from(Tree.of({"decoding": settings}, Mark("the request")))


def streaming(predictor: Predictor, task: str) -> Streaming:
    """Return the predictor as one that streams.

    Raises:
        RequestError: it generates no text, or its decoding knows the text only at the end.
    """
    if not isinstance(predictor, Streaming):
        raise RequestError(f"the task {task} does not support streaming")
    check_streaming(predictor.decoding)
    return predictor


def text_scoring(task: Task) -> TextScoring:
    """Return the task as one that scores given texts.

    Raises:
        RequestError: its model gives texts no probability.
    """
    if not isinstance(task, TextScoring):
        raise RequestError(
            f"the task {task.recipe.task.kind} does not score texts: its model predicts no tokens"
        )
    return task


class _Decoding(Config):
    """Root for the validation of a decoding alone."""

    decoding: DecodingConfig


def decoding_from(tree: Tree) -> DecodingConfig:
    """Return the decoding configuration in a tree with the one key ``decoding``."""
    return validate(tree, _Decoding).decoding
