"""Laws 1 and 2: what is not visible changes nothing, even where it is NaN; later tokens are not visible."""

import pytest
import torch
from cases import (
    D_MEMORY,
    KEY_LENGTHS,
    LENGTHS,
    SOURCES,
    TARGETS,
    cross_of,
    embedded_as,
    embeddings,
    every_cross,
    every_cross_and_kernel,
    every_mixer_and_kernel,
    every_model,
    every_model_and_kernel,
    hidden_of,
    mixer_of,
    model_of,
    same,
    source_of,
    tokens_of,
    with_kernels,
)

from heedful.nn.declarations import declared
from heedful.nn.layout import Layout, Tokens
from heedful.nn.taps import recording

NAN = float("nan")


def embedded(model):
    """Embedded targets, and sources where they are read, as leaves; how to get hidden states from such."""
    inputs, source = Tokens.of(TARGETS), source_of(model, SOURCES)
    leaves = [
        embed(read).detach().requires_grad_() for embed, read in zip(embeddings(model), (inputs, source))
    ]

    def run(*vectors):
        with embedded_as(model, *vectors):
            return model(inputs, source)

    return leaves, run


def poisoned(x, rows, value=NAN):
    changed = x.detach().clone()
    changed[rows] = value
    return changed.requires_grad_()


def rows_of(lengths, sequence):
    begin = sum(lengths[:sequence])
    return list(range(begin, begin + lengths[sequence]))


def others(n, rows):
    return [i for i in range(n) if i not in rows]


# What lies beyond a sequence's length ---------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("garbage", [-1, 10**9, 9])
def test_what_a_rectangle_holds_beyond_the_lengths_is_not_read(name, garbage):
    model = model_of(name)

    def rectangle(sequences):
        ids = torch.full((3, 11), garbage)
        for row, sequence in zip(ids, sequences):
            row[: len(sequence)] = torch.tensor(sequence)
        return Tokens.from_padded(ids, [len(s) for s in sequences])

    source = source_of(model, SOURCES)
    hidden = model(rectangle(TARGETS), rectangle(SOURCES) if isinstance(source, Tokens) else source)
    assert torch.equal(hidden, torch.cat(hidden_of(model, SOURCES, TARGETS)))


# The other sequences of the batch -------------------------------------------------------------------------


@every_model_and_kernel
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_the_other_sequences_of_a_batch_change_nothing(name, kernel, value):
    model = model_of(name)
    leaves, run = embedded(model)
    source = source_of(model, SOURCES)
    lengths = [[4, 7, 1], [] if source is None else source.layout.lengths][: len(leaves)]
    bad = [rows_of(each, 1) for each in lengths]
    good = [others(sum(each), rows) for each, rows in zip(lengths, bad)]
    clean = run(*leaves)[good[0]]
    grads = torch.autograd.grad(clean.square().sum(), leaves)
    for grad, rows in zip(grads, bad, strict=True):
        assert not grad[rows].any()
    changed = [poisoned(leaf, rows, value) for leaf, rows in zip(leaves, bad, strict=True)]
    after = run(*changed)[good[0]]
    same(after, clean)
    after_grads = torch.autograd.grad(after.square().sum(), changed)
    for ours, before, rows in zip(after_grads, grads, good, strict=True):
        same(ours[rows], before[rows])


@every_mixer_and_kernel
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_the_other_sequences_change_nothing_in_a_mixer(name, kernel, value):
    mixer, layout = mixer_of(name), Layout.of(LENGTHS)
    x = tokens_of(LENGTHS).requires_grad_()
    bad = rows_of(LENGTHS, 2)
    good = others(16, bad)
    clean = mixer(x, layout)[good]
    (grad,) = torch.autograd.grad(clean.square().sum(), x)
    assert not grad[bad].any()
    changed = poisoned(x, bad, value)
    after = mixer(changed, layout)[good]
    same(after, clean)
    same(torch.autograd.grad(after.square().sum(), changed)[0][good], grad[good])


