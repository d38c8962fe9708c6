"""The census of heads: heads that are built to do one thing, and scores recomputed by plain loops."""

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.explanation import Explanation
from heedful.explain.patterns.census import (
    BESIDE,
    BROAD,
    EXAMPLES,
    THRESHOLD,
    census,
    classify,
    recurrence,
)
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.patterns.relations import null_mask, special_mask
from heedful.explain.patterns.scores import MIN_QUERIES, Match, entropy_terms
from heedful.tasks.model_input import Axis

SCHEMA = Path(__file__).parents[4] / "docs" / "schemas" / "census.schema.json"
WORDS = [("▁a",), ("▁cat",), ("▁sees",), ("▁do", "g"), ("▁el", "e", "phant"), ("▁in",), ("▁for", "est")]
BOUNDS = {"<cls>", "<sep>", "</s>", "<s>"}
PLACE = 3


def text(length: int, seed: int) -> Axis:
    """Two segments of words, some in pieces and most more than once: ``<cls> … . <sep> … <sep>``."""
    rng = np.random.default_rng(seed)
    tokens, words, surface = ["<cls>"], [-1], []
    half = length // 2
    while len(tokens) < length - 1:
        if len(tokens) == half:
            tokens += [".", "<sep>"]
            words += [len(surface) - 1, -1]
            continue
        room = (half if len(tokens) < half else length - 1) - len(tokens)
        word = [w for w in WORDS if len(w) <= room][int(rng.integers(99)) % (7 if room > 2 else 3)]
        tokens += word
        words += [len(surface)] * len(word)
        surface.append("".join(word).strip("▁"))
    return Axis((*tokens, "<sep>"), (*words, -1), tuple(surface))


TEXTS = [text(length, seed) for seed, length in enumerate((23, 29, 31))]


# Which keys a pattern means, written as plainly as may be; ``side`` looks at itself.


def is_bound(side, i):
    return side.tokens[i] in BOUNDS


def is_null(side, i):
    return is_bound(side, i) or side.tokens[i] == "."


def word(side, i):
    return side.surface[side.words[i]] if side.words and side.words[i] >= 0 else None


def segment(side, i):
    return sum(token == "<sep>" for token in side.tokens[:i])


def alike(side, i, other, j):
    if is_null(side, i) or is_null(other, j):
        return False
    same_word = side is other and side.words and side.words[i] == other.words[j]
    same_letters = word(side, i) == word(other, j) is not None
    return side.tokens[i] == other.tokens[j] or (same_letters and not same_word)


@cache
def of_itself(side, i):
    """For query i of a side that looks at itself, the keys of each pattern among all its tokens."""
    places = range(len(side.tokens))
    words = side.words or [-1] * len(side.tokens)
    pieces = [j for j in places if words[j] == words[i] >= 0 and not is_null(side, j)]
    return {
        "next token": [j for j in places if j == i + 1],
        "previous token": [j for j in places if j == i - 1],
        "neighbour": [j for j in places if j in (i - 1, i + 1)],
        "itself": [i],
        "copy": [j for j in places if j != i and alike(side, i, side, j)],
        "same word": [] if is_null(side, i) else [j for j in pieces if j != i],
        "first token": [0],
        "separator": [j for j in places if is_null(side, j)],
        "fixed position": [PLACE],
        "same segment": [j for j in places if not is_bound(side, j) and segment(side, i) == segment(side, j)],
    }


@cache
def across(queries, keys, i):
    """The same for a side that looks at another."""
    places = range(len(keys.tokens))
    return {
        "copy": [j for j in places if alike(queries, i, keys, j)],
        "first token": [0],
        "separator": [j for j in places if is_null(keys, j)],
        "fixed position": [PLACE],
    }


