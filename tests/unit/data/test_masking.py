"""Hidden tokens: how many, which, and what becomes of them, against the laws that they should follow."""

import math

import numpy as np
import pytest
from scipy import stats

from heedful.data.masking import Draw, Masking, SpanLengths
from heedful.tasks.masked_language_modelling.masking import word_beginnings
from heedful.text.configuration import BpeConfig, UnigramConfig, WordConfig, WordPieceConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

MASK, FIRST, LAST = SPECIALS.mask, len(SPECIALS), 1009
CLS, SEP, END = SPECIALS.classify, SPECIALS.separate, SPECIALS.end
SURE = 1e-6  # one run of a test in a million may be unlucky; seeds are fixed, so none ever will


def tokens(n, seed=0):
    return np.random.default_rng(seed).integers(FIRST, LAST, n)


def sequence(n, seed=0):
    """With specials at both ends and, where there is room, one in the middle."""
    ids = tokens(n, seed)
    if n > 4:
        ids[n // 2] = END
    return np.concatenate([[CLS], ids, [SEP]])


def masking(**options):
    return Masking(MASK, FIRST, LAST, **options)


def likely(successes, n, p):
    return stats.binomtest(successes, n, p).pvalue > SURE


WORDS = np.random.default_rng(7).random(LAST) < 0.6
KINDS = {
    "tokens": {},
    "words": {"begins_word": WORDS},
    "spans": {"begins_word": WORDS, "spans": SpanLengths()},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


# What holds of every sequence ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("n", [1, 2, 3, 7, 61, 509])
def test_special_and_unselected_tokens_are_unchanged(kind, n):
    for seed in range(20):
        ids = sequence(n, seed)
        hidden = masking(**KINDS[kind]).mask_tokens(ids, Draw(1, 2, seed))
        assert (np.diff(hidden.positions) > 0).all()
        assert (ids[hidden.positions] >= FIRST).all()
        others = np.setdiff1d(np.arange(len(ids)), hidden.positions)
        assert np.array_equal(hidden.ids[others], ids[others])
        assert len(hidden.positions) >= 1


@every_kind
def test_spans_are_delimited_by_their_neighbours(kind):
    ids = sequence(251)
    hidden = masking(**KINDS[kind]).mask_tokens(ids, Draw(3))
    for place, before, after, within in zip(
        hidden.positions, hidden.before, hidden.after, hidden.within, strict=True
    ):
        assert before < place < after
        assert within == place - before - 1
        inside = np.arange(before + 1, after)
        assert np.isin(inside, hidden.positions).all()
        if kind == "spans":
            assert not np.isin([before, after], hidden.positions).any()


@every_kind
def test_the_selection_depends_only_on_the_key(kind):
    ids, made = sequence(101), masking(**KINDS[kind])
    first, again, other = (made.mask_tokens(ids, Draw(1, 2, n)) for n in (3, 3, 4))
    assert np.array_equal(first.ids, again.ids)
    assert np.array_equal(first.positions, again.positions)
    assert not np.array_equal(first.positions, other.positions)


@pytest.mark.parametrize("kind", ["words", "spans"])
def test_whole_words_are_masked(kind):
    for seed in range(50):
        ids = sequence(97, seed)
        chosen = np.isin(np.arange(len(ids)), masking(**KINDS[kind]).mask_tokens(ids, Draw(seed)).positions)
        for place in range(1, len(ids)):
            continues = ids[place] >= FIRST and ids[place - 1] >= FIRST and not WORDS[ids[place]]
            if continues:
                assert chosen[place] == chosen[place - 1]


def test_empty_sequences_are_unchanged():
    hidden = masking().mask_tokens(np.array([CLS, SEP]), Draw(1))
    assert hidden.ids.tolist() == [CLS, SEP]
    assert not len(hidden.positions)


# What holds on average -------------------------------------------------------------------------------------


def many(kind, rounds=400, n=62):
    made = masking(**KINDS[kind])
    for number in range(rounds):
        ids = np.concatenate([[CLS], tokens(n, number), [SEP]])
        yield ids, made.mask_tokens(ids, Draw(9, number))


def test_the_share_of_hidden_tokens_is_right_on_average():
    """62 tokens times 15 % is 9.3: rounding must not make it 9."""
    counts = [len(hidden.positions) for _, hidden in many("tokens", 3000)]
    assert set(counts) == {9, 10}
    assert likely(counts.count(10), len(counts), 0.3)


@pytest.mark.parametrize("kind", ["words", "spans"])
def test_the_share_of_hidden_words_and_spans_is_nearly_right(kind):
    share = np.mean([len(hidden.positions) / 62 for _, hidden in many(kind, 1000)])
    assert 0.135 < share < 0.165


@every_kind
def test_of_those_hidden_eight_tenths_are_masked_one_is_random_one_stays(kind):
    """Spans share their fate, so it is the spans that are counted there."""
    masked = kept = n = 0
    for ids, hidden in many(kind):
        places = hidden.positions[hidden.within == 0] if kind == "spans" else hidden.positions
        masked += int((hidden.ids[places] == MASK).sum())
        kept += int((hidden.ids[places] == ids[places]).sum())
        n += len(places)
    assert likely(masked, n, 0.8)
    # A random token may be the one that was there.
    assert likely(kept, n, 0.1 + 0.1 / (LAST - FIRST))


def test_random_tokens_come_from_the_whole_vocabulary():
    seen = []
    for ids, hidden in many("tokens", 2000):
        now = hidden.ids[hidden.positions]
        seen += now[(now != MASK) & (now != ids[hidden.positions])].tolist()
    assert min(seen) >= FIRST
    assert max(seen) < LAST
    assert stats.kstest(np.array(seen), stats.randint(FIRST, LAST).cdf).pvalue > SURE


def test_every_place_is_hidden_equally_often():
    counts = np.zeros(64)
    n = 0
    for _, hidden in many("tokens", 4000):
        counts[hidden.positions] += 1
        n += len(hidden.positions)
    assert counts[0] == counts[63] == 0
    assert stats.chisquare(counts[1:63]).pvalue > SURE


@pytest.mark.parametrize("p, longest", [(0.2, 10), (0.5, 3)])
def test_lengths_of_spans_follow_the_geometric_law(p, longest):
    lengths, draw = SpanLengths(p, longest), Draw(4)
    counts = np.bincount([lengths.draw(draw) for _ in range(5000)], minlength=longest + 1)[1:]
    law = np.array([p * (1 - p) ** n for n in range(longest)])
    assert stats.chisquare(counts, 5000 * law / law.sum()).pvalue > SURE


def test_the_mean_length_of_spanbert_is_3_8():
    assert SpanLengths().mean == pytest.approx(3.797, abs=1e-3)


def test_lengths_of_hidden_spans_follow_the_law_in_a_text():
    """Of a long text, where there is always room."""
    made = masking(begins_word=np.ones(LAST, bool), spans=SpanLengths())
    counts = np.zeros(11)
    for number in range(60):
        hidden = made.mask_tokens(sequence(997, number), Draw(5, number))
        runs = hidden.after[hidden.within == 0] - hidden.before[hidden.within == 0] - 1
        counts += np.bincount(runs, minlength=11)
    expected = SpanLengths().probabilities * counts.sum()
    assert stats.chisquare(counts[1:], expected).pvalue > SURE


# Tokenizers ------------------------------------------------------------------------------------------------

TEXT = "the quick brown foxes are jumping over lazy dogs while seventeen purple elephants watch quietly"
TOKENIZERS = {
    "bpe": BpeConfig(kind="bpe", merges=40),
    "unigram": UnigramConfig(kind="unigram", vocab_size=330),
    "wordpiece": WordPieceConfig(kind="wordpiece", vocab_size=80),
    "word": WordConfig(kind="word"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_show_where_words_begin(name):
    tokenizer = train_tokenizer(TOKENIZERS[name], [TEXT] * 3)
    ids = np.array(tokenizer.encode(TEXT))
    assert int(word_beginnings(tokenizer)[ids].sum()) == len(TEXT.split())
    made = Masking(
        MASK, FIRST, tokenizer.vocab_size, begins_word=word_beginnings(tokenizer), masked=1.0, random=0.0
    )
    for seed in range(30):
        hidden = made.mask_tokens(ids, Draw(seed))
        words = tokenizer.split_words(ids.tolist())[1]
        shown = {words[i] for i in range(len(ids)) if hidden.ids[i] != MASK}
        # White space that is a token of its own (-1) goes with the word after it.
        assert (shown & {words[i] for i in hidden.positions}) <= {-1}
        longest = max(np.bincount([word for word in words if word >= 0])) + 1
        assert len(hidden.positions) <= max(math.ceil(0.15 * len(ids)), longest)
