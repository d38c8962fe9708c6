"""Decoders against the papers' equations written as plain loops, one sentence and one step at a time."""

import pytest
import torch
from torch import nn

from heedful.nn.attention.recurrent import (
    Annotations,
    AttentionResult,
    EncoderOutput,
    FixedContext,
    RecurrentAttention,
)
from heedful.nn.attention.recurrent_heads import MultiHeadAdditiveAttention
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, DotScore, ScaledDotScore
from heedful.nn.attentive import AttendThenUpdate, AttentiveDecoder, FixedContextDecoder, UpdateThenAttend
from heedful.nn.bridges import CopyBridge, ProjectedBridge, ZeroBridge
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell, StackedCell
from heedful.nn.layout import Layout
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentStack
from heedful.nn.taps import capture, intervene, recording

D_E, D_H, D_A, D_OUT, UNITS = 5, 7, 14, 3, 11
TARGETS, SOURCES = [4, 1, 6], [5, 3, 2]


def encoded(sources=SOURCES, seed=1) -> EncoderOutput:
    torch.manual_seed(seed)
    layer = Bidirectional(Recurrence(GRUCell(D_E, D_H)), Recurrence(GRUCell(D_E, D_H), reverse=True))
    stack, layout = RecurrentStack([layer]), Layout.of(sources)
    annotations, finals = stack.run(torch.randn(layout.n_tokens, D_E), layout)
    return EncoderOutput(annotations.detach(), layout, finals, stack.summary(finals).detach())


def bahdanau(attention=None, feed=False) -> AttentiveDecoder:
    torch.manual_seed(2)
    attention = attention or RecurrentAttention(AdditiveScore(D_H, D_A, UNITS), D_A)
    return AttentiveDecoder(
        AttendThenUpdate(GRUCell(D_E, D_H), attention),
        MaxoutReadout(D_H, D_E, attention.d_context, D_OUT),
        ProjectedBridge(D_H, D_H, 1),
        input_feeding=feed,
    )


def luong(feed=True) -> AttentiveDecoder:
    torch.manual_seed(3)
    cell = StackedCell([LSTMCell(D_E, D_H), LSTMCell(D_H, D_H)])
    return AttentiveDecoder(
        UpdateThenAttend(cell, RecurrentAttention(BilinearScore(D_H, D_A), D_A)),
        TanhReadout(D_H, D_A, D_OUT),
        ZeroBridge(D_H, cell.n_states),
        input_feeding=feed,
    )


class Covered(RecurrentAttention):
    """An attention with a memory: keys that had weight before are scored lower."""

    def initial_history(self, memory):
        return memory.vectors.new_zeros(memory.vectors.shape[:2])

    def forward(self, query, memory, history):
        scores = self.score(query.unflatten(0, (len(memory.keys), -1)), memory.keys).flatten(0, 1) - history
        if memory.masked is not None:
            width = len(query) // len(memory.keys)
            scores = scores.masked_fill(memory.masked[:, 0].repeat_interleave(width, 0), -1e9)
        weights = scores.softmax(-1)
        return AttentionResult(self.weighted_sum(weights, memory), weights, history + 3 * weights)


def covered() -> AttentiveDecoder:
    torch.manual_seed(4)
    return bahdanau(Covered(BilinearScore(D_H, D_A), D_A), feed=True)


def fixed() -> AttentiveDecoder:
    return bahdanau(FixedContext(D_H))


def plain() -> FixedContextDecoder:
    torch.manual_seed(5)
    stack = RecurrentStack([Recurrence(LSTMCell(D_E, D_H)), Recurrence(ElmanCell(D_H, D_H))])
    return FixedContextDecoder(stack, ProjectedBridge(D_H, D_H, 3))


DECODERS = {
    "bahdanau": bahdanau,
    "bahdanau fed": lambda: bahdanau(feed=True),
    "luong": luong,
    "luong unfed": lambda: luong(feed=False),
    "covered": covered,
    "fixed": fixed,
    "plain": plain,
}
every_decoder = pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS.keys())