def keys_of(pattern, kind, queries, keys, i):
    """What query i sees of a pattern; all that it sees, where that is no relation."""
    visible = seen(kind, i, len(keys.tokens))
    found = across(queries, keys, i) if kind == "cross" else of_itself(keys, i)
    if pattern == "same token":
        copies = [j for j in found["copy"] if j in visible]
        return sorted([*copies, i]) if copies and kind != "cross" else copies
    own = [j for j in found.get(pattern, visible) if j in visible]
    if pattern == "same segment" and not any(j not in own and not is_bound(keys, j) for j in visible):
        return []
    return own


def seen(kind, i, n):
    return list(range(i + 1)) if kind == "causal" else list(range(n))


def even(keys, n):
    row = np.zeros(n)
    row[keys] = 1 / len(keys)
    return row


def built(pattern, kind, queries, keys, share=1.0, seed=0):
    """A head ``[Q, K]`` that gives ``share`` of its attention to a pattern's keys, the rest to all it sees.

    A query that sees none of them looks at all evenly, and what special tokens look at is drawn at random.
    """
    rng = np.random.default_rng(seed)
    n = len(keys.tokens)
    rows = []
    for i in range(len(queries.tokens)):
        visible = seen(kind, i, n)
        if is_bound(queries, i):
            row = np.zeros(n)
            row[visible] = rng.dirichlet(np.full(len(visible), 0.2))
            rows.append(row)
            continue
        wanted = keys_of("copy" if pattern == "same token" else pattern, kind, queries, keys, i)
        if pattern == "none":
            wanted = [int(rng.choice(visible))]
        rest = even(visible, n)
        rows.append(share * even(wanted, n) + (1 - share) * rest if wanted else rest)
    return np.array(rows)


def explanation(kind, queries, keys, heads, layer=0):
    """An explanation whose only layer has these heads."""
    names = ("target", "source") if kind == "cross" else ("input", "input")
    weights = np.array(heads, dtype=np.float32)
    own = AttentionMap(f"layers.{layer}.weights", kind, layer, *names, tuple(range(len(heads))), weights)
    return Explanation("t", "r", None, {}, dict(zip(names, (queries, keys), strict=True)), [own])


def sides(kind):
    """Pairs of a side that looks and one that is looked at."""
    return list(zip(TEXTS, [*TEXTS[1:], TEXTS[0]] if kind == "cross" else TEXTS, strict=True))


def explained(kind, patterns, **options):
    return [
        explanation(kind, q, k, [built(p, kind, q, k, seed=h, **options) for h, p in enumerate(patterns)])
        for q, k in sides(kind)
    ]


RELATIONS = {
    "self": [p for p in CLASSES if p not in ("broad", "none")],
    "causal": [p for p in CLASSES if p not in ("broad", "none", "next token")],
    "cross": ["same token", "first token", "separator", "fixed position"],
}


# What is known


@pytest.mark.parametrize("kind", RELATIONS)
def test_a_head_that_is_built_for_a_pattern_is_named_after_it(kind):
    patterns = [*RELATIONS[kind], "broad", "none"]
    found = census(explained(kind, patterns))
    assert [head.pattern for head in found.heads] == patterns
    for head in found.heads:
        assert head.kind == kind
        assert head.tap == "layers.0.weights"
        if head.pattern == "none":
            assert head.score is head.chance is None
        else:
            assert head.score == pytest.approx(1, abs=1e-5)
        assert (
            (head.position == PLACE)
            if "fixed position" in (head.pattern, *head.others)
            else (head.position is None)
        )


@pytest.mark.parametrize(("kind", "pattern"), [(kind, p) for kind in RELATIONS for p in RELATIONS[kind]])
def test_the_score_is_the_share_that_follows_the_pattern(kind, pattern):
    shares = [0.0, 0.2, BESIDE * THRESHOLD - 0.01, BESIDE * THRESHOLD + 0.01, 0.4]
    shares += [THRESHOLD - 0.01, THRESHOLD + 0.01, 0.8]
    for share in shares:
        (head,) = census(explained(kind, [pattern], share=share)).heads
        if pattern != "fixed position" or share > 0.1:
            assert head.matches[pattern].score == pytest.approx(share, abs=1e-5)
        assert (head.pattern == pattern) == (share > THRESHOLD)
        assert (pattern in head.others) == (BESIDE * THRESHOLD < share < THRESHOLD)


