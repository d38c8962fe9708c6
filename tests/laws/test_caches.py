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
from hypothesis import strategies as st

from heedful.nn.layout import Layout, Tokens


def extend(model, state, pieces):
    """Write one piece for each hypothesis; their hidden states, and the state."""
    lengths = [len(piece) for piece in pieces]
    ids = torch.tensor([i for piece in pieces for i in piece], dtype=torch.int64)
    hidden, state = model.extend(Tokens(ids, state.next_layout(lengths)), state)
    return list(hidden.split(lengths)), state


def written(model, sources, targets, cuts):
    """Hidden states of ``targets``, each written in the pieces between its ``cuts``."""
    state = start(model, sources)
    parts = [[] for _ in targets]
    for round_ in zip(*(zip([0, *cut], [*cut, len(t)], strict=True) for cut, t in zip(cuts, targets))):
        pieces = [target[begin:end] for target, (begin, end) in zip(targets, round_, strict=True)]
        hidden, state = extend(model, state, pieces)
        for part, own in zip(parts, hidden, strict=True):
            part.append(own)
    assert state.lengths == tuple(map(len, targets))
    return [torch.cat(part) for part in parts]


@every_model_and_kernel
def test_step_by_step_equals_at_once(name, kernel):
    """Sequences that have ended write nothing, while the others go on."""
    model = model_of(name)
    cuts = [[min(t, len(target)) for t in range(1, 7)] for target in TARGETS]
    same(written(model, SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


def cuts_of(lengths, n_pieces):
    one = [st.lists(st.integers(0, n), min_size=n_pieces - 1, max_size=n_pieces - 1) for n in lengths]
    return st.tuples(*(cuts.map(sorted) for cuts in one))


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


WIDTH = 3


@st.composite
def decodings(draw):
    """A plan: at each step a token for every hypothesis, then parents, then which sentences stay."""
    sentences, plan = 3, []
    for _ in range(3):
        n = sentences * WIDTH
        ids = draw(st.lists(st.integers(3, 20), min_size=n, max_size=n))
        beams = st.lists(st.integers(0, WIDTH - 1), min_size=n, max_size=n)
        parents = [WIDTH * (row // WIDTH) + beam for row, beam in enumerate(draw(beams))]
        kept = draw(st.lists(st.integers(0, sentences - 1), min_size=1, unique=True).map(sorted))
        plan.append((ids, parents, kept))
        sentences = len(kept)
    return plan


@every_decoded_and_kernel
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=decodings())
def test_hypotheses_that_are_widened_reordered_and_dropped_equal_sequences_of_their_own(name, kernel, plan):
    """Each hypothesis is also written down as a list, and computed at once in the end."""
    model = model_of(name)
    prefixes = [[START, 5, 6], [START], [START, 7, 8, 9]]
    state = start(model, SOURCES)
    _, state = extend(model, state, prefixes)
    state, sources = state.widen(WIDTH), list(SOURCES)
    histories = [prefix for prefix in prefixes for _ in range(WIDTH)]
    for ids, parents, kept in plan:
        hidden, state = extend(model, state, [[i] for i in ids])
        histories = [[*history, i] for history, i in zip(histories, ids, strict=True)]
        each = [source for source in sources for _ in range(WIDTH)]
        whole = hidden_of(model, each, histories)
        same(torch.cat(hidden), torch.stack([own[-1] for own in whole]))
        state = state.select(torch.tensor(parents)).keep(kept)
        rows = [WIDTH * sentence + beam for sentence in kept for beam in range(WIDTH)]
        histories = [histories[parents[row]] for row in rows]
        sources = [sources[sentence] for sentence in kept]
        assert state.lengths == tuple(map(len, histories))
