"""Spans of all schemes: recognised, by hand, beside a plain definition, and equal in all schemes."""

import random

import pytest

from heedful.tasks.metrics.spans import SCHEMES, nearest_scheme, other_scheme, scheme_of
from heedful.tasks.metrics.tagging import span_scores

# For each scheme: the prefixes of a span of one word, and of the first, inner and last word of longer ones.
FORMS = {
    "bio": ("B", "B", "I", "I"),
    "bioes": ("S", "B", "I", "E"),
    "bilou": ("U", "B", "I", "L"),
    "bmes": ("S", "B", "M", "E"),
}
TYPES = ["PER", "LOC-X"]


def tags_of(spans, n_words, scheme):
    """The well-formed tags of spans, by definition."""
    single, first, inner, last = FORMS[scheme]
    tags = ["O"] * n_words
    for name, start, end in spans:
        prefixes = [single] if end - start == 1 else [first, *[inner] * (end - start - 2), last]
        tags[start:end] = [f"{prefix}-{name}" for prefix in prefixes]
    return tags


def random_spans(draw):
    spans, word = [], 0
    while word < 30:
        word += draw.choice([0, 0, 1, 2])
        end = word + draw.choice([1, 1, 2, 3, 4])
        spans.append((draw.choice(TYPES), word, end))
        word = end
    return spans, word


def plain_spans(tags, scheme):
    """The rules of the CoNLL script, word by word: does a span end before this word, does one begin at it?"""
    single, first, inner, last = FORMS[scheme]
    if scheme == "bio":
        single, last = "-", "-"
    singles = {single, *("W" * (scheme == "bmes"))}
    found, begun, before = [], 0, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if prefix not in {*singles, first, inner, last}:
            prefix, name = "O", ""
        ends = before[0] != "O" and (
            before[0] in {last, *singles} or prefix in {first, "O", *singles} or name != before[1]
        )
        begins = prefix in {first, *singles} or (
            prefix in {inner, last} and (before[0] in {"O", last, *singles} or name != before[1])
        )
        if ends:
            found.append((before[1], begun, place))
        if begins:
            begun = place
        before = (prefix, name)
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_well_formed_tags_give_their_spans(scheme):
    draw = random.Random(0)
    for _ in range(200):
        spans, n_words = random_spans(draw)
        tags = tags_of(spans, n_words + 2, scheme)
        assert SCHEMES[scheme].spans(tags) == spans
        assert scheme_of({*tags, *(f"{prefix}-PER" for prefix in FORMS[scheme])}).name == scheme


@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_tags_give_the_spans_of_the_plain_definition(scheme):
    draw = random.Random(1)
    prefixes = [*{*FORMS[scheme], *("W" * (scheme == "bmes"))}]
    all_tags = ["O", "X-PER", "NN", *(f"{prefix}-{name}" for prefix in prefixes for name in TYPES)]
    for _ in range(2000):
        tags = draw.choices(all_tags, k=draw.randint(0, 8))
        assert SCHEMES[scheme].spans(tags) == plain_spans(tags, scheme), tags


def test_scores_are_the_same_in_all_schemes():
    draw = random.Random(2)
    pairs = [(random_spans(draw)[0], random_spans(draw)[0]) for _ in range(20)]
    values = {
        scheme: [
            (score.value, score.counts)
            for score in span_scores(
                [tags_of(predicted, 40, scheme) for predicted, _ in pairs],
                [tags_of(expected, 40, scheme) for _, expected in pairs],
                SCHEMES[scheme],
            )
        ]
        for scheme in SCHEMES
    }
    n_right = sum(len({*predicted} & {*expected}) for predicted, expected in pairs)
    assert values["bio"][0][0] == n_right / sum(len(predicted) for predicted, _ in pairs)
    assert all(scores == values["bio"] for scores in values.values())


def test_signatures_name_the_scheme():
    for scheme in SCHEMES.values():
        (signature,) = {score.signature for score in span_scores([["O"]], [["O"]], scheme)}
        assert signature == f"scheme:{scheme.name}|average:micro|ill-formed:begins"


