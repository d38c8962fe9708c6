"""An explanation for a glance: means, words and links by hand-made numbers."""

import math

import numpy as np
import pytest

from heedful.data.links import pharaoh
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import links, merge_subwords
from heedful.explain.attention_map import AttentionMap
from heedful.explain.capture import explain_input
from heedful.explain.explanation import Explanation
from heedful.explain.summary import (
    patch_attention,
    probability_of_answer,
    summary_matrix,
    word_alignment,
    word_axis,
    words_of,
)
from heedful.tasks.model_input import Axis

SOURCE = Axis(("a", "b1", "b2", "</s>"), (0, 1, 1, -1), ("a", "b"))
TARGET = Axis(("x1", "x2", "y", "</s>"), (0, 0, 1, -1), ("x", "y"))
ONE = np.array([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0.2, 0.4, 0.4, 0], [0, 0, 0, 1]], np.float32)
OTHER = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0.6, 0, 0, 0.4], [0, 0, 0, 1]], np.float32)


def made(*maps, axes=None):
    axes = axes or {"source": SOURCE, "target": TARGET}
    return Explanation("translation", "r", "a b", {"output": "x y"}, axes, maps)


def cross(layer, *heads, numbers=None):
    numbers = numbers or tuple(range(len(heads)))
    return AttentionMap("t", "cross", layer, "target", "source", numbers, np.stack(heads))


def test_words_of_an_axis_keep_their_order():
    axis = Axis(("<s>", "a", "b", "c", "</s>"), (-1, 1, 1, 0, -1), ("C", "AB"))
    assert words_of(axis) == (["<s>", "AB", "C", "</s>"], [0, 1, 1, 2, 3])
    assert word_axis(axis) == Axis(("<s>", "AB", "C", "</s>"))
    image = Axis(("<cls>", "1,1", "1,2"), (-1,) * 3, grid=(1, 2), before=1)
    assert word_axis(image) is image


def test_the_mean_is_over_all_heads_of_all_layers():
    shown = summary_matrix(made(cross(0, ONE, OTHER), cross(1, ONE, ONE)))
    np.testing.assert_allclose(shown.weights, (3 * ONE + OTHER) / 4, atol=1e-7)
    assert shown.title == "cross-attention: mean of 2 layers, 2 heads"
    np.testing.assert_allclose(shown.weights.sum(-1), 1, atol=1e-6)


def test_a_single_head_is_named():
    assert summary_matrix(made(cross(2, ONE, numbers=(4,)))).title == "cross-attention: layer 3, head 5"
    assert summary_matrix(made(cross(2, ONE, OTHER))).title == "cross-attention: mean of layer 3, 2 heads"


def test_words_are_sums_of_columns_and_means_of_rows():
    shown = summary_matrix(made(cross(0, ONE))).to_words()
    assert shown.queries.tokens == ("x", "y", "</s>")
    assert shown.keys.tokens == ("a", "b", "</s>")
    np.testing.assert_allclose(shown.weights, [[0.5, 0.5, 0], [0.2, 0.8, 0], [0, 0, 1]], atol=1e-7)


def test_the_title_says_if_pieces_are_words():
    axes = {"source": SOURCE, "target": Axis(("x", "猫", "。", "</s>"), (0, 1, 2, -1), ("x", "猫", "。"))}
    shown = summary_matrix(made(cross(0, ONE), axes=axes))
    assert shown.to_words().queries.tokens == ("x", "猫", "。", "</s>")
    assert "each piece is a word" in shown.to_words().title
    assert "piece" not in shown.title
    assert "piece" not in summary_matrix(made(cross(0, ONE))).to_words().title


def test_links_are_those_of_the_words():
    assert word_alignment(summary_matrix(made(cross(0, ONE)))) == "0-0 1-1"
    nothing = OTHER.copy()
    nothing[2] = [0, 0, 0.1, 0.9]
    assert word_alignment(summary_matrix(made(cross(0, nothing)))) == "0-0"