def embedded(lengths=TARGETS, seed=6):
    torch.manual_seed(seed)
    return [torch.randn(n, D_E) for n in lengths]


def run(decoder, x, source):
    return decoder(torch.cat(x), Layout.of([len(own) for own in x]), *decoder.initial_state(source))


def gru(cell, x, c, matrix, s):
    """Bahdanau et al. 2015, A.1.1 and A.2.2, with Cho's sense of z."""
    w = cell.input.weight.split(D_H)
    b = cell.input.bias.split(D_H)
    u_r, u_z = cell.recurrent.weight.split(D_H)
    c_r, c_z, c_n = matrix.split(D_H)
    r = torch.sigmoid(w[0] @ x + u_r @ s + c_r @ c + b[0])
    z = torch.sigmoid(w[1] @ x + u_z @ s + c_z @ c + b[1])
    n = torch.tanh(w[2] @ x + cell.candidate.weight @ (r * s) + c_n @ c + b[2])
    return z * s + (1 - z) * n


def maxout(readout, s, y, c):
    t = readout.state.weight @ s + readout.token.weight @ y + readout.context.weight @ c + readout.state.bias
    return torch.stack([max(t[2 * j], t[2 * j + 1]) for j in range(D_OUT)])


def test_bahdanaus_decoder_equals_the_appendix():
    decoder, source, x = bahdanau(), encoded(), embedded()
    score, cell = decoder.step.attention.score, decoder.step.cell
    wanted, weights = [], []
    for row, h in enumerate(source.annotations.split(SOURCES)):
        first = h[0, D_H:]  # the right-to-left state at the first token
        s = torch.tanh(decoder.bridge.linear.weight @ first + decoder.bridge.linear.bias)
        for y in x[row]:
            e = [
                score.vector.weight[0] @ torch.tanh(score.query.weight @ s + score.key.weight @ h_i)
                for h_i in h
            ]
            alpha = torch.stack(e).exp() / torch.stack(e).exp().sum()
            c = sum(a * h_i for a, h_i in zip(alpha, h))
            wanted.append(maxout(decoder.readout, s, y, c))  # with s_{t-1}
            s = gru(cell, y, c, decoder.step.context.weight, s)
            weights.append(alpha)
    with recording(decoder, ["weights"]) as record:
        got = run(decoder, x, source)
    torch.testing.assert_close(got, torch.stack(wanted))
    (seen,) = record["weights"]
    assert seen.shape == (3, 1, 6, 5)
    for token, alpha in enumerate(weights):
        row = Layout.of(TARGETS).sequence[token]
        at = seen[row, 0, Layout.of(TARGETS).within[token]]
        torch.testing.assert_close(at[: len(alpha)], alpha)
        assert not at[len(alpha) :].any()


def test_luongs_decoder_with_input_feeding_equals_the_paper():
    decoder, source, x = luong(), encoded(), embedded()
    low, high = decoder.step.cell.cells
    score, readout = decoder.step.attention.score, decoder.readout
    lstms = [nn.LSTMCell(D_E + D_OUT, D_H), nn.LSTMCell(D_H, D_H)]
    with torch.no_grad():
        lstms[0].weight_ih.copy_(torch.cat([low.input.weight, decoder.feed.weight], dim=1))
        lstms[1].weight_ih.copy_(high.input.weight)
        for theirs, ours in zip(lstms, (low, high)):
            theirs.weight_hh.copy_(ours.recurrent.weight)
            theirs.bias_ih.copy_(ours.input.bias)
            theirs.bias_hh.zero_()
    wanted = []
    for row, h in enumerate(source.annotations.split(SOURCES)):
        states = [(torch.zeros(1, D_H), torch.zeros(1, D_H))] * 2
        fed = torch.zeros(D_OUT)
        for y in x[row]:
            states[0] = lstms[0](torch.cat([y, fed])[None], states[0])
            states[1] = lstms[1](states[0][0], states[1])
            s = states[1][0][0]
            alpha = torch.stack([s @ score.key.weight @ h_i for h_i in h]).softmax(0)
            c = alpha @ h
            w_c = torch.cat([readout.context.weight, readout.state.weight], dim=1)
            fed = torch.tanh(w_c @ torch.cat([c, s]) + readout.state.bias)
            wanted.append(fed)
    torch.testing.assert_close(run(decoder, x, source), torch.stack(wanted))


