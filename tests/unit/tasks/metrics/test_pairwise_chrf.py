import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import sentence_chrf

from heedful.tasks.metrics import pairwise_chrf as module
from heedful.tasks.metrics.pairwise_chrf import pairwise_chrf

TEXTS = st.text(st.sampled_from("aab ßé漢\u0301\n\u3000🙂"), max_size=30)


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_it_equals_sacrebleu_for_each_pair(texts):
    expected = [[sentence_chrf(hypothesis, [reference]).score for reference in texts] for hypothesis in texts]
    assert pairwise_chrf(texts).tolist() == expected


def test_matches_are_added_over_blocks_of_features(monkeypatch):
    draw = np.random.default_rng(3)
    texts = ["".join(draw.choice([*"abc d"], size=60)) for _ in range(7)]
    whole = pairwise_chrf(texts)
    monkeypatch.setattr(module, "_BLOCK", 50)
    assert pairwise_chrf(texts).tolist() == whole.tolist()


def test_a_text_compared_with_itself_has_the_most():
    assert pairwise_chrf(["the cat", "a"]).diagonal().tolist() == pytest.approx([100.0, 100.0])


def test_texts_without_characters_have_none():
    assert pairwise_chrf(["", " ", "a"]).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 100]]
