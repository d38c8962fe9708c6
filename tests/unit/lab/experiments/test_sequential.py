"""Experiments on what waits for what: depths by counting, plain loops, counts."""

import pytest
import torch
from sweep import Laws, curve, made, value
from torch import nn

from heedful.lab.experiments import sequential
from heedful.lab.tiny import plain_stack
from heedful.model_summary.summary import describe
from heedful.nn.layout import Layout, Tokens


class TestExperiments(Laws):
    family = "sequential"


# Depths


def test_the_depth_of_a_graph_is_that_of_its_longest_way():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    c = a * b  # 2: a leaf and a product
    assert sequential.depth(c) == 2
    d = c.exp()
    assert sequential.depth(d.sin().cos() + c) == 6
    assert sequential.depth(c + d.sin().cos()) == 6
    deep = a
    for _ in range(5000):
        deep = deep + 1
    assert sequential.depth(deep) == 5001


def test_chains_grow_with_tokens_in_a_recurrence_and_with_layers_in_attention():
    growth = {
        name: value("serial-encoder", f"further operations in a row for each token, {name}", control)
        for name, control in (("RNN", False), ("LSTM", False), ("attention", True))
    }
    assert growth["attention"] == pytest.approx(0, abs=1e-9)
    for cell in ("RNN", "LSTM"):
        assert growth[cell] == pytest.approx(round(growth[cell]), abs=1e-6)
    # Of a plain RNN a product and a tanh; gates come to it in an LSTM.
    assert 2 <= round(growth["RNN"]) < growth["LSTM"]
    one, two, three = (
        sequential.depth(sequential.build_run(lambda n=n: plain_stack(sequential.D, n, causal=False), 8)())
        for n in (1, 2, 3)
    )
    assert two - one == three - two == value("serial-encoder", "further operations in a row for each layer")


@pytest.mark.parametrize("name", ["serial-encoder", "trained-faster"])
def test_clocks_stand_in_a_table_and_a_panel_and_in_no_figure(name):
    for control in (False, True):
        outcome = made(name, control)
        clock = outcome.panels[-1]
        assert clock.y == "ms"
        for label, (_, times) in clock.lines.items():
            assert [row[f"ms, {label}"] for row in outcome.table] == list(times)
        assert not any("ms" in each.name.split() or each.unit == "ms" for each in outcome.measured)


def test_what_is_timed_of_an_encoder_builds_nothing(monkeypatch):
    runs = {name: sequential.build_run(build, 4) for name, build in sequential.ENCODERS.items()}
    monkeypatch.setattr(nn.Module, "__init__", lambda *_, **__: pytest.fail("a module was built"))
    for run in runs.values():
        torch.testing.assert_close(run(), run())


@pytest.mark.slow
def test_a_training_is_timed_in_the_run_and_a_writing_in_the_control(monkeypatch):
    timed = []
    monkeypatch.setattr(sequential, "_time", lambda work: timed.append(work) or 1.0)
    for written, work in ((False, sequential.train_step), (True, sequential.generate_words)):
        timed.clear()
        sequential.compare_training_of_two_models("short", written)
        assert [(each.func, *each.args) for each in timed] == [
            (work, name, n) for name in sequential.CONFIGS for n in (4, 8, 16)
        ]


@pytest.mark.parametrize("name", sequential.CONFIGS)
def test_so_many_words_are_written_one_by_one(name, monkeypatch):
    model, written = sequential.translator(name), []
    extend = model.extend
    monkeypatch.setattr(model, "extend", lambda new, state: written.append(new) or extend(new, state))
    sequential.generate_words(name, 5)
    assert [len(new.ids) for new in written] == [1] * 5


def test_a_transformer_is_trained_on_all_words_at_once_and_writes_them_one_by_one():
    growth = "further operations in a row for each word"
    assert value("trained-faster", f"{growth}, Transformer") == pytest.approx(0, abs=1e-9)
    assert value("trained-faster", f"{growth}, LSTM") > 3
    assert value("trained-faster", f"{growth}, Transformer", control=True) > 3
    once = sequential.sequential_operations("Transformer", 1, generated=False)
    assert sequential.sequential_operations("Transformer", 1, generated=True) == once
    one, two = (sequential.sequential_operations("Transformer", n, generated=True) for n in (7, 8))
    assert two - one == sequential.depth(sequential.step_logits("Transformer", 8)) < once


def test_a_word_that_is_written_has_the_logits_of_the_one_that_is_read():
    for name in sequential.CONFIGS:
        model = sequential.translator(name)
        target = torch.cat([sequential.draw_words(4).ids, torch.tensor([1])])
        hidden = model(Tokens(target, Layout.of([5])), sequential.draw_words(5))
        torch.testing.assert_close(sequential.step_logits(name, 5), model.heads["token"](hidden)[-1:])


def test_operations_of_a_step_are_those_that_the_model_summary_counts():
    """Up to the layers' products with what needs no gradient: the first words are no weights' output."""
    n = 8
    counted = describe(sequential.translator("Transformer"), length=n, source_length=n)
    doubled = sequential.flops_per_word("Transformer", n) * 2
    assert doubled == pytest.approx(counted.training_flops_per_token, rel=0.1)


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
