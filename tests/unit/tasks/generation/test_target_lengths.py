"""The note on targets that decoding would cut; its remedy works on the same lengths."""

import numpy as np
import pytest

from heedful.decoding.config import MaxLength
from heedful.tasks.generation.target_lengths import long_targets_note

SOURCES = np.array([3, 5, 2, 11] * 50)


@pytest.mark.parametrize(
    ("targets", "max_length", "remedy"),
    [
        (4 * SOURCES + 10, MaxLength(), "decoding.max_length.ratio=4.5"),
        (4 * SOURCES, MaxLength(extra=0), "decoding.max_length.ratio=4.5"),
        (SOURCES, MaxLength(cap=4), "decoding.max_length.cap=null and decoding.max_length.ratio=2"),
        (SOURCES * 0 + 9, MaxLength(ratio=0, extra=9), "decoding.max_length.extra=10"),
    ],
)
def test_the_remedy_allows_the_targets(targets, max_length, remedy):
    note = long_targets_note(SOURCES, targets, max_length)
    assert f"; set {remedy} (for 99% of them)" in note
    changes = dict(setting.split("=") for setting in remedy.split(" and "))
    values = {
        key.rpartition(".")[2]: None if text == "null" else float(text) for key, text in changes.items()
    }
    allowed = MaxLength(
        **{**max_length.model_dump(), **values, "extra": int(values.get("extra", max_length.extra))}
    )
    assert long_targets_note(SOURCES, targets, allowed) is None


def test_few_long_targets_are_not_worth_a_note():
    targets = SOURCES.copy()
    targets[7] = 999
    assert long_targets_note(SOURCES, targets, MaxLength()) is None
    assert long_targets_note(SOURCES[:0], SOURCES[:0], MaxLength()) is None
    targets[:3] = 999
    assert long_targets_note(SOURCES, targets, MaxLength()).startswith(
        "2.0% of the training targets have more"
    )
