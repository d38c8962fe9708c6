"""Show, attend and tell: its sizes by formula, its steps by hand, and what a configuration refuses."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from heedful.config import merged
from heedful.models import recurrent_captioner
from heedful.models.recurrent_captioner import PRESETS, RecurrentCaptionerConfig, build
from heedful.models.resnet import ResNetConfig
from heedful.models.resnet import build as build_resnet
from heedful.nn.attention.recurrent import GivenAnnotations
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import recording

GRID = {"n_blocks": [1, 2], "width": 3, "n_groups": 3, "root_kernel": 3, "root_stride": 1, "root_pool": False}
SMALL = {
    "image_size": 13,
    "channels": 2,
    "encoder": GRID,
    "d_embedding": 5,
    "d_hidden": 11,
    "d_readout": 17,
    "attention": {"kind": "additive", "d_attention": 19},
}
V, CELLS = 23, 49
CAPTIONS = [[1, 5, 9], [1], [1, 7, 8, 3, 4]]


def captioner(**options):
    torch.manual_seed(1)
    model = build(RecurrentCaptionerConfig.model_validate(merged(SMALL, options)), V).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def images(b=3):
    x = torch.randn(b, 2, 13, 13, generator=torch.Generator().manual_seed(2))
    return Images.of(x, CELLS)


# Sizes -----------------------------------------------------------------------------------------------------


def formula(config):
    """Blocks d -> m -> m -> 4 m and their norms; attention; gates; two states; readout. Without words."""
    c, m, d = config.encoder, config.encoder.width, config.encoder.width
    total = c.root_kernel**2 * config.channels * d
    for n in c.n_blocks:
        total += d * 4 * m  # the shortcut that changes the width
        for _ in range(n):
            total += d * m + 9 * m * m + 4 * m * m + 2 * (d + 2 * m)
            d = 4 * m
        m *= 2
    total += 2 * d
    e, h, r = config.d_embedding, config.d_hidden, config.readout_width
    attention, gates = h * h + d * h + h, 4 * (h * e + h * d + h * h + h)
    return total + attention + gates + 2 * (h * d + h) + 2 * r * (h + e + d + 1)


def size(name, n_words):
    with torch.device("meta"):
        return sum(p.numel() for p in build(PRESETS[name], n_words).parameters())


def test_the_table_of_presets_tells_the_parameters():
    rows = [line.split("|") for line in recurrent_captioner.__doc__.splitlines() if " V |" in line]
    told = {row[1].strip(): [int(n.replace(",", "").strip(" V")) for n in row[6].split("+")] for row in rows}
    assert told.keys() == PRESETS.keys()
    for name, (body, per_word) in told.items():
        config = PRESETS[name]
        tables = 1 if config.tie == "target" else 2
        assert body == formula(config)
        assert per_word == config.d_embedding + (tables - 1) * config.readout_width + 1
        assert size(name, 53) == body + 53 * per_word


@pytest.mark.parametrize("name, grid", [("show-attend-tell", (14, 14)), ("show-attend-tell-mini", (6, 6))])
def test_grids_of_presets(name, grid):
    config = PRESETS[name]
    assert (config.grid, config.n_tokens) == (grid, grid[0] * grid[1])
    assert RecurrentCaptionerConfig.model_validate_json(config.model_dump_json()) == config


# Steps, by hand --------------------------------------------------------------------------------------------


class Reference:
    """Steps of the docstring with torch's `LSTMCell`, one image and one word at a time."""

    def __init__(self, model):
        self.model, step = model, model.decoder.step
        own, d_embedding = step.cell, model.target_embedding.weight.shape[1]
        self.cell = nn.LSTMCell(d_embedding + step.attention.d_context, own.d_hidden)
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.cat([own.input.weight, step.context.weight], dim=1))
            self.cell.weight_hh.copy_(own.recurrent.weight)
            self.cell.bias_ih.copy_(own.input.bias)
            self.cell.bias_hh.zero_()

    def alignment(self, state, cells):
        score = self.model.decoder.step.attention.score
        w, u, v = score.query.weight, score.key.weight, score.vector.weight[0]
        return torch.stack([(w @ state + u @ a).tanh() @ v for a in cells]).softmax(0)

    def readout(self, state, word, context):
        own = self.model.decoder.readout
        summed = own.state(state) + own.token(word) + own.context(context)
        return torch.stack([summed[i : i + 2].max() for i in range(0, len(summed), 2)])

    def run(self, cells, words):
        """Readouts and alignments of a caption over the cells of an image."""
        initial = (self.model.decoder.bridge.linear(cells.mean(0))).tanh()
        state, memory = initial.chunk(2)
        readouts, alignments = [], []
        for word in self.model.target_embedding.weight[words]:
            alphas = self.alignment(state, cells)
            context = sum(alpha * a for alpha, a in zip(alphas, cells, strict=True))
            readouts.append(self.readout(state, word, context))
            alignments.append(alphas)
            both = torch.cat([word, context])[None]
            ((state,), (memory,)) = self.cell(both, (state[None], memory[None]))
        return torch.stack(readouts), torch.stack(alignments)


