"""Check the arguments of predictions in Python: inputs, numbers of answers, a decoding.

The task declares what its inputs must be (`heedful.tasks.base.Columns`).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any, SupportsIndex

from heedful.config import Config
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig, check_streaming
from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.recipes.problems import validate
from heedful.recipes.trees import Mark, Tree
from heedful.tasks.base import Columns, Predictor
from heedful.tasks.streaming import Streaming
from heedful.typing import JsonObject

THE_REQUEST = Mark("the request")


def inputs_of(columns: Columns, given: Any) -> list[Any]:
    """Return the inputs after checking that a task with these columns reads them.

    Images are not checked here; if one cannot be read, its prediction has an error.

    Raises:
        RequestError: they are not a list, or one has the wrong type; the message has its number, from 1.
    """
    images = bool(columns.images)
    if isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable):
        one = "image" if images else "text"
        raise RequestError(f"expected a list of {one}s, got {_found(given)}; put a single {one} into a list")
    inputs = list(given)
    if not images:
        names, more = columns.inputs, columns.optional_inputs
        for number, each in enumerate(inputs, 1):
            own = (*names, *more) if more and isinstance(each, list | tuple) else names
            _check(each, own, f"input {number}", words=columns.input_lists)
    return inputs


def _check(given: Any, names: Sequence[str], which: str, *, words: bool) -> None:
    """Check that an input is a text or, if the run reads these, a list of words or a tuple of texts."""
    several = isinstance(given, list | tuple)
    if len(names) > 1:
        if not several or len(given) != len(names):
            wanted = f"a tuple of {len(names)} texts ({', '.join(names)})"
            raise RequestError(f"{which}: expected {wanted}, got {_found(given)}")
        for name, part in zip(names, given, strict=True):
            _check_text(part, f"{which}: {name}", "a text")
    elif words and several:
        for number, word in enumerate(given, 1):
            _check_text(word, f"{which}: word {number}", "a text")
    else:
        _check_text(given, which, "a text or a list of words" if words else "a text")


def _check_text(given: Any, which: str, wanted: str) -> None:
    if not isinstance(given, str):
        raise RequestError(f"{which}: expected {wanted}, got {_found(given)}")
    if not is_unicode(given):
        raise RequestError(f"{which}: not valid Unicode (half of a surrogate pair)")


def _found(given: Any) -> str:
    """Describe a value for messages."""
    if given is None:
        return "None"
    if isinstance(given, list | tuple):
        return f"a {type(given).__name__} of {len(given)}"
    return "a text" if isinstance(given, str) else f"a value of type {type(given).__name__}"


def at_least_one(name: str, given: Any) -> int | None:
    """Return a number of hypotheses or answers, or None if none is given.

    Raises:
        RequestError: it is not a whole number of at least 1.
    """
    if given is None:
        return None
    whole = isinstance(given, SupportsIndex) and not isinstance(given, bool)
    if not whole or index(given) < 1:
        raise RequestError(f"{name}: expected a whole number of at least 1, got {given!r}")
    return index(given)


def decoding_of(given: Any, own: Any) -> Any:
    """Return the decoding to use: the given one, a configuration or a map as in recipes, or the run's.

    Raises:
        RequestError: it is invalid, or the run generates no text.
    """
    if given is None:
        return own
    if own is None:
        raise RequestError("decoding is not supported by this run: its task generates no text")
    if isinstance(given, Mapping):
        return decoding_from(Tree.of({"decoding": given}, THE_REQUEST))
    if not isinstance(given, GreedyConfig | BeamConfig | SampleConfig):
        raise RequestError(
            f"decoding: expected a configuration, or a map such as {{'kind': 'greedy'}}, got {_found(given)}"
        )
    return given


def with_beam(decoding: Any, beam: int | None, n_best: int | None) -> Any:
    """Return the decoding with another beam size or number of answers.

    Greedy decoding becomes a beam search; for sampling, ``n_best`` is the number of samples.

    Raises:
        RequestError: there are more answers than the beam size, a beam for sampling, or nothing is decoded.
    """
    if beam is None and n_best is None:
        return decoding
    if decoding is None:
        asked = f"n_best={n_best}" if beam is None else f"beam={beam}"
        raise RequestError(f"{asked} is not supported by this run: its task generates no text")
    if decoding.kind == "sample":
        if beam is not None:
            raise RequestError(f"beam={beam} is not supported by sampling; set kind=beam")
        changes: JsonObject = {"n": n_best}
    else:
        changes = {"kind": "beam", "beam": beam, "n_best": n_best}
        if decoding.kind == "greedy":
            changes["beam"] = beam or n_best
    plain = decoding.model_dump(mode="json")
    plain |= {key: value for key, value in changes.items() if value is not None}
    return decoding_from(Tree.of({"decoding": plain}, THE_REQUEST))


def streaming(predictor: Predictor, task: str) -> Streaming:
    """Return the predictor as one that streams.

    Raises:
        RequestError: it generates no text, or its decoding knows the text only at the end.
    """
    if not isinstance(predictor, Streaming):
        raise RequestError(f"the task {task} does not support streaming")
    check_streaming(predictor.decoding)
    return predictor


class _Decoding(Config):
    """Root for the validation of a decoding alone."""

    decoding: DecodingConfig


def decoding_from(tree: Tree) -> Any:
    """Return the decoding configuration in a tree with the one key ``decoding``."""
    return validate(tree, _Decoding).decoding