def test_a_fixed_context_is_read_at_every_step():
    decoder, source, x = fixed(), encoded(), embedded()
    wanted = []
    for row, c in enumerate(source.summary):
        s = torch.tanh(decoder.bridge.linear.weight @ c + decoder.bridge.linear.bias)
        for y in x[row]:
            wanted.append(maxout(decoder.readout, s, y, c))
            s = gru(decoder.step.cell, y, c, decoder.step.context.weight, s)
    torch.testing.assert_close(run(decoder, x, source), torch.stack(wanted))


def test_a_plain_decoder_knows_of_the_source_through_its_first_state_alone():
    decoder, source, x = plain(), encoded(), embedded()
    first = torch.tanh(decoder.bridge.linear(source.summary)).split(D_H, dim=-1)
    low, high = decoder.stack.layers
    layout = Layout.of(TARGETS)
    middle, _ = low.run(torch.cat(x), layout, first[:2])
    wanted, _ = high.run(middle, layout, first[2:])
    assert torch.equal(run(decoder, x, source), wanted)
    assert decoder.initial_state(source)[0] == []


@every_decoder
def test_batched_equals_single_and_any_order(make):
    decoder, x = make(), embedded()
    source = encoded()
    together = run(decoder, x, source).split(TARGETS)
    parts = source.annotations.split(SOURCES)
    pick = lambda rows: EncoderOutput(  # noqa: E731
        torch.cat([parts[r] for r in rows]), Layout.of([SOURCES[r] for r in rows]), [], source.summary[rows]
    )
    for row in range(3):
        torch.testing.assert_close(run(decoder, [x[row]], pick([row])), together[row])
    moved = run(decoder, [x[r] for r in (2, 0, 1)], pick([2, 0, 1]))
    torch.testing.assert_close(moved, torch.cat([together[r] for r in (2, 0, 1)]))


@every_decoder
@pytest.mark.parametrize(
    "cuts", [((1, 2), (0, 1), (3, 6)), ((0, 4), (0, 0), (1, 1)), ((4, 4), (1, 1), (6, 6))]
)
def test_cached_in_ragged_chunks_equals_whole(make, cuts):
    decoder, x, source = make(), embedded(), encoded()
    whole = run(decoder, x, source).split(TARGETS)
    memories, caches = decoder.initial_state(source)
    bounds = [(0, *cut, n) for cut, n in zip(cuts, TARGETS)]
    for k in range(3):
        spans = [slice(b[k], b[k + 1]) for b in bounds]
        layout = Layout.of([s.stop - s.start for s in spans], [s.start for s in spans])
        out = decoder(torch.cat([own[s] for own, s in zip(x, spans)]), layout, memories, caches)
        torch.testing.assert_close(out, torch.cat([own[s] for own, s in zip(whole, spans)]))


