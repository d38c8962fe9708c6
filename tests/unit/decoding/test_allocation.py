import itertools

import pytest

from heedful.decoding.beam import BeamConfig, beam_search
from heedful.decoding.phrases import RequiredPhrase
from heedful.decoding.spelling import Spelling

SPELLING = Spelling([b"a", b"b", b"c", b"d", b"e", b""])  # the last one is the end token
PIECES = [piece.decode() for piece in SPELLING.pieces]


def required(phrase):
    return RequiredPhrase(SPELLING, phrase.encode(), [[PIECES.index(c) for c in phrase]], phrase)


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
@pytest.mark.parametrize("phrases", [("abca", "ade", "aae"), ("aab", "aac", "aad"), ("abab", "baba", "cc")])
def test_phrases_that_begin_alike_are_written_within_as_many_steps_as_they_have_tokens(toy, beam, phrases):
    """A token that begins several of them is a step towards each, and only one can be continued."""
    n_tokens = sum(map(len, phrases))
    for seed, order in enumerate(itertools.permutations(phrases)):
        model = toy(len(PIECES), seed)
        request = model.request([0, 1], [n_tokens] * 2, constraints=[[required(p) for p in order]] * 2)
        for hypotheses in beam_search(request, BeamConfig(beam=beam)):
            text = "".join(PIECES[i] for i in hypotheses[0].ids)
            assert all(phrase in text for phrase in phrases), (seed, text)
            assert not hypotheses[0].violated
