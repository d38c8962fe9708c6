"""BPE-dropout: the same text, other pieces, and the probabilities of algorithm 1 of the paper."""

from collections import Counter
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.text.configuration import BpeConfig, ByteBpeConfig, CharacterConfig
from heedful.text.merge_dropout import MergeDropout
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

LINES = [
    "the lower the newer, the wider the lowest",
    "newest and widest: lower  than low (is slow)",
    "naïve café, 1999 and 2,000; don't slow down\tnow",
] * 3


def make(kind: str, split: str, **more: object) -> Tokenizer:
    config = {"bpe": BpeConfig, "byte-bpe": ByteBpeConfig}[kind]
    return train_tokenizer(config(kind=kind, split=split, merges=60, **more), LINES)


KINDS = [
    ("bpe", "class"),
    ("bpe", "space"),
    ("byte-bpe", "class"),
    ("byte-bpe", "space"),
    ("byte-bpe", "gpt2"),
]
MADE = {kind: make(*kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=150, deadline=None)
@given(text=st.text() | st.text("the lowrns,. 12é\n"), p=st.sampled_from([0.0, 0.1, 0.7, 0.999]))
def test_the_text_is_unchanged_and_without_dropout_so_are_the_ids(
    kind: tuple[str, str], text: str, p: float
) -> None:
    tokenizer = MADE[kind]
    ids = tokenizer.encode(text)
    again = MergeDropout(tokenizer.model, p)(ids, text)
    assert tokenizer.decode(again) == text
    if p == 0:
        assert again == ids


def test_without_merges_pieces_are_characters() -> None:
    tokenizer = MADE["bpe", "class"]
    ids = tokenizer.encode("the lower")
    drop = MergeDropout(tokenizer.model, 0.999999)
    assert tokenizer.tokens(drop(ids, "x")) == list("▁the▁lower")


def test_the_seed_determines_the_segmentation() -> None:
    tokenizer = MADE["bpe", "space"]
    ids, drop = tokenizer.encode(" ".join(LINES)), MergeDropout(tokenizer.model, 0.3)
    assert drop(ids, "1 2 3") == drop(np.array(ids), "1 2 3") != drop(ids, "1 2 4")


def test_unknown_letters_stay_unknown() -> None:
    tokenizer = make("bpe", "class", byte_fallback=False)
    ids = tokenizer.encode("the Ω lowΩer")
    assert ids.count(SPECIALS.unknown) == 2
    assert MergeDropout(tokenizer.model, 0.0)(ids, "x") == ids
    again = MergeDropout(tokenizer.model, 0.9)(ids, "x")
    assert again.count(SPECIALS.unknown) == 2
    assert tokenizer.decode(again) == tokenizer.decode(ids)


def test_a_text_truncated_within_a_character_is_unchanged() -> None:
    tokenizer = MADE["bpe", "class"]
    ids = tokenizer.encode("low 語")[:-1]
    assert MergeDropout(tokenizer.model, 0.9)(ids, "x") == ids


def test_segmentation_probabilities_match_the_algorithm() -> None:
    """Counted against every subset of merges that may be left out, each with its probability."""
    config = BpeConfig(kind="bpe", merges=3, min_frequency=1, split="space")
    tokenizer = train_tokenizer(config, ["abc", "abc", "xabd"])
    p, n = 0.3, 4000
    drop, ids = MergeDropout(tokenizer.model, p), tokenizer.encode("xabc")
    found = Counter(tuple(tokenizer.tokens(drop(ids, str(i)))) for i in range(n))
    merges = [tuple(pair) for pair in tokenizer.model.data["model"]["merges"]]
    expected = _law(tuple(" xabc"), merges, p)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) <= {tuple(t.replace(" ", "▁") for t in cut) for cut in expected}
    for cut, share in expected.items():
        counted = found[tuple(t.replace(" ", "▁") for t in cut)] / n
        assert abs(counted - share) < 5 * sqrt(share * (1 - share) / n) + 1e-9, (cut, share, counted)


def _law(pieces: tuple[str, ...], merges: list[tuple[str, str]], p: float) -> dict[tuple[str, ...], float]:
    """The probability of every cut, by going through every subset of merges that may be left out."""
    places = [i for i in range(len(pieces) - 1) if (pieces[i], pieces[i + 1]) in merges]
    law: Counter[tuple[str, ...]] = Counter()
    for kept in range(1 << len(places)):
        able = [place for n, place in enumerate(places) if kept >> n & 1]
        weight = p ** (len(places) - len(able)) * (1 - p) ** len(able)
        if not able:
            law[pieces] += weight
            continue
        best = min(able, key=lambda i: merges.index((pieces[i], pieces[i + 1])))
        merged = (*pieces[:best], pieces[best] + pieces[best + 1], *pieces[best + 2 :])
        for cut, share in _law(merged, merges, p).items():
            law[cut] += weight * share
    return law


def test_a_model_without_merges_is_refused() -> None:
    tokenizer = train_tokenizer(CharacterConfig(kind="character"), LINES)
    with pytest.raises(RequestError, match=r"subwords\.kind=character has no merges for BPE-dropout"):
        MergeDropout(tokenizer.model, 0.1)