@pytest.mark.parametrize("kind", RELATIONS)
def test_another_threshold_names_others(kind):
    for pattern in RELATIONS[kind]:
        given_ = explained(kind, [pattern], share=0.4)
        assert census(given_, threshold=0.39).heads[0].pattern == pattern
        assert census(given_, threshold=0.41).heads[0].pattern in ("broad", "none")


@pytest.mark.parametrize("kind", ["self", "causal"])
@pytest.mark.parametrize("lengths", [[2], [7], [11, 13], [17, 101], [5, 7, 11, 13, 17]])
def test_even_attention_is_broad_at_any_length_and_matches_nothing(kind, lengths):
    short = ("▁a", "▁b", "▁a", "▁c", "▁a")
    texts = [text(length, 0) if length > 5 else Axis(short[:length]) for length in lengths]
    found = census([explanation(kind, t, t, [built("broad", kind, t, t)]) for t in texts])
    (head,) = found.heads
    assert head.pattern == "broad"
    assert head.score == pytest.approx(1, abs=1e-6)
    assert all(abs(match.score) < 1e-5 for match in head.matches.values())


@given(seed=st.integers(0, 10_000), pattern=st.sampled_from(["next token", "previous token", "first token"]))
@settings(max_examples=20)
def test_a_pattern_whose_keys_are_shuffled_is_none(seed, pattern):
    rng = np.random.default_rng(seed)
    heads = []
    for each in explained("self", [pattern]):
        weights = rng.permuted(each.maps[0].weights, axis=2)
        heads.append(replace(each, maps=[replace(each.maps[0], weights=weights)]))
    assert census(heads).heads[0].pattern == "none"


def test_looking_at_all_copies_is_the_same_token_and_looking_at_oneself_is_not():
    found = []
    for side in TEXTS:
        n = len(side.tokens)
        copies = [
            even([i, *(j for j in range(n) if j != i and alike(side, i, side, j))], n) for i in range(n)
        ]
        found.append(explanation("self", side, side, [copies, np.eye(n)]))
    both, alone = census(found).heads
    assert both.pattern == "same token"
    assert "itself" in both.others
    assert alone.pattern == "itself"
    assert "same token" not in alone.others


def test_of_patterns_within_each_other_the_one_with_fewer_keys_names():
    (head,) = census(explained("self", ["first token"], share=0.7)).heads
    assert (head.pattern, head.others) == ("first token", ("separator",))
    first, all_special = head.matches["first token"], head.matches["separator"]
    assert first.score == pytest.approx(all_special.score, abs=1e-5)
    assert first.explained > all_special.explained > 0


def test_one_word_within_the_segment_is_not_the_segment():
    (head,) = census(explained("self", ["next token"], share=0.7)).heads
    segment_ = head.matches["same segment"]
    assert segment_.score > THRESHOLD
    assert segment_.evenness is not None
    assert segment_.evenness < BROAD
    assert head.pattern == "next token"
    assert "same segment" not in head.others


# Against loops


def looped(kind, pattern, given_):
    """The match of every head by the definition, query by query."""
    mass, chance, applied, counted, spread, room = 0.0, 0.0, 0, 0, 0.0, 0.0
    for each in given_:
        (one,) = each.maps
        queries, keys = each.axes[one.queries], each.axes[one.keys]
        for i in range(len(queries.tokens)):
            if is_bound(queries, i):
                continue
            counted += 1
            visible = seen(kind, i, len(keys.tokens))
            own = keys_of(pattern, kind, queries, keys, i)
            if 0 < len(own) < len(visible):
                rows = one.weights[:, i, own].astype(float)
                given_to_them = rows.sum(axis=1)
                mass = mass + given_to_them
                inner = rows / given_to_them[:, None]
                spread = spread - given_to_them * (inner * np.log(np.maximum(inner, 1e-300))).sum(axis=1)
                room = room + given_to_them * np.log(len(own))
                chance += len(own) / len(visible)
                applied += 1
    m, c = mass / applied, chance / applied
    even_ = spread / room if pattern == "same segment" else [None] * len(m)
    return [
        Match((x - c) / (1 - c), c, x, applied, (x - c) * applied / counted, e)
        for x, e in zip(m, even_, strict=True)
    ]


