"""Law 3, decoding: what is written piece by piece equals what is computed at once."""

import torch
from cases import (
    MIXERS,
    SOURCES,
    START,
    TARGETS,
    every_cached_mixer_and_kernel,
    every_decoded,
    every_decoded_and_kernel,
    every_model_and_kernel,
    hidden_of,
    mixer_of,
    model_of,
    same,
    start,
    tokens_of,
)
from hypothesis import HealthCheck, given, settings
from writing import check_decodings, cuts_of, decodings, extend, written

from heedful.nn.layout import Layout


@every_model_and_kernel
def test_step_by_step_equals_at_once(name, kernel):
    """Sequences that have ended write nothing, while the others go on."""
    model = model_of(name)
    cuts = [[min(t, len(target)) for t in range(1, 7)] for target in TARGETS]
    same(written(model, SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


@every_decoded
@settings(max_examples=6, deadline=None)
@given(cuts=cuts_of([4, 7, 1], 4))
def test_any_ragged_pieces_equal_at_once(name, cuts):
    model = model_of(name)
    same(written(model, SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


@every_cached_mixer_and_kernel
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=cuts_of([5, 0, 7, 1], 3))
def test_a_mixer_continues_its_sequences_in_any_pieces(name, kernel, cuts):
    mixer, lengths = mixer_of(name), [5, 0, 7, 1]
    x = tokens_of(lengths).split(lengths)
    cache, parts = MIXERS[name].cache(), [[] for _ in lengths]
    for spans in zip(*(zip([0, *cut], [*cut, n]) for cut, n in zip(cuts, lengths))):
        layout = Layout.of([end - begin for begin, end in spans], [begin for begin, _ in spans])
        out = mixer(torch.cat([own[b:e] for own, (b, e) in zip(x, spans)]), layout, cache)
        for part, piece in zip(parts, out.split(layout.lengths)):
            part.append(piece)
    whole = mixer(torch.cat(x), Layout.of(lengths)).split(lengths)
    same([torch.cat(part) for part in parts], list(whole))


@every_model_and_kernel
def test_prefixes_of_different_lengths_may_be_followed_by_single_steps(name, kernel):
    model = model_of(name)
    prefixes, more = [[START, 5, 6], [START], [START, 7, 8, 9, 10]], [[13, 14], [15, 16], [17, 18]]
    state = start(model, SOURCES)
    hidden, state = extend(model, state, prefixes)
    for t in range(2):
        last, state = extend(model, state, [own[t : t + 1] for own in more])
        hidden = [torch.cat(pair) for pair in zip(hidden, last)]
    whole = [p + m for p, m in zip(prefixes, more)]
    same(hidden, hidden_of(model, SOURCES, whole))


@every_decoded_and_kernel
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=decodings())
def test_hypotheses_that_are_widened_reordered_and_dropped_equal_sequences_of_their_own(name, kernel, plan):
    model = model_of(name)
    check_decodings(model, model, plan)
