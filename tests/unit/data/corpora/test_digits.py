"""The built-in digits: all of them, once, as they are published."""

import numpy as np
import pytest

from heedful.data.corpora import CORPORA, open_corpus
from heedful.errors import RequestError


def test_the_splits_are_all_digits_once():
    from sklearn.datasets import load_digits

    held = load_digits()
    rows = [row for split in ("train", "valid", "test") for row in open_corpus("digits", split)]
    assert len(rows) == 1797
    assert [row["label"] for row in rows] == [str(n) for n in held.target]
    pixels = np.stack([row["image"].content for row in rows])
    assert np.array_equal(np.rint(pixels * (16 / 255)), held.images)
    assert (pixels.min(), pixels.max()) == (0, 255)


def test_every_split_has_all_classes_and_seeds_change_nothing():
    for split, n in (("train", 1197), ("valid", 300), ("test", 300)):
        rows = list(open_corpus("digits", split, seed=3))
        assert len(rows) == n
        assert {row["label"] for row in rows} == set("0123456789")


@pytest.mark.parametrize("name", CORPORA)
def test_another_split_is_refused(name):
    splits = r"expected one of 'train', 'valid', 'test'"
    with pytest.raises(
        RequestError, match=rf"^{name}: unknown split 'tests' \(did you mean 'test'\?\); {splits}"
    ):
        open_corpus(name, "tests")