def drawn(kind, seed, n_heads=3):
    """Heads drawn at random, spiky."""
    rng = np.random.default_rng(seed)
    found = []
    for queries, keys in sides(kind):
        n = len(keys.tokens)
        weights = np.zeros((n_heads, len(queries.tokens), n))
        for i in range(len(queries.tokens)):
            visible = seen(kind, i, n)
            weights[:, i, visible] = rng.dirichlet(np.full(len(visible), 0.3), n_heads)
        found.append(explanation(kind, queries, keys, weights))
    return found


@pytest.mark.parametrize("kind", RELATIONS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=5)
def test_matches_equal_loops(kind, seed):
    given_ = drawn(kind, seed)
    heads = census(given_).heads
    names = {*RELATIONS[kind], "copy", *(() if kind == "cross" else ("neighbour",))}
    assert all(head.matches.keys() == names for head in heads)
    for pattern in names - {"fixed position"}:
        for head, wanted in zip(heads, looped(kind, pattern, given_), strict=True):
            got = head.matches[pattern]
            assert (got.queries, got.chance) == (wanted.queries, pytest.approx(wanted.chance))
            assert got.mass == pytest.approx(wanted.mass, abs=1e-6)
            assert got.score == pytest.approx(wanted.score, abs=1e-5)
            assert got.explained == pytest.approx(wanted.explained, abs=1e-6)
            assert got.evenness == (wanted.evenness and pytest.approx(wanted.evenness, abs=1e-5))


def test_entropy_is_the_sum_and_that_of_one_key_is_zero():
    weights = np.random.default_rng(0).dirichlet(np.full(5, 0.5), (3, 7))
    wanted = [[-sum(w * np.log(w) for w in row) for row in head] for head in weights]
    np.testing.assert_allclose(entropy_terms(weights).sum(axis=-1), wanted, rtol=1e-12)
    np.testing.assert_array_equal(entropy_terms(np.eye(5)), 0)
    np.testing.assert_allclose(entropy_terms(np.full((2, 11), 1 / 11)).sum(axis=-1), np.log(11))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=5)
def test_entropy_and_confidence_equal_loops(seed):
    given_ = drawn("causal", seed)
    entropy, room, greatest, counted = np.zeros(3), 0.0, np.zeros(3), 0
    for each in given_:
        for i in range(len(each.axes["input"].tokens)):
            if not is_bound(each.axes["input"], i):
                rows = each.maps[0].weights[:, i, : i + 1].astype(float)
                entropy += [-sum(w * np.log(w) for w in row if w > 0) for row in rows]
                room += np.log(i + 1)
                greatest += rows.max(axis=1)
                counted += 1
    for head, e, g in zip(census(given_).heads, entropy, greatest, strict=True):
        assert head.entropy == pytest.approx(e / room, abs=1e-6)
        assert head.confidence == pytest.approx(g / counted, abs=1e-6)


