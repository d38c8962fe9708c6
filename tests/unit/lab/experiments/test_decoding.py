"""Experiments on prefixes and caches: plain loops, counts."""

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, value

from heedful.lab.experiments import decoding
from heedful.lab.seeds import seeded
from heedful.models import language_model
from heedful.models.language_model import LanguageModelConfig
from heedful.nn.layout import Tokens


class TestExperiments(Laws):
    family = "decoding"


# Prefixes


@pytest.fixture(scope="module")
def model():
    config = LanguageModelConfig(
        d_model=8,
        n_layers=1,
        layer={"mixer": {"n_heads": 2}},
        context=decoding.LENGTH,
        dropout=0.0,
        tie=False,
    )
    with seeded(1):
        found = language_model.build(config, decoding.N_SYMBOLS).eval()
        with torch.no_grad():
            for p in found.parameters():
                p += 0.3 * torch.randn_like(p)
    return found


def logits_of(model, prefix):
    with torch.no_grad():
        return model.heads["token"](model(Tokens.of([prefix])))[-1].double()


@pytest.mark.parametrize("own", [False, True])
def test_errors_by_a_plain_loop(model, own):
    rows = decoding.draw_cyclic_sequences(3, torch.Generator().manual_seed(5))
    look = decoding.errors_with_own_prefix if own else decoding.errors_with_gold_prefix
    found = look(model, rows)
    losses = np.zeros((3, decoding.LENGTH))
    wrong = np.zeros((3, decoding.LENGTH))
    for i, row in enumerate(rows.tolist()):
        prefix = row[:1]
        for t, right in enumerate(row[1:]):
            logits = logits_of(model, prefix)
            losses[i, t] = -logits.log_softmax(-1)[right].item()
            best = logits.argmax().item()
            wrong[i, t] = best != right
            prefix.append(best if own else right)
    np.testing.assert_allclose(found.loss, losses.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.wrong, wrong.mean(0), atol=1e-6)
    assert wrong.any()


def test_a_chain_has_one_successor_for_each_symbol_and_the_other_task_none():
    generator = torch.Generator().manual_seed(2)
    rows = decoding.draw_cyclic_sequences(50, generator)
    follows = {}
    for a, b in zip(rows[:, :-1].flatten().tolist(), rows[:, 1:].flatten().tolist(), strict=True):
        assert follows.setdefault(a, b) == b
    assert len(follows) == decoding.N_SYMBOLS
    rows = decoding.draw_independent_sequences(2000, generator)
    assert rows.shape == (2000, decoding.LENGTH + 1)
    harmonic = sum(1 / k for k in range(1, decoding.N_SYMBOLS + 1))
    assert (rows == 0).float().mean().item() == pytest.approx(1 / harmonic, rel=0.05)
    after_zero = rows[:, 1:][rows[:, :-1] == 0]
    assert (after_zero == 0).float().mean().item() == pytest.approx(1 / harmonic, rel=0.05)


def test_own_prefixes_cost_more_with_every_token():
    assert value("exposure", "wrong tokens that own prefixes add, last") > 0.2
    assert value("exposure", "loss that they add, last") > value("exposure", "loss that they add, first") > 0
    assert 0 < value("exposure", "wrong tokens with gold") <= 0.2
    assert value("exposure", "wrong tokens with own") > value("exposure", "wrong tokens with gold")
    assert abs(value("exposure", "loss that they add, last", control=True)) < 0.1
    _, gold = curve("exposure", 0, "gold prefix")
    _, own = curve("exposure", 0, "own prefix")
    assert own[0] == pytest.approx(gold[0], abs=1e-4)  # the first token has the same prefix


# Caches


def test_a_cache_changes_nothing_and_saves_operations():
    assert value("cached-decoding", "largest change") < 1e-5
    assert value("cached-decoding", "largest change", control=True) > 0.1
    d, n, layers = decoding.D, 16, 2
    kept = layers * sum(24 * d * d + 4 * t * d for t in range(1, n + 1))
    recomputed = layers * sum(m * 24 * d * d + 4 * m * m * d for m in range(1, n + 1))
    table = {row["tokens"]: row for row in made("cached-decoding").table}
    assert table[n]["FLOPs, with a cache"] == kept
    assert table[n]["FLOPs, recomputed for each token"] == recomputed
    assert value("cached-decoding", "operations that a cache saves") == pytest.approx(recomputed / kept)