@every_cross_and_kernel
def test_the_other_sentences_change_nothing_in_cross_attention(name, kernel):
    cross, layout, keys = cross_of(name), Layout.of(LENGTHS), Layout.of(KEY_LENGTHS)
    x, y = tokens_of(LENGTHS).requires_grad_(), tokens_of(KEY_LENGTHS, D_MEMORY).requires_grad_()
    bad = rows_of(KEY_LENGTHS, 3)  # read by the one query of the fourth sequence
    good = [i for i in range(16) if i != 12]
    clean = cross(x, layout, cross.make_memory(y, keys))[good]
    (grad,) = torch.autograd.grad(clean.square().sum(), y)
    assert not grad[bad].any()
    changed = poisoned(y, bad)
    after = cross(x, layout, cross.make_memory(changed, keys))[good]
    same(after, clean)
    kept = others(20, bad)
    same(torch.autograd.grad(after.square().sum(), changed)[0][kept], grad[kept])


@every_cross_and_kernel
def test_a_query_with_no_key_gets_exactly_zero_and_gives_no_gradient(name, kernel):
    cross, layout, keys = cross_of(name), Layout.of(LENGTHS), Layout.of(KEY_LENGTHS)
    x, y = tokens_of(LENGTHS).requires_grad_(), tokens_of(KEY_LENGTHS, D_MEMORY).requires_grad_()
    has_empty_rows = rows_of(LENGTHS, 2)  # the third source is empty
    out = cross(x, layout, cross.make_memory(y, keys))[has_empty_rows]
    assert torch.equal(out, torch.zeros_like(out))
    for grad in torch.autograd.grad(out.sum(), [x, y, *cross.parameters()], materialize_grads=True)[:2]:
        assert torch.equal(grad, torch.zeros_like(grad))


@every_cross
def test_a_query_with_no_key_shows_no_weights(name):
    cross, layout, keys = cross_of(name), Layout.of(LENGTHS), Layout.of(KEY_LENGTHS)
    with recording(cross, ["weights"]) as seen:
        cross(tokens_of(LENGTHS), layout, cross.make_memory(tokens_of(KEY_LENGTHS, D_MEMORY), keys))
    (weights,) = seen["weights"]
    sums = weights.sum(-1)
    assert not weights[2].any()
    for row in (0, 3, 4):
        same(sums[row], torch.ones_like(sums[row]))
        assert not weights[row, :, :, KEY_LENGTHS[row] :].any()


# What comes later -----------------------------------------------------------------------------------------


@every_model_and_kernel
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_a_later_token_changes_no_earlier_hidden_state(name, kernel, value):
    model = model_of(name)
    (x, *read), run = embedded(model)
    clean = run(x, *read)
    for cut in (1, 3, 6):  # the second target has 7 tokens, which lie in rows 4 to 10
        later = list(range(4 + cut, 11))
        earlier = others(12, later)
        (grad,) = torch.autograd.grad(clean[earlier].square().sum(), x, retain_graph=True)
        assert not grad[later].any()
        same(run(poisoned(x, later, value), *read)[earlier], clean[earlier])


@every_model
def test_no_decoder_declares_that_it_reads_ahead(name):
    model = model_of(name)
    assert "non_causal" not in declared(model if source_of(model, SOURCES) is None else model.decoder)


@every_mixer_and_kernel
def test_a_later_token_changes_no_earlier_one_unless_the_mixer_says_so(name, kernel):
    mixer, layout = mixer_of(name), Layout.of(LENGTHS)
    x = tokens_of(LENGTHS).requires_grad_()
    clean = mixer(x, layout)
    later = list(range(9, 12))  # of the third sequence, in rows 5 to 11
    earlier = others(16, later)
    (grad,) = torch.autograd.grad(clean[earlier].square().sum(), x)
    if "non_causal" in declared(mixer):
        assert grad[later].any()
        assert not torch.equal(mixer(poisoned(x, later, 3.0), layout)[5:9], clean[5:9])
        return
    assert not grad[later].any()
    same(mixer(poisoned(x, later), layout)[earlier], clean[earlier])


@pytest.mark.parametrize(
    "name",
    [
        *("causal", "causal, window", "causal, block", "causal, earlier block", "causal, additive"),
        *("causal, rotary", "causal, alibi", "compressed", "compressed, grouped"),
        *("separable, causal", "convolution, causal", "parallel convolutions, causal"),
    ],
)
def test_attention_and_convolutions_pass_gradients_by_a_later_token_that_is_nan(name):
    mixer, layout = mixer_of(name), Layout.of(LENGTHS)
    x = tokens_of(LENGTHS).requires_grad_()
    later = list(range(9, 12))
    earlier = others(16, later)
    grads = []
    for tokens in (x, poisoned(x, later)):
        (grad,) = torch.autograd.grad(mixer(tokens, layout)[earlier].square().sum(), tokens)
        grads.append(grad[earlier])
    same(*grads)


