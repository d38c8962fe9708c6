"""Attention in words: held to sums written out by hand, to plain loops and to counted cases."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.links import pharaoh
from heedful.decoding.config import GreedyConfig, MaxLength
from heedful.errors import RequestError
from heedful.explain.alignment.error_rates import attention_between_words
from heedful.explain.alignment.word_alignment import (
    BATCH,
    HeadChoice,
    WordAttention,
    links,
    merge_subwords,
    rows_at_step,
)
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.tasks.generation.text_generation import Translator
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.prediction import PredictOptions


def test_pieces_of_the_source_are_summed_and_of_the_target_averaged():
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    # source pieces 0 and 1 are one word; target pieces 0 and 1 are one word
    expected = [[(0.3 + 0.75) / 2, (0.7 + 0.25) / 2], [1.0, 0.0]]
    np.testing.assert_allclose(merge_subwords(weights, [0, 0, 1], [0, 0, 1]), expected, rtol=1e-12)


def places(n):
    """Word numbers of n pieces, from 0 without gaps, in any order."""
    return st.lists(st.integers(0, n), min_size=n, max_size=n).map(
        lambda numbers: [sorted(set(numbers)).index(number) for number in numbers]
    )


@given(places(7), places(5), st.integers(0, 1000))
def test_merging_equals_loops_and_keeps_the_sums_of_rows(source, target, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(7), (2, 3, 5))
    merged = merge_subwords(weights, source, target)
    for index in np.ndindex(merged.shape):
        *head, i, j = index
        rows = [t for t in range(5) if target[t] == i]
        columns = [s for s in range(7) if source[s] == j]
        wanted = sum(weights[(*head, t, s)] for t in rows for s in columns) / len(rows)
        assert merged[index] == pytest.approx(wanted)
    np.testing.assert_allclose(merged.sum(axis=-1), 1)


def attention(weights):
    """Words named by their place, and a layer of one head for each matrix, or layers of several."""
    array = np.asarray(weights, dtype=float)
    target, source = (tuple(map(str, range(n))) for n in array.shape[2:])
    return WordAttention(source, target, array)


def test_a_layers_mean_and_its_heads():
    array = np.random.default_rng(5).dirichlet(np.ones(5), (2, 3, 7))
    own = attention(array)
    np.testing.assert_array_equal(own.matrix(HeadChoice(1, 2)), array[1, 2])
    np.testing.assert_allclose(own.matrix(HeadChoice(1)), (array[1, 0] + array[1, 1] + array[1, 2]) / 3)
    assert own.choices() == [HeadChoice(i, h) for i in range(2) for h in (None, 0, 1, 2)]
    assert str(HeadChoice(1)) == "layer 2, mean of heads"
    assert str(HeadChoice(0, 2)) == "layer 1, head 3"
    assert str(HeadChoice(0, 2, "input")) == "layer 1, head 3, at the input step"


@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (1, 1, 1, 3)])
def test_a_piece_is_foretold_by_its_own_row_and_read_by_the_next(shape):
    rows = np.random.default_rng(3).dirichlet(np.ones(shape[-1]), shape[:-1])
    np.testing.assert_array_equal(rows_at_step(rows, "output"), rows)
    read = rows_at_step(rows, "input")
    assert read.shape == shape
    for t in range(shape[2]):
        # The end is never read: it keeps the row that predicts it.
        np.testing.assert_array_equal(read[:, :, t], rows[:, :, min(t + 1, shape[2] - 1)])


def test_one_head_is_its_own_mean():
    assert attention(np.ones((2, 1, 3, 1))).choices() == [HeadChoice(0, 0), HeadChoice(1, 0)]


@pytest.mark.parametrize("choice", [HeadChoice(2), HeadChoice(-1), HeadChoice(0, 3), HeadChoice(0, -1)])
def test_what_is_not_there_cannot_be_chosen(choice):
    with pytest.raises(RequestError, match=r"(layer|head) must be between 1 and [23]"):
        attention(np.ones((2, 3, 2, 1))).matrix(choice)


def test_weights_must_fit_the_words():
    with pytest.raises(ValueError, match=r"must be of shape \(layers, heads, 3, 2\), got \(1, 1, 2, 3\)"):
        WordAttention(("a", "</s>"), ("x", "y", "</s>"), np.ones((1, 1, 2, 3)))


def test_links_go_to_the_greatest_weight_and_the_end_is_no_word():
    weights = np.array(
        [
            [0.1, 0.6, 0.3],  # target 0 to source 1
            [0.2, 0.3, 0.5],  # target 1 to the end: no link
            [0.4, 0.4, 0.2],  # a tie: the left one
            [0.9, 0.1, 0.0],  # the end token of the target
        ]
    )
    assert links(weights) == {(1, 0), (0, 2)}
    assert pharaoh(links(weights)) == "0-2 1-0"
    assert pharaoh(frozenset()) == ""


SHARP = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]
CROSSED = [[0.2, 0.6, 0.2], [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]]
FLAT = [[0.3, 0.3, 0.4], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]]


TRANSFORMER = TransformerConfig(
    d_model=18, n_layers=2, dropout=0.0, layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 11}}
)
RECURRENT = RecurrentConfig(d_embedding=7, d_hidden=11)


def tiny(words, config=TRANSFORMER):
    torch.manual_seed(5)
    model = build_model(config, words.vocab_size, words.vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)  # far from even attention
    return model


@pytest.mark.parametrize(("config", "shape"), [(TRANSFORMER, (2, 3)), (RECURRENT, (1, 1))])
def test_what_is_seen_while_writing_is_what_is_seen_when_forced(config, shape, words):
    tokenizers, model = Tokenizers(words, words), tiny(words, config)
    decoding, options = GreedyConfig(max_length=MaxLength(ratio=0, extra=5)), PredictOptions(attention=True)
    translator = Translator(model, tokenizers, decoding, options=options)
    sources = ["the cat sees a dog", "a dog", "the cat and the doghouse"]
    predictions = translator.predict(sources)
    assert any(p.text for p in predictions)
    forced = attention_between_words(
        model, tokenizers, [text.split() for text in sources], [p.text.split() for p in predictions]
    )
    for prediction, other in zip(predictions, forced, strict=True):
        written = np.asarray(prediction.attention)
        assert written.shape[:2] == shape
        # Each token is a word.
        np.testing.assert_allclose(written, other.weights, atol=1e-5)
        np.testing.assert_allclose(written.sum(axis=-1), 1, atol=1e-5)


def test_many_pairs_come_back_in_their_order(words):
    tokenizers, model = Tokenizers(words, words), tiny(words)
    repeated = ["the", "cat", "sees", "a", "dog", "and"] * 3
    texts = [repeated[: 1 + i % 13] for i in range(BATCH + 3)]
    targets = texts[::-1]
    together = [*attention_between_words(model, tokenizers, texts, targets)]
    assert len(together) == BATCH + 3
    for i in (0, 7, BATCH, BATCH + 2):
        (alone,) = attention_between_words(model, tokenizers, texts[i : i + 1], targets[i : i + 1])
        assert together[i].source == (*texts[i], "</s>")
        assert together[i].target == (*targets[i], "</s>")
        np.testing.assert_allclose(together[i].weights, alone.weights, atol=1e-5)


def test_a_model_without_attention_has_none_to_show(words):
    config = RecurrentConfig(d_embedding=7, d_hidden=11, attention=None, direction="left-to-right")
    model = build_model(config, words.vocab_size, words.vocab_size)
    with pytest.raises(RequestError, match="must have attention over a source"):
        [*attention_between_words(model, Tokenizers(words, words), [["a"]], [["a"]])]


def test_links_by_the_source_and_by_both_sides():
    weights = np.array(
        [
            [0.1, 0.6, 0.3],
            [0.5, 0.3, 0.2],
            [0.3, 0.5, 0.2],
            [0.4, 0.2, 0.4],  # the end token of the target
        ]
    )
    # Each source word: column 0 is greatest at target 1, column 1 at target 0.
    assert links(weights, "source") == {(0, 1), (1, 0)}
    assert links(weights, "target") == {(1, 0), (0, 1), (1, 2)}
    assert links(weights, "both") == {(0, 1), (1, 0)}
    weights[3] = [0.8, 0.1, 0.1]  # the end looks at source 0 most: it has no link
    assert links(weights, "source") == {(1, 0)}


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 6))
def test_both_directions_are_each_others_mirror(seed, n_source, n_target):
    weights = np.random.default_rng(seed).random((n_target + 1, n_source + 1))
    mirrored = {(j, i) for i, j in links(weights.T, "target")}
    assert links(weights, "source") == mirrored
    assert links(weights, "both") == links(weights) & mirrored
    assert len({source for source, _ in links(weights, "source")}) == len(links(weights, "source"))
