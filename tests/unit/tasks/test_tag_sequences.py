"""Which tags are well-formed, and the most probable of those, against all sequences one by one."""

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from heedful.data.store import TokenStore
from heedful.tasks.metrics.spans import SCHEMES
from heedful.tasks.tag_sequences import Transitions, tag_sentences

FORMS = {"bio": "BBII", "bioes": "SBIE", "bilou": "UBIL", "bmes": "SBME"}
TAGS = {
    "bio": ["B-X", "I-X", "B-Y-Z", "I-Y-Z", "O"],
    "bioes": ["S-X", "B-X", "I-X", "E-X", "B-Y", "E-Y", "O"],
    "bilou": ["U-X", "B-X", "I-X", "L-X", "I-Y", "L-Y", "misc"],
    "bmes": ["S", "W", "B", "M", "E"],
}


def is_well_formed(tags, scheme):
    """Whether the spans that the tags encode are written with these very tags."""
    single, first, inner, last = FORMS[scheme]
    written = list(tags)
    for name, start, end in SCHEMES[scheme].spans(tags):
        prefixes = [single] if end - start == 1 else [first, *[inner] * (end - start - 2), last]
        written[start:end] = [prefix if name == "_" else f"{prefix}-{name}" for prefix in prefixes]
    return written == ["S" if tag == "W" else tag for tag in tags]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tags_are_well_formed_if_their_spans_are_written_so(scheme):
    n_found = 0
    for n in range(1, 5):
        for tags in product(TAGS[scheme], repeat=n):
            path = (None, *tags, None)
            found = all(SCHEMES[scheme].may_follow(tag, before) for before, tag in pairwise(path))
            assert found == is_well_formed(tags, scheme), tags
            n_found += found
    assert 20 < n_found < sum(len(TAGS[scheme]) ** n for n in range(1, 5)) / 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_best_sequence_is_that_of_a_search_through_all(scheme):
    draw, labels = np.random.default_rng(7), TAGS[scheme]
    transitions, n_changed = Transitions.of(SCHEMES[scheme], labels), 0
    for n in [1, 2, 3, 4] * 13:
        logits = 2 * draw.standard_normal((n, len(labels)))
        log_probs = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
        found = transitions.best(log_probs)
        sequences = [
            numbers
            for numbers in product(range(len(labels)), repeat=n)
            if is_well_formed([labels[number] for number in numbers], scheme)
        ]
        sums = [sum(log_probs[i, number] for i, number in enumerate(numbers)) for numbers in sequences]
        assert found.tolist() == list(sequences[int(np.argmax(sums))])
        n_changed += found.tolist() != log_probs.argmax(axis=1).tolist()
    assert n_changed > 20


def test_without_a_well_formed_sequence_each_tag_is_the_best():
    transitions = Transitions.of(SCHEMES["bmes"], ["B", "E"])
    assert transitions.best(np.log(np.array([[0.3, 0.7]], np.float32))).tolist() == [1]
    assert transitions.best(np.log(np.array([[0.3, 0.7]] * 2, np.float32))).tolist() == [0, 1]
    assert transitions.best(np.zeros((0, 2), np.float32)).tolist() == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_that_are_not_well_formed_are_counted(scheme, tmp_path):
    draw, labels = Random(3), TAGS[scheme]
    rows = [[draw.choice(labels) for _ in range(draw.randrange(6))] for _ in range(211)]
    marks = [
        [mark for tag in tags for mark in (labels.index(tag) + 1, *[0] * draw.randrange(3))] for tags in rows
    ]
    encoded = [{"words": [7] * len(each), "tags": each} for each in marks]
    store = TokenStore.build(encoded, ["words", "tags"], tmp_path / "store", n_ids=99)
    read = [*tag_sentences(store, labels)]
    assert read == rows
    found = (sum(not SCHEMES[scheme].is_well_formed(tags) for tags in read), sum(map(bool, read)))
    assert found == (sum(not is_well_formed(tags, scheme) for tags in rows), sum(map(bool, rows)))
    assert 0 < found[0] < found[1]
