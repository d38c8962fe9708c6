"""Embeddings against table look-ups, and the tying of one matrix to several places."""

import math

import torch
from torch import nn

from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.nn.layout import Tokens
from heedful.nn.positions import Added, Concatenated, LearnedPositions, NoPositions
from heedful.nn.taps import intervene, recording

V, D = 13, 6
TOKENS = Tokens.of([[3, 12, 3], [0], [7, 5]], starts=[0, 4, 2])


def table(seed=1):
    torch.manual_seed(seed)
    return nn.Parameter(torch.randn(V, D))


def test_each_token_gets_its_scaled_row_and_the_vector_of_its_position():
    weight, positions = table(), LearnedPositions(5, D)
    embedding = TokenEmbedding(weight, Added(positions), scale=math.sqrt(D))
    rows = [(3, 0), (12, 1), (3, 2), (0, 4), (7, 2), (5, 3)]
    wanted = torch.stack([weight[i] * math.sqrt(D) + positions.weight[p] for i, p in rows])
    torch.testing.assert_close(embedding(TOKENS), wanted)


def test_only_the_tokens_are_scaled_where_positions_stand_beside_them():
    weight, positions = table(), LearnedPositions(5, 3)
    embedded = TokenEmbedding(weight, Concatenated(positions), scale=7.0)(TOKENS)
    torch.testing.assert_close(embedded[:, :D], 7 * weight[TOKENS.ids])
    torch.testing.assert_close(embedded[:, D:], positions.weight[[0, 1, 2, 4, 2, 3]])


def test_the_scale_brings_rows_of_variance_one_over_d_to_size_one():
    """Section 3.4 of Vaswani et al. 2017: embeddings tied to the output layer are small."""
    torch.manual_seed(2)
    d = 512
    weight = nn.Parameter(torch.randn(1009, d) * d**-0.5)
    embedding = TokenEmbedding(weight, Added(NoPositions(d)), scale=math.sqrt(d))
    x = embedding(Tokens.of([list(range(1009))]))
    torch.testing.assert_close(x.std(), torch.tensor(1.0), rtol=0, atol=0.01)


def test_tied_places_share_one_parameter_and_its_gradient():
    weight = table()
    source, target = (TokenEmbedding(weight, Added(NoPositions(D))) for _ in range(2))
    head = nn.Linear(D, V, bias=False)
    head.weight = weight
    parts = nn.ModuleList([source, target, head])
    assert [name for name, _ in parts.named_parameters()] == ["0.weight"]
    loss = head(source(TOKENS) + target(TOKENS)).square().sum()
    (tied,) = torch.autograd.grad(loss, weight)
    copies = [weight.detach().clone().requires_grad_() for _ in range(3)]
    apart = ((copies[0] + copies[1])[TOKENS.ids] @ copies[2].T).square().sum()
    torch.testing.assert_close(tied, sum(torch.autograd.grad(apart, copies)))


def test_dropout_falls_on_the_sum():
    weight = table()
    embedding = TokenEmbedding(weight, Added(LearnedPositions(5, D)), scale=3.0, dropout=0.5)
    torch.manual_seed(3)
    dropped = embedding(TOKENS)
    whole = embedding.eval()(TOKENS)
    assert {round(r, 4) for r in (dropped / whole).flatten().tolist()} == {0.0, 2.0}


def test_the_tap_sees_what_the_first_layer_reads_and_what_replaces_it_is_read():
    weight = table()
    segmented = SegmentedEmbedding(weight, Added(NoPositions(D)), None, nn.LayerNorm(D))
    for embedding in (TokenEmbedding(weight, Added(NoPositions(D))), segmented):
        with recording(embedding, ["output"]) as seen:
            assert embedding(TOKENS) is seen["output"][0]
        with intervene(embedding, {"output": torch.zeros_like}):
            assert not embedding(TOKENS).any()
