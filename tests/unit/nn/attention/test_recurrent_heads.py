"""Additive attention with heads and locations against plain loops over heads, frames and steps."""

import math

import pytest
import torch

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.recurrent import EncoderOutput
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention, resolutions
from heedful.nn.attention.scores import AdditiveScore
from heedful.nn.attentive import AttendThenUpdate, AttentiveDecoder, UpdateThenAttend
from heedful.nn.bridges import ZeroBridge
from heedful.nn.cells import GRUCell
from heedful.nn.layout import Layout
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.taps import recording

D_Q, D_A, H, D_K, D_V, CHANNELS = 7, 11, 3, 5, 4, 2
SOURCES = [5, 3, 1, 6]
STEPS = 4


def attention(kind, **options):
    torch.manual_seed(1)
    widths = {"location": [2] * H, "resolution": resolutions(5, H)}.get(kind)
    location = LocationFeatures(widths, CHANNELS, D_K) if widths else None
    scale = 2.0 if kind == "location" else None
    part = MultiHeadAdditiveAttention(
        D_Q, D_A, H, d_k=D_K, d_v=D_V, scale=scale, location=location, **options
    )
    with torch.no_grad():
        for parameter in part.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return part


KINDS = ["additive", "location", "resolution"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def encoded(sources=SOURCES, seed=2):
    annotations = torch.randn(sum(sources), D_A, generator=torch.Generator().manual_seed(seed))
    return EncoderOutput(annotations, Layout.of(sources), [], torch.zeros(len(sources), D_Q))


def queries(n, seed=3):
    """One row a step."""
    return torch.randn(STEPS, n, D_Q, generator=torch.Generator().manual_seed(seed))


def loop(part, kind, annotations, steps):
    """One sentence and one hypothesis: contexts and weights of all steps."""
    n, scale = len(annotations), {"location": 2.0}.get(kind, 1 / math.sqrt(D_K))
    before = [[1 / n] * n for _ in range(H)]
    contexts, weights = [], []
    for s in steps:
        heads, after = [], []
        for h in range(H):
            rows = slice(D_K * h, D_K * h + D_K)
            q = part.query.weight[rows] @ s + part.query.bias[rows]
            e = []
            for i, own in enumerate(annotations):
                inner = q + part.key.weight[rows] @ own
                if part.location is not None:
                    inner = inner + features(part.location, h, before[h], i)
                e.append(scale * float(part.vector[h, :, 0] @ torch.tanh(inner)))
            total = sum(math.exp(x) for x in e)
            alpha = [math.exp(x) / total for x in e]
            value = part.value.weight[D_V * h : D_V * h + D_V]
            heads.append(sum(a * (value @ own) for a, own in zip(alpha, annotations)))
            after.append(alpha)
        before = after
        contexts.append(part.out.weight @ torch.cat(heads))
        weights.append(torch.tensor(after))
    return torch.stack(contexts), torch.stack(weights)


def features(location, h, alpha, i):
    """U_h (F_h * alpha) at place i: a filter's middle lies at i."""
    filters = location.filters[h].weight[:, 0]
    w = filters.shape[1] // 2
    total = torch.zeros(D_K)
    for channel in range(CHANNELS):
        seen = 0.0
        for offset in range(-w, w + 1):
            if 0 <= i + offset < len(alpha):
                seen += float(filters[channel, w + offset]) * alpha[i + offset]
        total = total + seen * location.weight[h, channel]
    return total


def run(part, source, steps):
    memory = part.make_memory(source)
    history, contexts, weights = part.initial_history(memory), [], []
    for query in steps:
        attended = part(query, memory, history)
        history = attended.history
        contexts.append(attended.context)
        weights.append(attended.weights)
    return torch.stack(contexts), torch.stack(weights)


@every_kind
@torch.no_grad()
def test_equals_a_loop_over_steps_heads_and_frames(kind):
    part, source, steps = attention(kind), encoded(), queries(4)
    contexts, weights = run(part, source, steps)
    assert weights.shape == (STEPS, 4, H, 6)
    for b, own in enumerate(source.annotations.split(SOURCES)):
        wanted, alphas = loop(part, kind, own, steps[:, b])
        torch.testing.assert_close(contexts[:, b], wanted)
        torch.testing.assert_close(weights[:, b, :, : len(own)], alphas)
        assert not weights[:, b, :, len(own) :].any()


@every_kind
@torch.no_grad()
def test_batched_equals_single(kind):
    part, source, steps = attention(kind), encoded(), queries(4)
    contexts, weights = run(part, source, steps)
    for b, own in enumerate(source.annotations.split(SOURCES)):
        alone = run(
            part, EncoderOutput(own, Layout.of([len(own)]), [], torch.zeros(1, D_Q)), steps[:, b : b + 1]
        )
        torch.testing.assert_close(alone[0], contexts[:, b : b + 1])
        torch.testing.assert_close(alone[1], weights[:, b : b + 1, :, : len(own)])


@every_kind
@torch.no_grad()
def test_hypotheses_of_one_sentence_are_queries_on_one_source(kind):
    part, source, steps = attention(kind), encoded(), queries(8)
    memory = part.make_memory(source)
    first = part.initial_history(memory)
    history = None if first is None else first.repeat_interleave(2, 0)
    shared = []
    for query in steps:
        attended = part(query, memory, history)
        history = attended.history
        shared.append(attended.context)
    parts = source.annotations.split(SOURCES)
    copies = EncoderOutput(
        torch.cat([own for own in parts for _ in range(2)]),
        Layout.of([n for n in SOURCES for _ in range(2)]),
        [],
        torch.zeros(8, D_Q),
    )
    torch.testing.assert_close(torch.stack(shared), run(part, copies, steps)[0])


def test_the_first_alignment_is_uniform_over_real_frames():
    part = attention("location")
    memory = part.make_memory(encoded([4, 0, 2]))
    first = part.initial_history(memory)
    assert first.shape == (3, H, 4)
    wanted = [[0.25] * 4, [0.0] * 4, [0.5, 0.5, 0.0, 0.0]]
    assert first.tolist() == [[row] * H for row in wanted]
    assert attention("additive").initial_history(memory) is None
    full = part.initial_history(part.make_memory(encoded([5, 5])))
    torch.testing.assert_close(full, torch.full((2, H, 5), 0.2))


def test_a_source_without_tokens_gives_exactly_no_context_and_no_gradient():
    part = attention("location")
    memory = part.make_memory(encoded([0, 3]))
    query = queries(2)[0].requires_grad_()
    attended = part(query, memory, part.initial_history(memory))
    assert not attended.context[0].any()
    assert not attended.weights[0].any()
    (grad,) = torch.autograd.grad(attended.context.sum() + attended.weights.square().sum(), query)
    assert not grad[0].any()
    assert grad[1].any()


@every_kind
def test_sources_that_are_all_without_tokens_give_no_context(kind):
    part = attention(kind)
    contexts, weights = run(part, encoded([0, 0]), queries(2))
    assert torch.equal(contexts, torch.zeros(STEPS, 2, D_A))
    assert weights.shape == (STEPS, 2, H, 0)


@every_kind
@torch.no_grad()
def test_a_part_in_bf16_is_near_one_in_fp32(kind):
    part, source, steps = attention(kind), encoded(), queries(4)
    wanted = run(part, source, steps)
    lowered = source._replace(annotations=source.annotations.bfloat16())
    found = run(part.bfloat16(), lowered, steps.bfloat16())
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=0.1 * float(theirs.abs().max()))


