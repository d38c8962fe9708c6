"""What runs in which tier: `make check`, `make test` or the whole sweep (`make test-all`).

Tests that take long are marked ``slow``, and left out of `make check`. Tests marked ``full`` run in the whole
sweep alone. Of a sweep over many cases, `sampled` keeps some for `make test`.
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Cases to parametrise by: those in ``kept`` run in `make test`, the others in the whole sweep alone.

    Raises:
        ValueError: a case to keep is none of them.
    """
    cases = list(cases)
    if unknown := [case for case in kept if case not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in kept else pytest.param(case, marks=pytest.mark.full) for case in cases]