@pytest.mark.parametrize("kind", ["self", "causal"])
def test_a_fixed_position_is_the_one_that_explains_most(kind):
    """By loops over every position of every head that is drawn."""
    given_ = drawn(kind, 7)
    heads = census(given_).heads
    total = sum(not is_bound(t, i) for t in TEXTS for i in range(len(t.tokens)))
    for number, head in enumerate(heads):
        best = None
        for place in range(1, 31):
            excess, queries, inputs = 0.0, 0, set()
            for which, each in enumerate(given_):
                side = each.axes["input"]
                if place >= len(side.tokens) or is_null(side, place):
                    continue
                for i in range(len(side.tokens)):
                    visible = seen(kind, i, len(side.tokens))
                    if not is_bound(side, i) and place in visible and len(visible) > 1:
                        excess += float(each.maps[0].weights[number, i, place]) - 1 / len(visible)
                        queries += 1
                        inputs.add(which)
            if len(inputs) >= 2 and queries >= total / 2 and (best is None or excess > best[0]):
                best = (excess, queries, place)
        assert best is not None
        match = head.matches["fixed position"]
        assert match.queries == best[1]
        assert match.explained == pytest.approx(best[0] / total, abs=1e-6)


# Laws


@pytest.mark.parametrize("kind", RELATIONS)
def test_what_special_tokens_look_at_changes_nothing(kind):
    given_ = explained(kind, RELATIONS[kind], share=0.7)
    changed = []
    for each in given_:
        (one,) = each.maps
        weights, queries = one.weights.copy(), each.axes[one.queries]
        for i, token in enumerate(queries.tokens):
            if token in BOUNDS:
                weights[:, i] = 0
                weights[:, i, 0] = 1
        assert not np.array_equal(weights, one.weights)
        changed.append(replace(each, maps=[replace(one, weights=weights)]))
    assert census(changed).heads == census(given_).heads


def test_the_order_of_inputs_only_changes_their_numbers():
    given_ = drawn("self", 3)
    for one, other in zip(census(given_).heads, census(given_[::-1]).heads, strict=True):
        assert (one.pattern, one.others) == (other.pattern, other.others)
        for name, match in one.matches.items():
            assert match.score == pytest.approx(other.matches[name].score)
        weights = [[(2 - e.input, e.query, e.key, e.weight) for e in other.evidence]]
        assert weights == [[(e.input, e.query, e.key, e.weight) for e in one.evidence]]


def test_layers_and_heads_are_told_apart():
    """Two layers of other heads, of which the map shows the second and the fourth."""
    found = []
    for side in TEXTS:
        layers = [["next token", "itself"], ["first token", "previous token"]]
        maps = [
            replace(
                explanation("self", side, side, [built(p, "self", side, side) for p in patterns], n).maps[0],
                heads=(1, 3),
            )
            for n, patterns in enumerate(layers)
        ]
        found.append(Explanation("t", "r", None, {}, {"input": side}, maps))
    told = [(head.layer, head.head, head.pattern) for head in census(found).heads]
    assert told == [(0, 1, "next token"), (0, 3, "itself"), (1, 1, "first token"), (1, 3, "previous token")]


# Evidence


@pytest.mark.parametrize("kind", RELATIONS)
def test_the_evidence_is_the_greatest_weights_of_the_pattern(kind):
    patterns = [*RELATIONS[kind], "broad", "none"]
    noise = drawn(kind, 5, len(patterns))
    mixed = [
        replace(e, maps=[replace(e.maps[0], weights=0.9 * e.maps[0].weights + 0.1 * n.maps[0].weights)])
        for e, n in zip(explained(kind, patterns), noise, strict=True)
    ]
    heads = census(mixed).heads
    assert [head.pattern for head in heads] == patterns
    for number, head in enumerate(heads):
        weights = []
        for each in mixed:
            (one,) = each.maps
            queries, keys = each.axes[one.queries], each.axes[one.keys]
            for i in range(len(queries.tokens)):
                pattern = "copy" if head.pattern == "same token" else head.pattern
                wanted = keys_of(pattern, kind, queries, keys, i)
                if wanted and not is_bound(queries, i):
                    weights.append(float(one.weights[number, i, wanted].max()))
        assert [example.weight for example in head.evidence] == sorted(weights, reverse=True)[:EXAMPLES]
        for example in head.evidence:
            each = mixed[example.input]
            (one,) = each.maps
            assert one.weights[number, example.query, example.key] == np.float32(example.weight)
            query, key = example.tokens
            assert query == each.axes[one.queries].tokens[example.query]
            assert key == each.axes[one.keys].tokens[example.key]


