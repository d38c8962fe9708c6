import gzip
import math
import os
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.tasks.metrics.likelihood import Likelihood, count_words


def by_name(likelihood, *settings):
    return {score.name: score for score in likelihood.scores(*settings)}


def values(*arguments):
    return {score.name: score.value for score in Likelihood(*arguments).scores("abc")}


def test_a_uniform_guess_among_eight():
    # 7 tokens of 3 bits each, which spell 14 bytes: 7 characters, 7 words.
    found = values(7 * math.log(8), 7, 14, 7, 7)
    assert found == pytest.approx(
        {
            "nats per token": math.log(8),
            "perplexity": 8,
            "perplexity of a word": 8,
            "bits per byte": 1.5,
            "bits per character": 3,
        },
        rel=1e-12,
    )


def test_parts_add_up():
    whole = Likelihood(5.0, 2, 7) + Likelihood(8.0, 11, 3)
    assert whole == Likelihood(13.0, 13, 10)


def test_a_hopeless_model_has_infinite_perplexity():
    found = values(1e6, 1, 1, 1, 1)
    assert found["perplexity"] == found["perplexity of a word"] == math.inf


def test_nothing_to_score_is_refused():
    for tokens, size in ((0, 0), (0, 5), (1, -1)):
        with pytest.raises(RequestError, match="no text to score: got"):
            Likelihood(1.0, tokens, size)
    with pytest.raises(RequestError, match="no text to score: got"):
        Likelihood(1.0, 3, 9, 9, -1)


def test_only_scores_of_tokens_depend_on_the_tokenizer():
    first, second = (by_name(Likelihood(11.0, n, 5, 5, 6), name) for n, name in ((3, "abc"), (2, "def")))
    same = {name for name, score in first.items() if score.signature == second[name].signature}
    assert same == {"perplexity of a word", "bits per byte", "bits per character"}
    assert all(first[name].value == second[name].value for name in same)
    assert first["perplexity of a word"].signature == "unit:word|words:white-space+line-ends"


def test_what_was_not_counted_has_no_score():
    found = by_name(Likelihood(11.0, 3, 5), "abc")
    assert found.keys() == {"nats per token", "perplexity", "bits per byte"}
    assert found["perplexity"].counts == {"tokens": 3, "bytes": 5}
    assert values(11.0, 3, 0).keys() == {"nats per token", "perplexity"}


def test_characters_are_counted_apart_from_bytes():
    both = Likelihood(5 * math.log(2), 2, 7, 4) + Likelihood(3 * math.log(2), 1, 3, 4)
    found = by_name(both, "abc", "way:x")
    assert found["bits per character"].value == pytest.approx(1.0)
    assert found["bits per byte"].value == pytest.approx(0.8)
    assert found["perplexity"].counts == {"tokens": 3, "bytes": 10, "characters": 8}


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
    ways = [by_name(Likelihood(5.0, 2, 7, 4), "abc", way) for way in ("stride:1", "stride:2", "stride:1")]
    for name, score in ways[0].items():
        assert score.signature.endswith("|stride:1")
        assert score.signature != ways[1][name].signature
        assert score.signature == ways[2][name].signature
