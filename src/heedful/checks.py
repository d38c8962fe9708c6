"""Checks of arguments of functions, with messages that name the argument."""

from collections.abc import Iterable, Mapping
from operator import index
from typing import SupportsFloat, SupportsIndex

from heedful.errors import RequestError, type_name


def whole_number(name: str, number: object, *, least: int | None = None) -> int:
    """Return a whole number, of Python or numpy.

    Raises:
        RequestError: it is none, or less than ``least``.
    """
    if isinstance(number, SupportsIndex) and not isinstance(number, bool):
        whole = index(number)
        if least is None or whole >= least:
            return whole
    bound = "" if least is None else f" of at least {least}"
    raise RequestError(f"{name}: expected a whole number{bound}, got {number!r}")


def check_text(name: str, text: object) -> None:
    """Check that an argument is a text.

    Raises:
        RequestError: it is not.
    """
    if not isinstance(text, str):
        raise RequestError(f"{name}: expected a text, got {text!r}")


def texts(name: str, items: object) -> tuple[str, ...]:
    """Return texts, in any iterable, as a tuple.

    Raises:
        RequestError: they are a single text, whose characters would be taken for texts, or not texts.
    """
    if isinstance(items, str):
        raise RequestError(f"{name}: expected a list of texts, got a text; write {name}=[{items!r}]")
    if isinstance(items, bytes | Mapping) or not isinstance(items, Iterable):
        raise RequestError(f"{name}: expected a list of texts, got {type_name(items)}")
    checked = tuple(items)
    for number, text in enumerate(checked):
        check_text(f"{name}[{number}]", text)
    return checked


def check_function(name: str, function: object) -> None:
    """Check that an argument can be called.

    Raises:
        RequestError: it cannot.
    """
    if not callable(function):
        raise RequestError(f"{name}: expected a function, got {type_name(function)}; omit it for none")


def check_probability(name: str, number: object) -> float:
    """Return a number from 0 to 1.

    Raises:
        RequestError: it is none; the message says how a percentage is written.
    """
    if isinstance(number, bool) or not isinstance(number, SupportsFloat):
        raise RequestError(f"{name}: expected a number from 0 to 1, got {type_name(number)}")
    value = float(number)
    if not 0 <= value <= 1:
        raise RequestError(f"{name}: expected a number from 0 to 1, got {value:g}{percent_hint(value)}")
    return value


def percent_hint(value: float) -> str:
    """Return how a number is written that is likely in percent; empty if it is not."""
    return f"; write {value / 100:g}" if 2 <= value <= 100 else ""
