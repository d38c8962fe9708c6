"""Forward and backward passes in bf16 on weights that stay in fp32."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.models.registry import SIZES, build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.convolutional import StandardisedConvolution
from heedful.nn.embeddings import embed
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
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


_GRID = {"kind": "resnet", "n_blocks": [1, 2], "width": 4, "n_groups": 2, "root_kernel": 3, "root_stride": 1}
_IMAGES = {"image_size": 14, "channels": 2, "encoder": _GRID}
CAPTIONER = CaptionerConfig(**_IMAGES, d_model=14, n_layers=2, dropout=0.0, layer=TRANSFORMER.layer)
SHOW_ATTEND_TELL = RecurrentCaptionerConfig(**_IMAGES, d_embedding=5, d_hidden=7)
CONVOLUTIONAL = pytest.mark.parametrize(
    "config", [CAPTIONER, SHOW_ATTEND_TELL], ids=["captioner", "show, attend and tell"]
)


def captioned():
    pixels = torch.randn(3, 2, 14, 14, generator=torch.Generator().manual_seed(4))
    return replace(batch(False), source=Images.of(pixels, CAPTIONER.n_tokens))


def batch(with_source=True):
    sources = [[3, 4, 9], [5], [7, 8]] if with_source else None
    return Batch.teacher_forced(sources, [[11, 12], [13, 14, 15, 16, 17], [3]], start=1, end=2)


def batch_of(config):
    if config.kind in {"captioner", "recurrent-captioner"}:
        return captioned()
    return batch(config.kind not in {"language-model", "encoder"})


def model_of(config):
    torch.manual_seed(2)
    model = build_model(config, *[V] * len(SIZES[config.kind]))
    if "token" not in model.heads:
        model.heads["token"] = nn.Linear(config.d_model, V)
    return model


def gradients(config, precision):
    step, batch = ModelWithLoss(model_of(config), NextToken(0.1), precision), batch_of(config)
    counts = step.counts(batch)
    loss, terms = step(batch, counts)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in step.model.named_parameters()}, terms


def similarity(expected, found):
    flat = [torch.cat([g.flatten() for g in each.values()]) for each in (expected, found)]
    return nn.functional.cosine_similarity(*flat, dim=0)


def gradients_near_fp32(config):
    """Gradients in fp32, and in bf16 if the losses are near each other."""
    loss, expected, _ = gradients(config, "fp32")
    lowered, found, _ = gradients(config, "bf16")
    torch.testing.assert_close(lowered, loss, rtol=0.02, atol=0)
    assert lowered != loss, "nothing was computed in bf16"
    assert all(g.dtype == torch.float32 for g in found.values())
    return expected, found


@pytest.mark.parametrize(
    "config",
    [TRANSFORMER, BATCH, RECURRENT, LOCATION, LONG, EXPERTS, MIXED],
    ids=["transformer", "batch norm", "recurrent", "location", "long", "experts", "recurrent mixer"],
)
def test_bf16_is_near_fp32_and_leaves_fp32_gradients(config):
    assert similarity(*gradients_near_fp32(config)) > 0.995


@CONVOLUTIONAL
def test_bf16_is_near_fp32_also_above_a_residual_network(config):
    """Whose group norms, over a few pixels, enlarge the rounding of activations."""
    expected, found = gradients_near_fp32(config)
    in_network = {name for name in expected if name.startswith("source_embedding.")}
    for names, limit in ((expected.keys() - in_network, 0.995), (in_network, 0.95)):
        assert similarity(*({name: g[name] for name in names} for g in (expected, found))) > limit


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


@CONVOLUTIONAL
def test_filters_are_standardised_in_fp32_whatever_the_model_around_them(config):
    step, seen = ModelWithLoss(model_of(config), NextToken(0.1), "bf16"), []
    convolutions = [part for part in step.model.modules() if isinstance(part, StandardisedConvolution)]
    for part in convolutions:
        part.register_forward_pre_hook(lambda module, args: seen.append(module.weight.dtype))
    step(captioned(), step.counts(captioned()))
    assert seen == [torch.float32] * len(convolutions)


def test_the_state_of_a_decoder_over_cells_stays_in_fp32():
    model = model_of(SHOW_ATTEND_TELL)
    with torch.autocast("cpu", torch.bfloat16):
        state = model.start(captioned().source)
        assert state.caches[0].state.dtype == torch.float32
        _, state = model.extend(Tokens(torch.tensor([5, 6, 7]), state.next_layout([1] * 3)), state)
    assert state.caches[0].state.dtype == torch.float32


def test_a_frequent_token_gets_the_whole_of_its_gradient():
    """Adding 1 in bf16 ends at 256."""
    weight = torch.zeros(3, 5, dtype=torch.bfloat16, requires_grad=True)
    embed(torch.zeros(2048, dtype=torch.int64), weight).sum().backward()
    assert weight.grad.tolist() == [[2048.0] * 5, [0.0] * 5, [0.0] * 5]