# What is not judged


def test_a_fixed_position_takes_two_inputs():
    one = explained("self", ["fixed position"])[:1]
    (head,) = census(one).heads
    assert "fixed position" not in head.matches
    assert head.pattern == "none"


def test_half_of_the_queries_must_see_a_fixed_position():
    """The last tokens of causal texts are seen by themselves alone, who may well look there."""
    side = Axis(tuple(f"▁{sign}" for sign in "abcdefghijklm"))
    (head,) = census([explanation("causal", side, side, [np.eye(13)])] * 7).heads
    assert (head.pattern, head.others, head.position) == ("itself", (), None)
    assert head.matches["fixed position"].queries >= 7 * 13 / 2


def test_a_query_without_a_choice_says_nothing():
    side = Axis(tuple(f"▁{sign}" for sign in "abcdefg"))
    (head,) = census([explanation("causal", side, side, [np.eye(7)])]).heads
    assert {name: head.matches[name].queries for name in ("itself", "previous token", "first token")} == {
        "itself": 6,
        "previous token": 6,
        "first token": 6,
    }
    lone = Axis(("▁a",))
    (head,) = census([explanation("causal", lone, lone, [[[1.0]]])] * 7).heads
    assert (head.pattern, head.entropy, head.confidence, head.matches) == ("none", None, 1.0, {})


def test_a_separator_at_one_place_is_no_fixed_position():
    """In texts of one length the separators stand at one place; words at that place are another matter."""
    texts = [text(23, seed) for seed in range(5)]
    place = texts[0].tokens.index("<sep>")
    assert {t.tokens[place] for t in texts} == {"<sep>"}
    found = []
    for side in texts:
        weights = np.zeros((1, 23, 23))
        weights[:, :, place] = 1
        found.append(explanation("self", side, side, weights))
    (head,) = census(found).heads
    assert head.pattern == "separator"
    assert "fixed position" not in head.others
    letters = Axis(tuple("abcdefghijklmnopqrstuvw"))
    swapped = [replace(e, axes={"input": letters}) for e in found]
    (head,) = census(swapped).heads
    assert (head.pattern, head.position) == ("fixed position", place)


def test_a_pattern_of_too_few_queries_is_not_judged():
    tokens = ["▁a", "▁b", "▁c", "▁d", "▁e", "▁f", "▁g", "▁h", "▁i"]
    for copies in range(2, 8):
        side = Axis((*tokens, *["▁z"] * copies))
        n = len(side.tokens)
        (head,) = census([explanation("self", side, side, [np.full((n, n), 1 / n)])]).heads
        assert ("same token" in head.matches) == (copies >= MIN_QUERIES)
    assert head.matches["same token"].queries == 7


def test_one_segment_has_no_other():
    side = Axis(("<cls>", *(f"▁{sign}" for sign in "abcdefghij"), "<sep>"))
    words = even(range(1, 11), 12)
    (head,) = census([explanation("self", side, side, [[words] * 12])]).heads
    assert "same segment" not in head.matches
    assert head.pattern == "broad"


def test_pieces_of_a_word_leave_its_punctuation_out():
    side = Axis(("▁Yes", ".", "▁for", "est", "."), (0, 0, 1, 1, 1), ("Yes.", "forest."))
    heads = [explanation("self", side, side, [np.eye(5)[[1, 0, 3, 2, 2]]])] * 3
    (head,) = census(heads).heads
    assert head.matches["same word"].queries == 6
    assert head.matches["same word"].mass == 1


# Tokens