@torch.no_grad()
def test_every_step_equals_one_by_hand():
    model, source = captioner(), images()
    reference = Reference(model)
    with recording(model, model.alignment_taps) as seen:
        found = model(Tokens.of(CAPTIONS), source).split([3, 1, 5])
    (weights,) = seen["decoder.weights"]
    assert weights.shape == (3, 1, 5, CELLS)
    for i, (words, cells) in enumerate(zip(CAPTIONS, model.source_embedding(source).split(CELLS))):
        readouts, alignments = reference.run(cells, words)
        torch.testing.assert_close(found[i], readouts, rtol=0, atol=2e-5 * float(readouts.abs().max()))
        torch.testing.assert_close(weights[i, 0, : len(words)], alignments, rtol=0, atol=1e-6)


@torch.no_grad()
def test_annotations_are_the_hidden_states_of_the_residual_network():
    model, source = captioner(), images()
    network = build_resnet(ResNetConfig(image_size=13, channels=2, **GRID)).eval()
    network.load_state_dict(model.source_embedding.state_dict())
    encoded = model.encode(source)
    assert torch.equal(encoded.annotations, network(source))
    means = network(source).view(3, CELLS, -1).mean(1)
    torch.testing.assert_close(encoded.summary, means)


def test_every_word_sees_every_cell():
    model, source = captioner(), images(1)
    annotations = model.source_embedding(source).detach().requires_grad_()
    model.source_embedding.register_forward_hook(lambda *_: annotations)
    hidden = model(Tokens.of([CAPTIONS[2]]), source)
    for row in hidden:
        (grad,) = torch.autograd.grad(row.sum(), annotations, retain_graph=True)
        assert grad.any(-1).all()


@torch.no_grad()
def test_without_attention_every_step_reads_the_mean_of_the_cells():
    """With the weights of a decoder with attention whose alignment is uniform."""
    fixed, source = captioner(attention=None), images()
    attending = captioner()
    shared = {name: p for name, p in fixed.state_dict().items() if name in attending.state_dict()}
    attending.load_state_dict(shared, strict=False)
    attending.decoder.step.attention.score.vector.weight.zero_()
    wanted = fixed(Tokens.of(CAPTIONS), source)
    torch.testing.assert_close(attending(Tokens.of(CAPTIONS), source), wanted, rtol=0, atol=1e-5)
    assert fixed.alignment_taps == []


@torch.no_grad()
def test_a_plain_decoder_reads_the_image_through_its_first_state_alone():
    model = captioner(decoder="plain", attention=None, d_readout=None, n_layers=2)
    mean = model.source_embedding(images()).view(3, CELLS, -1).mean(1)
    states = model.decoder.bridge.linear(mean).tanh().chunk(4, dim=-1)
    _, caches = model.decoder.initial_state(model.encode(images()))
    for cache, wanted in zip(caches, (states[:2], states[2:]), strict=True):
        torch.testing.assert_close(cache.state, torch.stack(wanted))


def test_given_annotations_are_fp32_under_autocast():
    """As the states that a bridge makes of them must be."""
    layout, x = Layout.of([2, 3]), torch.randn(5, 7)
    annotations, finals = GivenAnnotations().run(x.bfloat16(), layout)
    assert annotations.dtype == finals[0][0].dtype == torch.float32
    wanted = torch.stack([x.bfloat16().float()[:2].mean(0), x.bfloat16().float()[2:].mean(0)])
    torch.testing.assert_close(GivenAnnotations().summary(finals), wanted)


def test_the_output_layer_is_tied_or_not():
    tied = captioner(tie="target", d_readout=5)
    assert tied.heads["token"].weight is tied.target_embedding.weight
    assert captioner().heads["token"].weight.shape == (V, 17)


# Configurations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"bridge": "copy"}, "'project' or 'zero'"),
        ({"tie": "three-way"}, "'target' or 'none'"),
        ({"tie": "target"}, "got d_embedding=5 and readout width 17"),
        ({"decoder": "plain"}, "decoder=plain does not support attention"),
        ({"decoder": "luong", "attention": None}, "needs an attention"),
        ({"direction": "both"}, "Extra inputs"),
        ({"encoder": {"n_groups": 2}}, "n_groups must divide width=3, got 2"),
        ({"encoder": {"kind": "patches"}}, "resnet"),
        ({"encoder": {"image_size": 3}}, "Extra inputs"),
    ],
)
def test_contradictions_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        RecurrentCaptionerConfig.model_validate(merged(SMALL, wrong))


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match="layout must have 64 tokens"):
        captioner()(Tokens.of(CAPTIONS), Images.of(torch.zeros(3, 2, 16, 16), CELLS))