def test_blanks_before_the_end_are_no_words():
    """The source is one word, a blank and the end; the second target word is one too."""
    sides = {
        "source": Axis(("a", "\u2581", "</s>"), (0, -1, -1), ("a",)),
        "target": Axis(("x", "y", "\u2581", "</s>"), (0, 1, -1, -1), ("x", "y")),
    }
    weights = np.array([[0.6, 0.2, 0.2], [0.4, 0.35, 0.25], [1, 0, 0], [1, 0, 0]], dtype=np.float32)
    seen = Explanation("translation", "r", "a ", {"output": "x y "}, sides, [cross(0, weights)])
    assert word_alignment(summary_matrix(seen)) == "0-0"


def test_the_word_alignment_is_that_of_predictions(explained):
    run, given = explained("translation")
    (prediction,) = run.predict([given], attention=True)
    seen = explain_input(run, given)
    (source, source_indices), (target, target_indices) = (
        words_of(seen.axes[name]) for name in ("source", "target")
    )
    own = merge_subwords(np.asarray(prediction.attention), source_indices, target_indices)
    mean = own.mean(axis=(0, 1))
    shown = summary_matrix(seen)
    np.testing.assert_allclose(shown.to_words().weights, mean, atol=1e-6)
    assert shown.to_words().queries.tokens == (*target,)
    assert shown.to_words().keys.tokens == (*source,)
    assert word_alignment(shown) == pharaoh(links(mean))


def test_the_strongest_links_come_first_and_nothing_is_left_out_but_nothings():
    rows = summary_matrix(made(cross(0, ONE))).strongest(2)
    assert rows[0] == ("x1", [("a", 1.0)])
    assert rows[2] == ("y", [("b1", pytest.approx(0.4)), ("b2", pytest.approx(0.4))])


def test_cross_attention_stands_before_attention_in_one_side():
    own = AttentionMap("s", "self", 0, "source", "source", (0,), np.eye(4, dtype=np.float32)[None])
    seen = made(own, cross(0, ONE))
    assert summary_matrix(seen).title.startswith("cross-attention")
    assert summary_matrix(seen, "self").title == "self-attention: layer 1, head 1"
    with pytest.raises(RequestError, match="no causal attention"):
        summary_matrix(seen, "causal")
    with pytest.raises(RequestError, match="no attention"):
        summary_matrix(made())


def test_maps_over_other_keys_are_not_mixed(explained):
    shown = summary_matrix(explain_input(*explained("local and compressed")))
    assert shown.title == "causal self-attention: mean of 2 layers, 3 heads"


def test_what_a_class_token_sees_lies_over_the_image(explained):
    seen = explain_input(*explained("images"))
    shown = summary_matrix(seen)
    grid = patch_attention(shown)
    np.testing.assert_array_equal(grid, shown.weights[0, 1:].reshape(2, 2))
    with pytest.raises(ValueError, match="must be an image"):
        patch_attention(summary_matrix(made(cross(0, ONE))))


def test_without_a_class_token_the_patches_are_looked_at_on_average(explained):
    shown = summary_matrix(explain_input(*explained("images without class token")))
    np.testing.assert_allclose(patch_attention(shown), shown.weights.mean(0).reshape(2, 2))
    np.testing.assert_array_equal(patch_attention(shown, 3), shown.weights[3].reshape(2, 2))


def test_a_caption_looks_at_patches_word_by_word(explained):
    shown = summary_matrix(explain_input(*explained("captions")))
    assert patch_attention(shown, 0).shape == (3, 3)
    np.testing.assert_allclose(patch_attention(shown, 0).sum(), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("answer", "task", "text"),
    [
        ({"output": "a", "score": math.log(0.25)}, "classification", "probability 0.2500"),
        (
            {"output": "a b", "log_probs": [math.log(0.5), math.log(0.02)]},
            "translation",
            "probability 0.0100 (product of 2 probabilities; geometric mean 0.1000)",
        ),
        ({"output": "", "log_probs": [math.log(0.5)]}, "translation", "probability 0.5000"),
        ({"output": 1.5, "score": 1.5}, "regression", ""),
    ],
)
def test_the_probability_of_a_written_text_is_called_a_product(answer, task, text):
    assert probability_of_answer(answer, task) == text