@every_decoder
@pytest.mark.parametrize("lengths", [[1] * 6, [4] * 6, [2, 3, 0, 1, 4, 2]], ids=["steps", "even", "ragged"])
def test_hypotheses_of_one_sentence_equal_copies_of_it(make, lengths):
    decoder, x, source = make(), embedded(lengths), encoded()
    pairs = torch.arange(3).repeat_interleave(2)
    parts = source.annotations.split(SOURCES)
    copies = EncoderOutput(
        torch.cat([parts[r] for r in pairs]),
        Layout.of([SOURCES[r] for r in pairs]),
        [],
        source.summary[pairs],
    )
    wanted = run(decoder, x, copies)
    memories, caches = decoder.initial_state(source)
    caches = [cache.select(pairs) for cache in caches]
    got = decoder(torch.cat(x), Layout.of(lengths), memories, caches)
    torch.testing.assert_close(got, wanted)


@every_decoder
def test_a_later_token_changes_nothing_earlier(make):
    decoder, source = make(), encoded()
    x = torch.cat(embedded()).requires_grad_()
    layout = Layout.of(TARGETS)
    out = decoder(x, layout, *decoder.initial_state(source))
    (gradient,) = torch.autograd.grad(out[layout.within <= 2].sum(), x)
    late = layout.within > 2
    assert not gradient[late].any()
    assert gradient[~late].abs().sum(-1).gt(0).all()


@pytest.mark.parametrize("make", [bahdanau, luong])
def test_one_sentence_is_not_moved_by_the_source_of_another(make):
    decoder, x, source = make(), embedded(), encoded()
    clean = run(decoder, x, source)
    annotations = source.annotations.clone()
    annotations[5:8] = torch.nan
    annotations.requires_grad_()
    out = run(decoder, x, source._replace(annotations=annotations))
    others = [*range(4), *range(5, 11)]
    assert torch.equal(out[others], clean[others])
    (gradient,) = torch.autograd.grad(out[others].sum(), annotations)
    kept = [*range(5), 8, 9]
    assert gradient[kept].isfinite().all()
    assert gradient[kept].any(dim=-1).all()
    finite = source.annotations.clone().requires_grad_()
    out = run(decoder, x, source._replace(annotations=finite))
    (gradient,) = torch.autograd.grad(out[others].sum(), finite)
    assert not gradient[5:8].any()


def test_a_source_without_tokens_gives_exactly_no_context():
    attention = RecurrentAttention(AdditiveScore(D_H, D_A, UNITS, bias=True), D_A)
    source = EncoderOutput(torch.randn(2, D_A), Layout.of([0, 2]), [], torch.zeros(2, D_H))
    query = torch.randn(4, D_H, requires_grad=True)
    context, weights, history = attention(query, attention.make_memory(source), None)
    assert not context[:2].any()
    assert not weights[:2].any()
    torch.testing.assert_close(weights[2:].sum(-1), torch.ones(2))
    assert history is None
    (gradient,) = torch.autograd.grad(context.sum() + weights.square().sum(), query)
    assert not gradient[:2].any()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("score", [DotScore(), ScaledDotScore(), CosineScore(2.0), BilinearScore(D_H, D_H)])
def test_any_score_can_be_passed(score):
    attention = RecurrentAttention(score, D_H)
    h, queries = torch.randn(5, D_H), torch.randn(4, D_H)
    memory = attention.make_memory(EncoderOutput(h, Layout.of([3, 2]), [], torch.zeros(2, D_H)))
    context, weights, _ = attention(queries, memory, None)
    for n, own in enumerate((h[:3], h[:3], h[3:], h[3:])):
        alpha = score(queries[n : n + 1], score.prepare(own))[0].softmax(0)
        torch.testing.assert_close(weights[n, : len(own)], alpha)
        torch.testing.assert_close(context[n], alpha @ own)


@torch.no_grad()
def test_the_dot_product_with_projected_keys_is_the_bilinear_score():
    """s · (W h) = sᵀ W h."""
    projected = RecurrentAttention(DotScore(), D_A, D_H)
    bilinear = RecurrentAttention(BilinearScore(D_H, D_A), D_A)
    bilinear.score.key.weight.copy_(projected.key.weight)
    source, queries = encoded(), torch.randn(3, D_H)
    one, other = (each(queries, each.make_memory(source), None) for each in (projected, bilinear))
    torch.testing.assert_close(one.weights, other.weights)
    torch.testing.assert_close(one.context, other.context)
    with pytest.raises(ValueError, match="expected d_k=7, got d_k=14"):
        RecurrentAttention(BilinearScore(D_H, D_A), D_A, D_H)


