"""What is hidden from masked models, on text of several tokenizers: how much, how, and in which spans."""

import numpy as np
import pytest
from scipy import stats

from heedful.data.corpora import open_corpus
from heedful.data.masking import Draw, Masking, SpanLengths
from heedful.tasks.masked_language_modelling.masking import word_beginnings
from heedful.text.configuration import BpeConfig, ByteBpeConfig, UnigramConfig, WordConfig, WordPieceConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

MASK, FIRST = SPECIALS.mask, len(SPECIALS)
SURE = 1e-6  # seeds are fixed: a case that holds goes on holding
N, ROUNDS = 251, 200
TOKENIZERS = {
    "bpe": BpeConfig(kind="bpe", vocab_size=300),
    "byte-bpe": ByteBpeConfig(kind="byte-bpe", vocab_size=500),
    "unigram": UnigramConfig(kind="unigram", vocab_size=500),
    "wordpiece": WordPieceConfig(kind="wordpiece", vocab_size=300),
    "word": WordConfig(kind="word"),
}
KINDS = ["tokens", "words", "spans"]


@pytest.fixture(scope="module", params=TOKENIZERS)
def text(request):
    """Ids of running text, the vocabulary's size, and for each id whether it begins a word."""
    rows = [row["source"] for row in open_corpus("phrasebook-de", "valid")][:400]
    tokenizer = train_tokenizer(TOKENIZERS[request.param], rows)
    ids = np.concatenate([np.asarray(tokenizer.encode(row)) for row in rows])
    return ids, tokenizer.vocab_size, word_beginnings(tokenizer)


def hidden_windows(text, kind, rounds=ROUNDS, **options):
    ids, size, begins = text
    made = Masking(
        MASK, FIRST, size,
        begins_word=None if kind == "tokens" else begins,
        spans=SpanLengths() if kind == "spans" else None,
        **options,
    )  # fmt: skip
    for number in range(rounds):
        draw = Draw(11, number)
        start = draw.below(len(ids) - N)
        window = ids[start : start + N]
        yield window, made.mask_tokens(window, draw)


def likely(successes, n, p):
    return stats.binomtest(int(successes), int(n), p).pvalue > SURE


@pytest.mark.parametrize("kind", KINDS)
def test_fifteen_in_a_hundred_tokens_are_chosen(text, kind):
    """Single tokens to the last one; whole words and spans on average, as far as few rounds can tell."""
    counts = np.array([len(hidden.positions) for _, hidden in hidden_windows(text, kind)])
    if kind == "tokens":
        assert set(counts) <= {37, 38}
        assert likely((counts == 38).sum(), ROUNDS, 0.15 * N - 37)
    else:
        error = counts.std() / np.sqrt(ROUNDS)
        # Words and spans that do not fit are left out: a percent or two of the tokens may be missing or more.
        assert abs(counts.mean() - 0.15 * N) < 5 * error + 0.02 * 0.15 * N


@pytest.mark.parametrize("kind", KINDS)
def test_eight_tenths_are_masked_one_is_random_one_stays(text, kind):
    """Within binomial error. Spans share their fate: of each, one token counts."""
    masked = kept = n = 0
    for window, hidden in hidden_windows(text, kind):
        places = hidden.positions[hidden.within == 0] if kind == "spans" else hidden.positions
        masked += (hidden.ids[places] == MASK).sum()
        kept += (hidden.ids[places] == window[places]).sum()
        n += len(places)
    assert likely(masked, n, 0.8)
    # A random token may be the one that was there.
    assert likely(kept, n, 0.1 + 0.1 / (text[1] - FIRST))


def test_spans_have_the_lengths_of_the_geometric_law_in_words(text):
    """Renormalised over 1 to 10, whatever the words are made of."""
    begins = text[2]
    counts = np.zeros(11)
    for window, hidden in hidden_windows(text, "spans", rounds=150):
        for first in np.flatnonzero(hidden.within == 0):
            run = window[hidden.before[first] + 1 : hidden.after[first]]
            # The window may begin amid a word: what is there of it counts as one.
            counts[begins[run].sum() + (not begins[run[0]])] += 1
    expected = SpanLengths().probabilities * counts.sum()
    assert stats.chisquare(counts[1:], expected).pvalue > SURE