def test_what_carries_no_word():
    tokens = (
        "<cls>",
        "▁the",
        "▁,",
        "##.",
        "...",
        "”",
        "<sep>",
        "##",
        "▁",
        "<unk>",
        "<mask>",
        "▁C3",
        "$",
        "</s>",
    )
    side = Axis((*tokens, "<s>", "<pad>"))
    assert special_mask(side).tolist() == [
        t in ("<cls>", "<sep>", "</s>", "<s>", "<pad>") for t in side.tokens
    ]
    words = ("▁the", "▁", "<unk>", "<mask>", "▁C3", "$")
    assert null_mask(side).tolist() == [t not in words for t in side.tokens]


def test_the_patches_of_an_image_have_no_words_but_a_first_token():
    """The class token is the first and the special one; it is named as the first."""
    tokens = ("<cls>", *["."] * 35)
    side = Axis(tokens, grid=(5, 7), before=1)
    assert null_mask(side).tolist() == [True] + [False] * 35
    first = np.zeros((36, 36))
    first[:, 0] = 1
    right = np.eye(36, k=1)
    right[-1, 0] = 1
    found = [explanation("self", side, side, [first, right, np.full((36, 36), 1 / 36)])] * 2
    heads = census(found).heads
    assert [head.pattern for head in heads] == ["first token", "next token", "broad"]
    assert "separator" in heads[0].others
    assert not {"same token", "same word", "same segment"} & set(heads[0].matches)


def test_where_rows_have_names_of_their_own_places_are_compared():
    """A decoder whose rows are shown as what they write: row i reads what was written at i - 1."""
    found = []
    for side in TEXTS:
        written = Axis((*side.tokens[1:], "</s>"))
        weights = np.array([built("previous token", "causal", side, side)], dtype=np.float32)
        one = AttentionMap("t", "causal", 0, "target", "read", (0,), weights)
        found.append(Explanation("t", "r", None, {}, {"target": written, "read": side}, [one]))
    assert census(found).heads[0].pattern == "previous token"
    side = TEXTS[0]
    short = Axis(side.tokens[1:])
    n = len(side.tokens)
    one = AttentionMap(
        "t", "causal", 0, "target", "read", (0,), np.full((1, n - 1, n), 1 / n, dtype=np.float32)
    )
    with pytest.raises(ValueError, match="equal numbers of queries and keys, got 22 and 23"):
        census([Explanation("t", "r", None, {}, {"target": short, "read": side}, [one])])


# Table, recurrence, JSON


def test_the_table_counts_heads_and_shares():
    patterns = ["next token", "next token", "broad", "first token", "none"]
    found = census(explained("self", patterns))
    table = {line.pattern: line for line in found.table()}
    assert list(table) == list(CLASSES)
    assert {p: line.heads for p, line in table.items() if line.heads} == {
        "next token": 2,
        "broad": 1,
        "first token": 1,
        "none": 1,
    }
    assert table["next token"].share == 0.4
    assert sum(line.share for line in table.values()) == pytest.approx(1)
    # The first token is a special one.
    assert (table["separator"].beside, table["same segment"].beside) == (1, 0)


def test_the_table_keeps_kinds_apart():
    own, other = explained("self", ["next token"]), explained("cross", ["first token", "broad"])
    both = [
        replace(a, axes={**a.axes, **b.axes}, maps=[*a.maps, replace(b.maps[0], tap="cross.weights")])
        for a, b in zip(own, other, strict=True)
    ]
    table = {(line.kind, line.pattern): line.share for line in census(both).table() if line.heads}
    assert table == {("self", "next token"): 1.0, ("cross", "first token"): 0.5, ("cross", "broad"): 0.5}


def test_recurrence_is_the_share_of_heads_that_look_at_neighbours():
    found = []
    for side in TEXTS:
        heads = [built(p, "self", side, side) for p in ("next token", "previous token", "first token")]
        heads.append((heads[0] + heads[1]) / 2)
        found.append(explanation("self", side, side, heads))
    counted = census(found)
    assert counted.heads[3].pattern not in ("next token", "previous token")
    share = recurrence(counted)
    assert share is not None
    assert (share.heads, share.previous, share.next, share.either) == (4, 0.25, 0.25, 0.75)
    assert recurrence(census(explained("cross", ["broad"]))) is None


