"""Writing sequences piece by piece, with a model or with what takes its place in decoding."""

import torch
from cases import SOURCES, START, hidden_of, same, start
from hypothesis import strategies as st

from heedful.nn.layout import Tokens


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


def cuts_of(lengths, n_pieces):
    one = [st.lists(st.integers(0, n), min_size=n_pieces - 1, max_size=n_pieces - 1) for n in lengths]
    return st.tuples(*(cuts.map(sorted) for cuts in one))


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


def check_decodings(writer, model, plan):
    """Each hypothesis that ``writer`` writes is also kept as a list, and computed at once in the end."""
    prefixes = [[START, 5, 6], [START], [START, 7, 8, 9]]
    state = start(writer, SOURCES)
    _, state = extend(writer, state, prefixes)
    state, sources = state.expand(WIDTH), list(SOURCES)
    histories = [prefix for prefix in prefixes for _ in range(WIDTH)]
    for ids, parents, kept in plan:
        hidden, state = extend(writer, state, [[i] for i in ids])
        histories = [[*history, i] for history, i in zip(histories, ids, strict=True)]
        each = [source for source in sources for _ in range(WIDTH)]
        whole = hidden_of(model, each, histories)
        same(torch.cat(hidden), torch.stack([own[-1] for own in whole]))
        state = state.select(torch.tensor(parents)).keep(kept)
        rows = [WIDTH * sentence + beam for sentence in kept for beam in range(WIDTH)]
        histories = [histories[parents[row]] for row in rows]
        sources = [sources[sentence] for sentence in kept]
        assert state.lengths == tuple(map(len, histories))
