"""Tiers of tests: `make check`, `make test` and the whole sweep (`make test-all`).

Slow tests are marked ``slow`` and excluded from `make check`. Tests marked ``full`` run only in the full
sweep. For parameters with many cases, `sampled` selects some for `make test`.
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Return parameters: the cases in ``kept`` run in `make test`, the others only in the whole sweep.

    Raises:
        ValueError: A case in ``kept`` is not in ``cases``.
    """
    cases = list(cases)
    if unknown := [case for case in kept if case not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in kept else pytest.param(case, marks=pytest.mark.full) for case in cases]