@pytest.mark.parametrize(
    "tags, spans",
    [
        ("B-X E-X", [("X", 0, 2)]),
        ("B-X O", [("X", 0, 1)]),
        ("S-X I-X", [("X", 0, 1), ("X", 1, 2)]),
        ("I-X E-X E-X", [("X", 0, 2), ("X", 2, 3)]),
        ("B-X E-Y", [("X", 0, 1), ("Y", 1, 2)]),
        ("B I E S O B", [("_", 0, 3), ("_", 3, 4), ("_", 5, 6)]),
    ],
)
def test_spans_by_hand(tags, spans):
    assert SCHEMES["bioes"].spans(tags.split()) == spans


@pytest.mark.parametrize(
    "tags, name",
    [
        ("O B-PER I-PER", "bio"),
        ("O I-PER", "bio"),
        ("B-PER", "bio"),
        ("O B-PER I-PER E-PER S-LOC", "bioes"),
        ("O S-LOC", "bioes"),
        ("O B-PER I-PER L-PER U-PER", "bilou"),
        ("O U-PER", "bilou"),
        ("O B-PER M-PER E-PER S-PER", "bmes"),
        ("O B-PER M-PER E-PER W-PER", "bmes"),
        ("B M E S", "bmes"),
        ("O B I", "bio"),
        ("O", None),
        ("", None),
        ("NOUN VERB", None),
        ("B-PER NOUN", None),
        ("B-PER L-PER E-PER", None),
        ("B- O", None),
        ("O I", None),
        ("O S", None),
        ("O B", None),
        ("O B I-PER", None),
    ],
)
def test_schemes_are_recognised(tags, name):
    scheme = scheme_of(tags.split())
    assert (scheme and scheme.name) == name


def test_the_nearest_scheme_of_mixed_tags():
    scheme, tag, other = nearest_scheme(["O", "B-PER", "E-PER", "NOUN"])
    assert (scheme.name, tag, other) == ("bioes", "B-PER", "NOUN")
    assert nearest_scheme(["NOUN", "X-Y"]) is None
    assert nearest_scheme(["O", "B-PER"]) is None


def sentences_in(scheme, draw, n=40):
    """Sentences with short spans, and some without."""
    found = []
    for _ in range(n):
        spans, word = [], 0
        for _ in range(draw.choice([0, 1, 1, 2])):
            start = word + draw.randint(0, 2)
            word = start + draw.choice([1, 1, 2, 3])
            spans.append((draw.choice(TYPES), start, word))
        found.append(tags_of(spans, word + 1, scheme))
    return found


@pytest.mark.parametrize("written", SCHEMES)
@pytest.mark.parametrize("expected", SCHEMES)
def test_sentences_in_another_scheme_are_recognised(written, expected):
    """Also if some sentences have errors, and if further tags encode no spans."""
    for seed in range(50):
        draw = random.Random(seed)
        sentences = sentences_in(written, draw)
        for _ in range(3):
            sentence = draw.choice(sentences)
            sentence[draw.randrange(len(sentence))] = draw.choice(["O", "X", "MISC-X"])
        found = other_scheme(sentences, SCHEMES[expected])
        if written == expected:
            assert found is None
        else:
            assert found.scheme.name == written
            assert 0 < found.n_unfitting <= found.n_sentences
            assert not SCHEMES[expected].is_well_formed(found.tags) or not all(
                tag in ("O", "X", "MISC-X") or SCHEMES[expected].encodes(tag) for tag in found.tags
            )


@pytest.mark.parametrize(
    ("sentences", "expected", "name"),
    [
        (["I-X O", "O I-X I-X"], "bio", None),  # IO and IOB1
        (["I-X O", "O I-X I-X"], "bioes", "bio"),
        (["O O", "O"], "bioes", None),
        ([], "bioes", None),
        (["NN VB", "S-X"], "bmes", None),  # may be either
        (["S-X O", "O O", "O O"], "bio", "bioes"),
        (["S-X O", "B-X I-X", "B-X O"], "bio", None),  # one in three
        (["B I O"], "bioes", "bio"),
        (["B E O"], "bio", "bioes"),
        (["NN VB"], "bio", None),
    ],
)
def test_the_scheme_of_few_sentences(sentences, expected, name):
    found = other_scheme([sentence.split() for sentence in sentences], SCHEMES[expected])
    assert (found and found.scheme.name) == name