VISIBLE = {
    "all, window": lambda i, r: abs(i - r) < 2,
    "causal, window": lambda i, r: 0 <= i - r < 3,
    "all, strided": lambda i, r: abs(i - r) < 2 or (i - r) % 2 == 0,
    "causal, strided": lambda i, r: r <= i and (i - r < 3 or (i - r) % 3 == 0),
    "all, global": lambda i, r: i == 0 or r == 0 or abs(i - r) < 2,
    "all, mask": lambda i, r: r >= i - 1,
    "causal, tree": lambda i, r: r in {i, (i - 1) // 2, ((i - 1) // 2 - 1) // 2, 0},
}


@pytest.mark.parametrize("name", VISIBLE)
def test_what_lies_outside_the_pattern_is_not_visible(name):
    mixer, layout = mixer_of(name), Layout.of([7])
    x = tokens_of([7]).requires_grad_()
    clean = mixer(x, layout)
    for query in range(7):
        reach = [k for k in range(7) if VISIBLE[name](query, k)]
        (grad,) = torch.autograd.grad(clean[query].square().sum(), x, retain_graph=True)
        assert grad.any(-1).nonzero().flatten().tolist() == reach
        hidden = others(7, reach)
        same(mixer(poisoned(x, hidden), layout)[query], clean[query])


@pytest.mark.parametrize(
    "name",
    [
        f"{word}{way}"
        for word in ("separable", "convolution", "parallel convolutions")
        for way in ("", ", causal")
    ],
)
def test_what_lies_outside_a_kernel_is_not_visible(name):
    mixer, layout = mixer_of(name), Layout.of([7])
    before = mixer.kernel - 1 if mixer.causal else (mixer.kernel - 1) // 2
    after = 0 if mixer.causal else mixer.kernel // 2
    x = tokens_of([7]).requires_grad_()
    clean = mixer(x, layout)
    for place in range(7):
        reach = [k for k in range(7) if place - before <= k <= place + after]
        (grad,) = torch.autograd.grad(clean[place].square().sum(), x, retain_graph=True)
        assert grad.any(-1).nonzero().flatten().tolist() == reach
        changed = poisoned(x, others(7, reach))
        after_it = mixer(changed, layout)[place]
        same(after_it, clean[place])
        same(torch.autograd.grad(after_it.square().sum(), changed)[0][reach], grad[reach])


@with_kernels(["all, block", "causal, block", "causal, earlier block"], lambda name: True)
def test_what_lies_in_another_block_is_not_visible(name, kernel):
    size, earlier = {"all, block": (3, 0), "causal, block": (2, 0), "causal, earlier block": (2, 1)}[name]
    mixer, layout = mixer_of(name), Layout.of([7])
    x = tokens_of([7]).requires_grad_()
    clean = mixer(x, layout)
    for query in range(7):
        blocks = range(query // size - earlier, query // size + 1)
        reach = [k for k in range(7) if k // size in blocks and (k <= query or not mixer.causal)]
        same(mixer(poisoned(x, others(7, reach)), layout)[query], clean[query])
        (grad,) = torch.autograd.grad(clean[query].square().sum(), x, retain_graph=True)
        # The first token of a block sees only itself: whatever its score, its weight is 1.
        assert set(grad.any(-1).nonzero().flatten().tolist()) == set(reach)


@with_kernels(["compressed", "compressed, grouped"], lambda name: True)
def test_what_is_not_yet_in_the_memory_is_not_visible(name, kernel):
    """Slot j holds keys cj - c to cj - 1, and query i sees it where cj <= i; and the first token always."""
    mixer, layout = mixer_of(name), Layout.of([11])
    c = mixer.factor
    x = tokens_of([11]).requires_grad_()
    clean = mixer(x, layout)
    for query in range(11):
        slots = [j for j in range(1, 11) if c * j <= query]
        reach = {0} | {key for j in slots for key in range(c * j - c, c * j)}
        # The query itself is heard only where it has more than one slot to choose from.
        heard = reach | ({query} if slots else set())
        (grad,) = torch.autograd.grad(clean[query].square().sum(), x, retain_graph=True)
        assert set(grad.any(-1).nonzero().flatten().tolist()) == heard
        hidden = others(11, reach | {query})
        same(mixer(poisoned(x, hidden), layout)[query], clean[query])
