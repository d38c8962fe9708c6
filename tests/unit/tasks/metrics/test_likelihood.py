import gzip
import math
import os
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.tasks.metrics.likelihood import Likelihood, count_words
from heedful.tasks.metrics.score import comparable


def test_a_uniform_guess_among_eight():
    # 7 tokens of 3 bits each, which spell 14 bytes.
    likelihood = Likelihood(7 * math.log(8), 7, 14)
    assert likelihood.nats_per_token == pytest.approx(math.log(8), rel=1e-12)
    assert likelihood.perplexity == pytest.approx(8, rel=1e-12)
    assert likelihood.bits_per_byte == pytest.approx(1.5, rel=1e-12)


def test_bits_per_byte_does_not_depend_on_the_tokens():
    assert Likelihood(11.0, 3, 5).bits_per_byte == Likelihood(11.0, 2, 5).bits_per_byte


def test_parts_add_up():
    whole = Likelihood(5.0, 2, 7) + Likelihood(8.0, 11, 3)
    assert whole == Likelihood(13.0, 13, 10)
    assert whole.perplexity == pytest.approx(math.e)


def test_a_hopeless_model_has_infinite_perplexity():
    assert Likelihood(1e6, 1, 1).perplexity == math.inf


def test_nothing_to_score_is_refused():
    for tokens, size in ((0, 0), (0, 5), (1, -1)):
        with pytest.raises(RequestError, match="no text to score: got"):
            Likelihood(1.0, tokens, size)
    with pytest.raises(RequestError, match="bits per byte is undefined"):
        _ = Likelihood(1.0, 3, 0).bits_per_byte
    with pytest.raises(RequestError, match="perplexity per word is undefined"):
        _ = Likelihood(1.0, 3, 9).perplexity_of_a_word
    with pytest.raises(RequestError, match="no text to score: got"):
        Likelihood(1.0, 3, 9, 9, -1)


def test_scores_compare_across_tokenizers_only_by_the_byte():
    first, second = Likelihood(11.0, 3, 5).scores("abc"), Likelihood(11.0, 2, 5).scores("def")
    assert comparable(first["bits_per_byte"], second["bits_per_byte"])
    assert not comparable(first["perplexity"], second["perplexity"])
    assert not comparable(first["nats_per_token"], second["nats_per_token"])
    assert first["perplexity"].value == pytest.approx(math.exp(11 / 3))
    assert first["bits_per_byte"].counts == {"tokens": 3, "bytes": 5}
    assert "bits_per_byte" not in Likelihood(11.0, 3, 0).scores("abc")


def test_characters_are_counted_apart_from_bytes():
    found = (Likelihood(5 * math.log(2), 2, 7, 4) + Likelihood(3 * math.log(2), 1, 3, 4)).scores(
        "abc", "way:x"
    )
    assert found["bits_per_character"].value == pytest.approx(1.0)
    assert found["bits_per_byte"].value == pytest.approx(0.8)
    assert found["perplexity"].counts == {"tokens": 3, "bytes": 10, "characters": 8}
    assert "bits_per_character" not in Likelihood(11.0, 3, 5).scores("abc")


def test_the_perplexity_of_a_word_does_not_depend_on_the_tokens():
    few, many = (
        Likelihood(6 * math.log(8), n, 20, 20, 6).scores(name) for n, name in ((3, "abc"), (9, "def"))
    )
    assert few["perplexity_of_a_word"].value == pytest.approx(8, rel=1e-12)
    assert comparable(few["perplexity_of_a_word"], many["perplexity_of_a_word"])
    assert few["perplexity_of_a_word"].signature == "unit:word|words:white-space+line-ends"
    assert few["perplexity_of_a_word"].counts["words"] == 6
    assert few["perplexity_of_a_word"].name == "perplexity of a word"
    assert "perplexity_of_a_word" not in Likelihood(1.0, 3, 5, 5).scores("abc")
    assert Likelihood(1e6, 1, 1, 1, 1).perplexity_of_a_word == math.inf


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("a", 2),
        ("a\n", 2),
        ("", 1),
        ("\n", 1),
        ("a b\n", 3),
        ("a  b\n c ", 5),
        (" \n\n", 2),
        ("a\tb\u3000c\n", 4),
    ],
)
def test_words_stand_between_white_space_and_every_line_ends(text, n):
    assert count_words(text) == n


@pytest.mark.parametrize("text", ["a b\n\n c\n", "a\nb c\n\n", " a , b\nc\n"])
def test_lines_have_as_many_words_by_themselves(text):
    assert count_words(text) == sum(map(count_words, text.removesuffix("\n").split("\n")))


@pytest.mark.skipif("HEEDFUL_DATA" not in os.environ, reason="HEEDFUL_DATA is not set")
@pytest.mark.parametrize(("split", "n"), [("train", 2_088_628), ("valid", 217_646), ("test", 245_569)])
def test_wikitext_has_as_many_words_as_published(split, n):
    """Merity et al. 2017, table 1."""
    path = Path(os.environ["HEEDFUL_DATA"]) / "wikitext2" / f"{split}.txt.gz"
    assert count_words(gzip.decompress(path.read_bytes()).decode()) == n


def test_how_a_text_was_read_is_part_of_every_signature():
    ways = [Likelihood(5.0, 2, 7, 4).scores("abc", way) for way in ("stride:1", "stride:2", "stride:1")]
    for name, score in ways[0].items():
        assert score.signature.endswith("|stride:1")
        assert not comparable(score, ways[1][name])
        assert comparable(score, ways[2][name])
