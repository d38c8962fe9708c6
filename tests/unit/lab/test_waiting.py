"""Experiments on what waits for what: depths by counting."""

import pytest
import torch
from sweep import Laws, curve, made, value

from heedful.lab import waiting


class TestExperiments(Laws):
    family = "waiting"


def test_the_depth_of_a_graph_is_that_of_its_longest_way():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    c = a * b  # 2: a leaf and a product
    assert waiting.depth(c) == 2
    d = c.exp()
    assert waiting.depth(d.sin().cos() + c) == 6
    assert waiting.depth(c + d.sin().cos()) == 6
    deep = a
    for _ in range(5000):
        deep = deep + 1
    assert waiting.depth(deep) == 5001


def test_chains_grow_with_tokens_in_a_recurrence_and_with_layers_in_attention():
    growth = value("serial-encoder", "further operations in a row for each token, recurrent")
    assert growth == pytest.approx(round(growth), abs=1e-6)
    assert growth >= 3
    assert value(
        "serial-encoder", "further operations in a row for each token, attention", control=True
    ) == pytest.approx(0, abs=1e-9)
    one, two, three = (waiting.depth(waiting._attention_encoder(8, n)) for n in (1, 2, 3))
    assert two - one == three - two == value("serial-encoder", "further operations in a row for each layer")


def test_clocks_stand_in_the_table_alone():
    columns = set(made("serial-encoder").table[0])
    assert {"ms, recurrent", "ms, attention"} < columns
    assert not any("ms" in each.name.split() or each.unit == "ms" for each in made("serial-encoder").measured)


def test_weights_wait_over_steps_and_not_over_words():
    assert value("parallel-weights", "further operations in a row for each source word") == pytest.approx(
        0, abs=1e-9
    )
    assert value("parallel-weights", "further operations in a row for each step") > 3
    assert value(
        "parallel-weights", "further operations in a row for each step", control=True
    ) == pytest.approx(0, abs=1e-9)
    _, depths = curve("parallel-weights", 1, "Transformer")
    assert len(set(depths)) == 1
