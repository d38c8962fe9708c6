"""Constraints on the text of outputs, against definitions on strings."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.beam import BeamConfig
from heedful.decoding.config import decode
from heedful.decoding.greedy import GreedyConfig
from heedful.decoding.phrases import BlockedPhrases, ForcedPrefix, RequiredPhrase
from heedful.decoding.sampling import SampleConfig
from heedful.decoding.spelling import Spelling

PIECES = [b"", b" ", b"a", b"b", b"ab", b" a", b" ba", b"bab", b"\xc3", b"\xa9", b"a "]
texts = st.text("ab ", min_size=1, max_size=5).map(str.encode)
written = st.lists(st.integers(1, len(PIECES) - 1), max_size=6)


def after(constraint, ids):
    state = constraint.start()
    for token in ids:
        state = constraint.advance(state, token)
    return state


def blocked(constraint, ids):
    row = np.zeros(len(PIECES), bool)
    constraint.block(after(constraint, ids), row)
    return {*np.flatnonzero(row).tolist()} - {0}


def bytes_of(ids, first_space=b""):
    return b"".join(PIECES[i] for i in ids).removeprefix(first_space)


@given(st.lists(texts.map(bytes.strip).filter(bool), min_size=1, max_size=3), written)
def test_exactly_the_tokens_that_complete_a_phrase_are_blocked(phrases, ids):
    constraint = BlockedPhrases(Spelling(PIECES), phrases, "")
    contains = lambda ids: any(phrase in bytes_of(ids) for phrase in phrases)  # noqa: E731
    if not contains(ids):
        expected = {token for token in range(1, len(PIECES)) if contains([*ids, token])}
        assert blocked(constraint, ids) == expected


@pytest.mark.parametrize("space", [b"", b" "])
@given(texts, st.lists(st.integers(1, len(PIECES) - 1), max_size=3))
def test_exactly_the_tokens_that_can_lead_to_the_prefix_are_allowed(space, prefix, ids):
    """All pieces of the alphabet exist, so whatever agrees with the prefix can be continued."""

    def agrees(ids):
        text = bytes_of(ids, space)
        return text.startswith(prefix) or prefix.startswith(text)

    constraint = ForcedPrefix(Spelling(PIECES, space), prefix, "")
    if agrees(ids) and all(agrees(ids[:n]) for n in range(len(ids))):
        state = after(constraint, ids)
        assert constraint.is_met(state) == bytes_of(ids, space).startswith(prefix)
        if not constraint.is_met(state):
            expected = {token for token in range(1, len(PIECES)) if agrees([*ids, token])}
            assert {*range(1, len(PIECES))} - blocked(constraint, ids) == expected


def test_a_token_after_which_the_prefix_cannot_be_spelled_is_blocked():
    constraint = ForcedPrefix(Spelling([b"", b"a", b"ab", b"cd"]), b"abc", "")
    row = np.zeros(4, bool)
    constraint.block(constraint.start(), row)
    assert row.tolist() == [True, True, False, True]
    assert constraint.n_tokens == 2
    assert ForcedPrefix(Spelling([b"", b"a", b"ab"]), b"abc", "").n_tokens == float("inf")


@given(texts.map(bytes.strip).filter(bool), written)
def test_a_phrase_is_found_in_whatever_tokens(phrase, ids):
    constraint = RequiredPhrase(Spelling(PIECES), phrase, [[5, 4, 2]], "")
    state = after(constraint, ids)
    assert constraint.is_met(state) == (phrase in bytes_of(ids))
    if constraint.is_met(state):
        assert constraint.progress(state) == 3
        assert constraint.wanted(state) == []
    else:
        n = next(n for n in (2, 1, 0) if ids[len(ids) - n :] == [5, 4, 2][:n])
        assert constraint.progress(state) == n
        assert constraint.wanted(state) == [[5, 4, 2][n]]


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5),
    st.text("abc", min_size=1, max_size=4),
)
def test_the_shortest_tokens_that_contain_a_text(pieces, text):
    pieces, text = [piece.encode() for piece in pieces], text.encode()
    sequences = (
        ids
        for n in range(1, len(text) + 1)
        for ids in itertools.product(range(len(pieces)), repeat=n)
        if text in b"".join(pieces[i] for i in ids)
    )
    expected, found = next(sequences, None), Spelling(pieces).shortest(text)
    assert (found is None) == (expected is None)
    if found is not None:
        assert len(found) == len(expected)
        assert text in b"".join(pieces[i] for i in found)


def test_bytes_of_all_ones_have_a_range_too():
    spelling = Spelling([b"\xff", b"\xff\xff", b"a", b"\xfe\xff"])
    assert sorted(spelling.starting_with(b"\xff")) == [0, 1]
    assert sorted(spelling.starting_with(b"\xfe")) == [3]


# With decoders ---------------------------------------------------------------------------------------

LETTERS = [b"", b"a", b"b", b" a", b"ab", b""]
"""Pieces of a toy model with six tokens, the last of which is the end."""


def text_of(ids):
    return b"".join(LETTERS[i] for i in ids)


def random_constraints(rng):
    spelling = Spelling(LETTERS)
    draw = lambda: bytes(rng.choice(list(b"ab "), size=rng.integers(1, 4)).tolist()).strip() or b"a"  # noqa: E731
    phrase, banned, prefix = draw(), draw(), draw()
    required = RequiredPhrase(spelling, phrase, [spelling.shortest(phrase) or [1]], "must")
    own = [required, BlockedPhrases(spelling, [banned], "must_not"), ForcedPrefix(spelling, prefix, "prefix")]
    kept = [constraint for constraint in own if rng.random() < 0.6]
    holds = [
        lambda text: phrase in text or required not in kept,
        lambda text: banned not in text or own[1] not in kept,
        lambda text: text.startswith(prefix) or own[2] not in kept,
    ]
    return kept, lambda ids: all(test(text_of(ids)) for test in holds)


@pytest.mark.parametrize("seed", range(30))
def test_an_exhaustive_beam_finds_the_best_outputs_that_hold_the_constraints(toy, seed):
    rng = np.random.default_rng(seed)
    constraints, holds = random_constraints(rng)
    model, most, n_best = toy(6, seed), 3, 7
    config = BeamConfig(beam=6**3, n_best=n_best)
    (found,) = decode(config, model.request([0], [most], forbidden=[0], constraints=[constraints]))
    scored = []
    for n in range(most + 1):
        for ids in itertools.product(range(1, 5), repeat=n):
            if holds(ids):
                ended = [*ids, model.end] if n < most else ids
                total = sum(model.log_probs_of(0, ids[:t])[token] for t, token in enumerate(ended))
                scored.append((n == most, -total / ((5 + len(ended)) / 6) ** 0.6, ids))
    expected = sorted(scored)[:n_best]
    held = [h for h in found if not h.violated]
    assert [(not h.finished, h.ids) for h in held] == [(cut, ids) for cut, _, ids in expected]
    assert [h.score for h in held] == pytest.approx([-score for _, score, _ in expected], abs=1e-5)
    assert all(not h.finished and not holds(h.ids) for h in found if h.violated)


CONFIGS = {
    "beam 1": BeamConfig(beam=1),
    "beam 2": BeamConfig(beam=2, n_best=2),
    "beam 5": BeamConfig(beam=5, n_best=3),
    "greedy": GreedyConfig(),
    "sample": SampleConfig(n=3, seed=1),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(12))
def test_outputs_hold_their_constraints_or_are_marked_whatever_the_batch(toy, name, seed):
    rng = np.random.default_rng([seed, 1])
    model, keys, most = toy(6, seed, bias=1.0), [0, 1, 2, 3], [12, 9, 12, 4]
    pairs = [random_constraints(rng) for _ in keys]
    request = model.request(
        keys, most, forbidden=[0], constraints=[own for own, _ in pairs], ordinals=[4, 5, 6, 7]
    )
    together = decode(CONFIGS[name], request)
    for i, (own, holds) in enumerate(pairs):
        (alone,) = decode(
            CONFIGS[name],
            model.request([keys[i]], [most[i]], forbidden=[0], constraints=[own], ordinals=[4 + i]),
        )
        assert alone == together[i]
        for hypothesis in alone:
            assert holds(hypothesis.ids) or (hypothesis.violated and not hypothesis.finished)


@pytest.mark.parametrize("beam", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(8))
def test_required_phrases_are_written_as_soon_as_their_tokens_allow(toy, beam, seed):
    """Three tokens of phrases and the end token: a maximum length of four leaves no other choice."""
    spelling, model = Spelling([b"", *(bytes([97 + i]) for i in range(8)), b""]), toy(10, seed)
    constraints = [
        RequiredPhrase(spelling, b"ab", [[1, 2]], "ab"), RequiredPhrase(spelling, b"h", [[8]], "h")
    ]  # fmt: skip
    for most in (3, 4, 9):
        (found,) = decode(
            BeamConfig(beam=beam), model.request([0], [most], forbidden=[0], constraints=[constraints])
        )
        text = bytes(96 + i for i in found[0].ids)
        assert b"ab" in text
        assert b"h" in text
        assert not found[0].violated
