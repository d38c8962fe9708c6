"""The forced pass: its attention is that of the explicit path, and asking for them changes nothing."""

from unittest import mock

import pytest
import torch

from heedful.nn.attention import kernels
from heedful.nn.taps import recording
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import ENCODER_DECODER

SOURCES, TARGETS = [[7, 8, 9], [], [10, 11, 12, 13]], [[11, 12], [13, 14, 15], []]


@pytest.mark.parametrize("fused_from", [0, 1 << 30], ids=["fused", "products"])
@torch.no_grad()
def test_attention_is_that_of_the_explicit_path(translator, fused_from, monkeypatch):
    monkeypatch.setattr(kernels, "CPU_SDPA_FROM", fused_from)
    model, batch = translator, ENCODER_DECODER.collate(SOURCES, TARGETS)
    with mock.patch.object(kernels, "weighted_sum", wraps=kernels.weighted_sum) as explicitly:
        results = score_targets(model, batch, attention=True)
    assert not explicitly.called
    for layer, tap in enumerate(model.alignment_taps):
        # One layer at a time, so that all below it computes what it did when it was watched.
        with recording(model, [tap]) as seen:
            model(batch.inputs, batch.source)
        (weights,) = seen[tap]
        for row, (source, target, result) in enumerate(zip(SOURCES, TARGETS, results, strict=True)):
            t, s = len(target) + 1, len(source) + 1
            assert result.attention.shape == (len(model.alignment_taps), weights.shape[1], t, s)
            torch.testing.assert_close(result.attention[layer], weights[row, :, :t, :s], rtol=0.0, atol=1e-6)


def test_asking_for_attention_changes_no_log_probability(translator):
    model, batch = translator, ENCODER_DECODER.collate(SOURCES, TARGETS)
    plain, asked = score_targets(model, batch), score_targets(model, batch, attention=True)
    assert all(result.attention is None for result in plain)
    for one, other in zip(plain, asked, strict=True):
        assert torch.equal(one.log_probs, other.log_probs)