@every_kind
def test_the_frames_of_another_sentence_change_nothing_even_when_they_are_nan(kind):
    part, source, steps = attention(kind), encoded(), queries(4)
    others, grads, outs = [0, 2, 3], [], []
    for value in (1.0, torch.nan):
        annotations = source.annotations.clone()
        annotations[5:8] = value
        annotations.requires_grad_()
        outs.append(run(part, source._replace(annotations=annotations), steps)[0][:, others])
        grads += torch.autograd.grad(outs[-1].square().sum(), annotations)
    assert torch.equal(*outs)
    assert not grads[0][5:8].any()
    kept = [*range(5), *range(8, 15)]
    assert torch.equal(grads[0][kept], grads[1][kept])


def test_widths_of_multi_resolution():
    assert resolutions(100, 4) == [25, 50, 75, 100]
    assert resolutions(5, 3) == [1, 3, 5]
    location = LocationFeatures(resolutions(100, 4), 10, 320)
    assert [tuple(part.weight.shape) for part in location.filters] == [
        (10, 1, 51),
        (10, 1, 101),
        (10, 1, 151),
        (10, 1, 201),
    ]


def test_every_matrix_of_a_head_starts_as_the_matrix_it_is():
    torch.manual_seed(4)
    part = MultiHeadAdditiveAttention(67, 101, 3, d_k=53, d_v=41)
    matrices = [*part.query.weight.split(53), *part.key.weight.split(53), *part.value.weight.split(41)]
    for matrix in (*matrices, part.out.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.99 * bound < matrix.detach().abs().max() <= bound
    assert part.vector.detach().abs().max() <= math.sqrt(6 / 54)
    assert not part.query.bias.any()


@torch.no_grad()
def test_without_a_location_it_is_cross_attention_with_an_additive_score():
    """There W_q and W_k stand on each head's projections: here they are identities."""
    part = attention("additive")
    score = AdditiveScore(D_K, D_K, D_K, n_heads=H)
    cross = CrossAttention(D_Q, H, d_memory=D_A, d_k=D_K, d_v=D_V, score=score, qkv_bias=True)
    part.out = cross.out
    cross.q.load_state_dict(part.query.state_dict())
    cross.kv.weight.copy_(torch.cat([part.key.weight, part.value.weight]))
    cross.score.query.weight.copy_(torch.eye(D_K))
    cross.score.key.weight.copy_(torch.eye(D_K))
    cross.score.vector.weight.copy_(part.vector[:, :, 0] / math.sqrt(D_K))
    source, steps = encoded(), queries(4)
    wanted = run(part, source, steps)[0].transpose(0, 1).flatten(0, 1)
    x, layout = steps.transpose(0, 1).flatten(0, 1), Layout.of([STEPS] * 4)
    torch.testing.assert_close(cross(x, layout, cross.make_memory(source.annotations, source.layout)), wanted)


# In a decoder ---------------------------------------------------------------------------------------------

D_E, D_OUT = 5, 3
TARGETS = [4, 1, 6, 2]


def decoder(kind, luong):
    part = attention(kind)
    torch.manual_seed(5)
    cell = GRUCell(D_E, D_Q)
    if luong:
        readout = TanhReadout(D_Q, D_A, D_OUT)
        return AttentiveDecoder(UpdateThenAttend(cell, part), readout, ZeroBridge(D_Q, 1), input_feeding=True)
    return AttentiveDecoder(
        AttendThenUpdate(cell, part), MaxoutReadout(D_Q, D_E, D_A, D_OUT), ZeroBridge(D_Q, 1)
    )


def embedded(lengths=TARGETS, seed=6):
    return torch.randn(sum(lengths), D_E, generator=torch.Generator().manual_seed(seed))


@every_kind
@pytest.mark.parametrize("luong", [False, True])
@torch.no_grad()
def test_the_tap_sees_every_head_and_its_last_weights_are_the_history(kind, luong):
    part, source = decoder(kind, luong), encoded()
    memories, caches = part.initial_state(source)
    with recording(part, ["weights"]) as seen:
        part(embedded(), Layout.of(TARGETS), memories, caches)
    (weights,) = seen["weights"]
    assert weights.shape == (4, H, 6, 6)
    torch.testing.assert_close(weights.sum(-1), Layout.of(TARGETS).real[:, None].float().expand(-1, H, -1))
    if kind != "additive":
        own = torch.stack([weights[b, :, n - 1] for b, n in enumerate(TARGETS)])
        torch.testing.assert_close(caches[0].history, own)


@every_kind
@pytest.mark.parametrize("luong", [False, True])
@torch.no_grad()
def test_histories_go_with_their_hypotheses(kind, luong):
    """Two hypotheses a sentence; after some tokens they change places, and one sentence leaves."""
    part, source = decoder(kind, luong), encoded()
    memories, caches = part.initial_state(source)
    pairs = torch.arange(4).repeat_interleave(2)
    caches = [cache.select(pairs) for cache in caches]
    begun = embedded([2] * 8, seed=7)
    part(begun, Layout.of([2] * 8), memories, caches)
    order = torch.tensor([1, 0, 2, 2, 7, 6])  # of the sentences 0, 1 and 3
    caches = [cache.select(order) for cache in caches]
    memories = [memory.select(torch.tensor([0, 1, 3])) for memory in memories]
    more = [1, 3, 0, 2, 2, 1]
    later = embedded(more, seed=8)
    out = part(later, Layout.of(more, [2] * 6), memories, caches).split(more)
    parts, texts = source.annotations.split(SOURCES), begun.split([2] * 8)
    for row, (parent, end) in enumerate(zip(order.tolist(), later.split(more))):
        own = parts[parent // 2]
        alone = EncoderOutput(own, Layout.of([len(own)]), [], torch.zeros(1, D_Q))
        whole = part(torch.cat([texts[parent], end]), Layout.of([2 + len(end)]), *part.initial_state(alone))
        torch.testing.assert_close(out[row], whole[2:])
