import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.decoding.beam import BeamConfig, beam_search
from heedful.decoding.diverse_beam import DiverseBeamConfig, diverse_beam_search
from heedful.decoding.phrases import RequiredPhrase
from heedful.decoding.rules import MinLength, NoRepeatedNgram
from heedful.decoding.scoring import AverageLength, GnmtLength, NoPenalty, score
from heedful.decoding.spelling import Spelling

PENALTIES = [NoPenalty(), AverageLength(alpha=1.0), GnmtLength(alpha=0.6)]


def plain_search(model, key, most, config):
    """One sentence, with lists, a group at a time, until the maximum length."""
    width = config.beam // config.n_groups
    running = [[(0.0, ())] for _ in range(config.n_groups)]
    finished = [[] for _ in running]
    for _ in range(most):
        chosen = []
        for group, hypotheses in enumerate(running):
            candidates = []
            for total, ids in hypotheses:
                row = model.log_probs_of(key, ids)
                candidates += [(total + row[i], (*ids, i)) for i in range(model.size) if row[i] > -math.inf]
            preferred = lambda c: c[0] - config.diversity * chosen.count(c[1][-1])  # noqa: B023, E731
            candidates.sort(key=preferred, reverse=True)
            finished[group] += [c for c in candidates[:width] if c[1][-1] == model.end]
            running[group] = [c for c in candidates if c[1][-1] != model.end][:width]
            if width == 1 and finished[group]:
                running[group] = []
            chosen += [ids[-1] for _, ids in running[group]]
    found = {}
    for ended, cut in zip(finished, running, strict=True):
        own = [
            (total / config.length_penalty.divisor(len(ids)), ids[-1] == model.end, ids)
            for total, ids in [*ended, *cut]
        ]
        is_dropped = lambda each: config.unfinished == "drop" and not each[1]  # noqa: E731
        own.sort(key=lambda each: (is_dropped(each), -each[0]))
        for place, each in enumerate(own[: min(width, config.n_best)]):
            rank = (is_dropped(each), place, -each[0])
            found[each[2]] = min(rank, found.get(each[2], rank))
    ranked = sorted(found.items(), key=lambda pair: pair[1])[: config.n_best]
    return [(ids[:-1] if ids[-1] == model.end else ids, -rank[2]) for ids, rank in ranked]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 999),
    groups=st.sampled_from([1, 2, 3]),
    width=st.sampled_from([1, 2, 3]),
    diversity=st.sampled_from([0.0, 0.3, 1.0, 50.0]),
    size=st.sampled_from([3, 5, 11]),
    bias=st.sampled_from([-1.0, 0.0, 2.0]),
    length=st.sampled_from(PENALTIES),
    unfinished=st.sampled_from(["keep", "drop"]),
    data=st.data(),
)
def test_it_equals_a_plain_search_of_each_sentence(
    toy, seed, groups, width, diversity, size, bias, length, unfinished, data
):
    model, keys, most = toy(size, seed, bias=bias), [0, 1, 2, 5], [5, 1, 3, 6]
    config = DiverseBeamConfig(
        beam=groups * width,
        groups=groups,
        n_best=data.draw(st.integers(1, groups * width)),
        diversity=diversity,
        length_penalty=length,
        unfinished=unfinished,
    )
    for key, n, found in zip(keys, most, diverse_beam_search(model.request(keys, most), config), strict=True):
        expected = plain_search(model, key, n, config)
        assert [h.ids for h in found] == [ids for ids, _ in expected]
        np.testing.assert_allclose([h.score for h in found], [s for _, s in expected], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("unfinished", ["keep", "drop"])
@pytest.mark.parametrize("beam, n_best", [(1, 1), (4, 1), (5, 3)])
def test_one_group_equals_a_beam_search_bit_for_bit(toy, beam, n_best, unfinished, length):
    for seed in range(6):
        model, keys, most = toy(7, seed, impossible=0.2), [0, 1, 2, 6], [5, 0, 1, 6]
        shared = {"beam": beam, "n_best": n_best, "unfinished": unfinished, "length_penalty": length}
        shared["coverage"] = 0.4 * (seed % 2)
        rules = [MinLength(2), NoRepeatedNgram(2)] if seed % 3 else []
        request = lambda: model.request(keys, most, constraints=[rules] * 4)  # noqa: B023, E731
        plain = beam_search(request(), BeamConfig(**shared))
        assert diverse_beam_search(request(), DiverseBeamConfig(**shared, groups=1)) == plain


def test_groups_avoid_the_tokens_of_earlier_ones(toy):
    """With a large term, no token is written twice at a position, while there are others."""
    model = toy(9, 4, bias=-9.0)
    config = DiverseBeamConfig(beam=4, n_best=4, diversity=1000.0)
    for hypotheses in diverse_beam_search(model.request([0, 1], [6, 4]), config):
        assert len(hypotheses) == 4
        assert all(len(set(tokens)) == 4 for tokens in zip(*(h.ids for h in hypotheses), strict=True))


def test_without_diversity_all_groups_find_the_same(toy):
    model = toy(9, 4)
    config = DiverseBeamConfig(beam=6, groups=3, n_best=6, diversity=0.0)
    plain = BeamConfig(beam=2, n_best=2)
    for key in range(4):
        (found,) = diverse_beam_search(model.request([key], [6]), config)
        assert [found] == beam_search(model.request([key], [6]), plain)


def test_scores_are_those_of_the_model(toy):
    model = toy(9, 1)
    config = DiverseBeamConfig(beam=6, groups=3, n_best=6, diversity=2.0, coverage=0.2)
    for key, hypotheses in enumerate(diverse_beam_search(model.request([0, 1, 2], [6, 5, 4]), config)):
        for h in hypotheses:
            sequence = (*h.ids, model.end) if h.finished else h.ids
            expected = [model.log_probs_of(key, sequence[:t])[i] for t, i in enumerate(sequence)]
            assert h.log_probs == pytest.approx(expected, abs=1e-5)
            assert h.score == score(h.log_probs, config.length_penalty, h.coverage_penalty)


def test_fewer_answers_are_the_first_of_more(toy):
    model = toy(9, 2, bias=1.0)
    search = lambda n: diverse_beam_search(  # noqa: E731
        model.request([0, 1, 2], [6, 5, 4]), DiverseBeamConfig(beam=6, groups=3, n_best=n)
    )
    for few, more in zip(search(2), search(6), strict=True):
        assert [h.ids for h in few] == [h.ids for h in more[:2]]


def test_outputs_without_required_phrases_are_marked(toy):
    """They cannot end; the search does not look for the phrases."""
    spelling = Spelling([b"a", b"b", b"c", b"d", b""])
    required = RequiredPhrase(spelling, b"abcd", [[0, 1, 2, 3]], "abcd")
    model = toy(5, 3)
    config = DiverseBeamConfig(beam=4, groups=2, n_best=4)
    for hypotheses in diverse_beam_search(
        model.request([0, 1], [5, 5], constraints=[[required]] * 2), config
    ):
        for h in hypotheses:
            is_held = (0, 1, 2, 3) in [h.ids[i : i + 4] for i in range(2)]
            assert h.violated == (() if is_held else ("abcd",))


def test_groups_divide_the_beam():
    assert DiverseBeamConfig(beam=6).n_groups == 6
    with pytest.raises(ValidationError, match=r"groups must divide beam \(6\), got 4"):
        DiverseBeamConfig(beam=6, groups=4)
