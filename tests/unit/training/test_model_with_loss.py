"""Forward and backward passes in bf16 on weights that stay in fp32."""

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.embeddings import embed
from heedful.nn.taps import recording, taps
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss

V = 31
TRANSFORMER = TransformerConfig(
    d_model=14, n_layers=2, dropout=0.0, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
)
BATCH = TRANSFORMER.changed(layer={"norm": "batch"})
RECURRENT = RecurrentConfig.model_validate(
    {"kind": "recurrent", "d_embedding": 5, "d_hidden": 7, "d_readout": 11, "dropout": 0.0}
)


LOCATION = RecurrentConfig.model_validate(
    {
        "kind": "recurrent",
        "d_embedding": 5,
        "d_hidden": 7,
        "attention": {"kind": "multi-head-location", "n_heads": 2, "d_k": 5, "d_v": 4, "half_width": 2},
    }
)
LONG = LanguageModelConfig(
    d_model=14,
    n_layers=3,
    dropout=0.0,
    context=31,
    layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}},
    pattern=[
        {"mixer": {"visible": {"kind": "blocks", "size": 3}}},
        {"mixer": {"kind": "compressed-attention", "n_heads": 2}},
    ],
)
_LOCAL, _COMPRESSED = LONG.pattern
EXPERTS = LONG.changed(
    pattern=[
        _LOCAL,
        {
            **_COMPRESSED,
            "channels": {"kind": "experts", "n": 4, "k": 3, "gate": "top-k", "expert": {"d_ff": 19}},
        },
        _LOCAL,
    ]
)
MIXED = EncoderConfig(
    d_model=14,
    n_layers=2,
    dropout=0.0,
    segments=0,
    pooler=False,
    layer={"mixer": {"kind": "recurrent"}, "channels": {"d_ff": 19}},
)


def batch(with_source=True):
    sources = [[3, 4, 9], [5], [7, 8]] if with_source else None
    return Batch.teacher_forced(sources, [[11, 12], [13, 14, 15, 16, 17], [3]], start=1, end=2)


def reads_source(config):
    return config.kind not in {"language-model", "encoder"}


def model_of(config):
    torch.manual_seed(2)
    model = build_model(config, *[V] * (1 + reads_source(config)))
    if "token" not in model.heads:
        model.heads["token"] = nn.Linear(config.d_model, V)
    return model


def gradients(config, precision):
    reads = reads_source(config)
    step = ModelWithLoss(model_of(config), NextToken(0.1), precision)
    counts = step.counts(batch(reads))
    loss, terms = step(batch(reads), counts)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in step.model.named_parameters()}, terms


@pytest.mark.parametrize(
    "config",
    [TRANSFORMER, BATCH, RECURRENT, LOCATION, LONG, EXPERTS, MIXED],
    ids=["transformer", "batch norm", "recurrent", "location", "long", "experts", "recurrent mixer"],
)
def test_bf16_is_near_fp32_and_leaves_fp32_gradients(config):
    loss, expected, _ = gradients(config, "fp32")
    lowered, found, _ = gradients(config, "bf16")
    torch.testing.assert_close(lowered, loss, rtol=0.02, atol=0)
    assert lowered != loss, "nothing was computed in bf16"
    flat = [torch.cat([g.flatten() for g in each.values()]) for each in (expected, found)]
    assert all(g.dtype == torch.float32 for g in found.values())
    assert nn.functional.cosine_similarity(*flat, dim=0) > 0.995


def test_activations_of_a_lowered_model_are_bf16_and_its_weights_are_not_touched():
    step = ModelWithLoss(build_model(TRANSFORMER, V, V), NextToken(0.1), "bf16")
    before = {name: p.detach().clone() for name, p in step.model.named_parameters()}
    seen = []
    step.model.encoder.blocks[0].register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    step(batch(), step.counts(batch()))
    assert seen == [torch.bfloat16]
    for name, p in step.model.named_parameters():
        assert p.dtype == torch.float32
        assert torch.equal(p, before[name])


def test_states_stay_in_fp32_whatever_the_model_around_them():
    step = ModelWithLoss(model_of(MIXED), NextToken(0.1), "bf16")
    names = [name for name in taps(step.model) if name.endswith(".states")]
    assert len(names) == 4, "two layers in two directions"
    with recording(step.model, names) as seen:
        step(batch(False), step.counts(batch(False)))
    assert [[states.dtype for states in each] for each in seen.values()] == [[torch.float32]] * 4


def test_a_frequent_token_gets_the_whole_of_its_gradient():
    """Adding 1 in bf16 ends at 256."""
    weight = torch.zeros(3, 5, dtype=torch.bfloat16, requires_grad=True)
    embed(torch.zeros(2048, dtype=torch.int64), weight).sum().backward()
    assert weight.grad.tolist() == [[2048.0] * 5, [0.0] * 5, [0.0] * 5]