def test_memories_follow_their_sentences():
    source = encoded()
    attention = RecurrentAttention(BilinearScore(D_H, D_A), D_A)
    memory, query = attention.make_memory(source), torch.randn(3, D_H)
    order = torch.tensor([2, 0])
    all_of_them, some = attention(query, memory, None), attention(query[order], memory.select(order), None)
    torch.testing.assert_close(some.context, all_of_them.context[order])
    torch.testing.assert_close(attention(query[:2], memory.first(2), None).context, all_of_them.context[:2])
    fixed = FixedContext(D_H)
    assert torch.equal(
        fixed(query[order], fixed.make_memory(source).select(order), None).context, source.summary[order]
    )
    full = Annotations(torch.zeros(2, 1, D_A), torch.zeros(2, 1, D_H), None)
    assert full.first(2) is full
    assert full.first(1).masked is None
    assert full.select(torch.tensor([1])).masked is None


def test_bridges():
    source = encoded()
    copied = CopyBridge()(
        source._replace(finals=[(torch.ones(3, 2), torch.zeros(3, 2)), (torch.ones(3, 2) * 2,)])
    )
    assert [s[0, 0].item() for s in copied] == [1, 0, 2]
    assert [s.shape for s in ZeroBridge(D_H, 2)(source)] == [(3, D_H)] * 2
    bridge = ProjectedBridge(D_H, 4, 2)
    wanted = torch.tanh(source.summary @ bridge.linear.weight.T + bridge.linear.bias)
    torch.testing.assert_close(torch.cat(bridge(source), dim=-1), wanted)


@every_decoder
def test_no_new_tokens_change_nothing(make):
    decoder, source = make(), encoded()
    memories, caches = decoder.initial_state(source)
    assert decoder(torch.zeros(0, D_E), Layout.of([0, 0, 0]), memories, caches).shape == (0, decoder.d_out)
    x = embedded()
    torch.testing.assert_close(
        decoder(torch.cat(x), Layout.of(TARGETS), memories, caches), run(decoder, x, source)
    )


@pytest.mark.parametrize("make", [bahdanau, luong])
def test_taps_stand_after_the_loop(make):
    """Weights were used and can be read alone; what replaces a readout is handed on, and not fed back."""
    decoder, x, source = make(), embedded(), encoded()
    out = run(decoder, x, source)
    with intervene(decoder, {"weights": lambda w: w}), pytest.raises(ValueError, match="cannot be replaced"):
        run(decoder, x, source)
    with capture(decoder, {"weights": [0]}) as seen, intervene(decoder, {"output": lambda y: 2 * y}):
        assert torch.equal(run(decoder, x, source), 2 * out)
    (weights,) = seen["weights"]
    assert weights.shape == (3, 1, 6, 5)
    assert not weights.requires_grad


def test_attention_of_other_widths_is_refused():
    with pytest.raises(ValueError, match="BilinearScore: expected d_k=14, got d_k=15"):
        RecurrentAttention(BilinearScore(D_H, D_A + 1), D_A)
    cell = LSTMCell(D_E, D_H)
    for step in (AttendThenUpdate, UpdateThenAttend):
        with pytest.raises(ValueError, match="AdditiveScore: expected d_q=7, got d_q=8"):
            step(cell, RecurrentAttention(AdditiveScore(D_H + 1, D_A, UNITS), D_A))
        with pytest.raises(ValueError, match="expected attention with d_query="):
            step(cell, MultiHeadAdditiveAttention(D_H + 1, D_A, 2, d_k=3, d_v=5))