@pytest.mark.parametrize("kind", RELATIONS)
def test_json_holds_all_of_it_and_keeps_to_the_schema(kind):
    found = census(explained(kind, [*RELATIONS[kind], "broad", "none"]))
    value = found.to_dict()
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    for head, own in zip(found.heads, value["heads"], strict=True):
        assert (own["pattern"], own["score"], own["others"]) == (head.pattern, head.score, list(head.others))
        assert (own["layer"], own["head"]) == (head.layer, head.head)
        assert own["matches"] == {name: asdict(match) for name, match in head.matches.items()}
        for example, plain in zip(head.evidence, own["evidence"], strict=True):
            assert plain == {**asdict(example), "tokens": list(example.tokens)}
        for name in ("tap", "kind", "chance", "position", "entropy", "confidence"):
            assert own[name] == getattr(head, name)


def test_the_schema_knows_all_patterns():
    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert definitions["pattern"]["enum"] == list(CLASSES)


# Names


def match(score, explained_=None, evenness=None):
    explained_ = score if explained_ is None else explained_
    return Match(score, 0.1, 0.1 + 0.9 * score, 97, explained_, evenness)


def same(score, copies):
    return {"same token": match(score), "copy": match(copies)}


@pytest.mark.parametrize(
    ("matches", "evenness", "wanted"),
    [
        ({}, None, ("none", ())),
        ({}, 0.9, ("broad", ())),
        ({}, 0.8999, ("none", ())),
        ({"itself": match(0.5)}, 0.2, ("itself", ())),
        ({"itself": match(0.4999)}, 0.2, ("none", ("itself",))),
        ({"itself": match(0.2499)}, 0.2, ("none", ())),
        ({"itself": match(0.9), **same(0.5, 0.25)}, 0.2, ("same token", ("itself",))),
        ({"itself": match(0.9), **same(0.5, 0.2499)}, 0.2, ("itself", ())),
        ({"itself": match(0.9), **same(0.4999, 0.25)}, 0.2, ("itself", ("same token",))),
        ({"same token": match(0.9)}, 0.2, ("none", ())),
        ({"separator": match(0.8), "first token": match(0.8)}, 0.2, ("first token", ("separator",))),
        ({"separator": match(0.8, 0.9), "first token": match(0.8)}, 0.2, ("separator", ("first token",))),
        ({"same segment": match(0.6, evenness=0.9)}, 0.95, ("same segment", ("broad",))),
        ({"same segment": match(0.6, evenness=0.8999)}, 0.2, ("none", ())),
        ({"same segment": match(0.6)}, 0.2, ("none", ())),
        ({"neighbour": match(1.0), "copy": match(1.0)}, 0.2, ("none", ())),
    ],
)
def test_names_by_the_rules(matches, evenness, wanted):
    assert classify(matches, evenness) == wanted


# Requests


def test_nothing_to_judge_is_refused():
    with pytest.raises(RequestError, match="at least one explained input"):
        census([])
    (one, *_) = explained("self", ["broad"])
    with pytest.raises(RequestError, match="needs attention weights"):
        census([replace(one, maps=[])])
    with pytest.raises(RequestError, match="of one run, got r and s"):
        census([one, replace(one, run="s")])
    other = replace(one.maps[0], heads=(1,))
    with pytest.raises(RequestError, match="must have the same heads"):
        census([one, replace(one, maps=[other])])


def test_an_empty_side_says_nothing():
    empty = AttentionMap(
        "layers.0.weights", "self", 0, "input", "input", (0,), np.zeros((1, 0, 0), dtype=np.float32)
    )
    nothing = Explanation("t", "r", None, {}, {"input": Axis(())}, [empty])
    whole = explained("self", ["next token"])
    assert census([*whole, nothing]).heads == census(whole).heads
