"""Foundations of the benchmarks: FLOPs, batches, turns and ratios."""

import itertools
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from contenders.characters import rate, validate
from contenders.plain_gpt import PlainGPT
from harness.batches import END, FIRST, START, padded, pairs, sources, texts
from harness.contender import Contender, choose
from harness.flops import Shape, encoder_decoder, language_model
from harness.report import Row, Table, fastest, markdown
from harness.runners import ContenderFactory
from harness.turns import measure
from where_time_goes import OUTSIDE, PRODUCTS, REST, kind_of

SHAPE = Shape(n_layers=2, d_model=11, d_ff=13, n_heads=1, vocab=17, batch=5, length=7, shortest=3)


def linear(rows, width_in, width_out):
    return rows * width_in * width_out


def seen(queries, keys, causal):
    return sum(not causal or k <= q for q in range(queries) for k in range(keys))


def attention(queries, keys, causal, d):
    """Scores and weighted sums, one product of length d for each query and key that meet."""
    return 2 * seen(queries, keys, causal) * d


def test_the_work_of_an_encoder_decoder_is_that_of_its_products():
    source, target, d, ff, vocab = [2, 5], [7, 3], 11, 13, 17
    forward = 0
    for n, m in zip(source, target, strict=True):
        for _ in range(SHAPE.n_layers):
            forward += linear(n, d, 3 * d) + attention(n, n, False, d) + linear(n, d, d)
            forward += linear(n, d, ff) + linear(n, ff, d)
            forward += linear(m, d, 3 * d) + attention(m, m, True, d) + linear(m, d, d)
            forward += linear(m, d, d) + linear(n, d, 2 * d) + attention(m, n, False, d) + linear(m, d, d)
            forward += linear(m, d, ff) + linear(m, ff, d)
        forward += linear(m, d, vocab)
    assert encoder_decoder(SHAPE, source, target) == 3 * 2 * forward


def test_the_work_of_a_language_model_is_that_of_its_products():
    d, ff, forward = 11, 13, 0
    for m in (7, 3):
        layer = linear(m, d, 3 * d) + attention(m, m, True, d) + linear(m, d, d)
        forward += SHAPE.n_layers * (layer + linear(m, d, ff) + linear(m, ff, d)) + linear(m, d, 17)
    assert language_model(SHAPE, [7, 3]) == 3 * 2 * forward


def test_batches_differ_by_round_and_keep_their_bounds():
    first, second = pairs(SHAPE, 2)
    for batch in (first, second):
        for source, inputs, targets in zip(batch.sources, batch.inputs, batch.targets, strict=True):
            assert SHAPE.shortest <= len(source) <= SHAPE.length
            assert SHAPE.shortest <= len(targets) <= SHAPE.length
            assert source[-1] == targets[-1] == END
            assert inputs[0] == START
            assert inputs[1:].tolist() == targets[:-1].tolist()
            assert min(*source[:-1], *inputs[1:]) >= FIRST
        assert padded(batch.sources).shape == padded(batch.targets).shape == (5, 7)
    assert padded(first.sources).tolist() != padded(second.sources).tolist()
    # A round's batch does not depend on how many rounds there are.
    assert padded(pairs(SHAPE, 1)[0].sources).tolist() == padded(first.sources).tolist()
    assert [s[-1] for s in sources(SHAPE, 3)] == [END] * 3
    assert texts(SHAPE, 2)[1].shape == (5, 8)


def contender(library, setting, log, fails=False):
    def build():
        if fails:
            raise ValueError("no such thing\nand more")
        return lambda number: log.append((setting, number))

    return Contender(library, setting, build)


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("harness.runners.TURN", 0.0)
    monkeypatch.setattr("harness.runners.REST", 0.0)


@pytest.mark.full
def test_every_contender_has_one_turn_a_round_on_the_same_batch(no_waiting):
    log = []
    contenders = [contender("peer", name, log) for name in "abc"]
    timings = measure(contenders, rounds=3, warm_up=2)
    rounds = [log[i : i + 3] for i in range(6, 15, 3)]
    assert [sorted(r) for r in rounds] == [[(name, n) for name in "abc"] for n in range(3)]
    assert [len(t.seconds) for t in timings.values()] == [3, 3, 3]


def test_a_peer_that_fails_is_named_and_left_out(no_waiting):
    log = []
    contenders = [contender("peer", "a", log), contender("peer", "b", log, fails=True)]
    timings = measure(contenders, rounds=2)
    assert timings["peer, b"].failure == "ValueError: no such thing"
    assert timings["peer, b"].seconds == []
    assert len(timings["peer, a"].seconds) == 2


def test_heedful_must_not_fail(no_waiting):
    with pytest.raises(ValueError, match="no such thing"):
        measure([contender("heedful", "a", [], fails=True)], rounds=1)


@pytest.mark.parametrize("busy, turns, disturbed", [([0.0], 1, 0), ([2.0, 0.0], 2, 0), ([2.0] * 9, 3, 1)])
def test_a_disturbed_turn_is_taken_again(no_waiting, monkeypatch, busy, turns, disturbed):
    remaining, log = iter(busy), []
    monkeypatch.setattr("harness.quiet.Watch.others", lambda self: next(remaining))
    contenders = [contender("peer", "a", log)]
    timing = measure(contenders, rounds=1, warm_up=1, patience=2)["peer, a"]
    assert (len(log) - 1, len(timing.seconds), timing.disturbed) == (turns, 1, disturbed)


def strangers(folder):
    """Return contenders for subprocesses: two that record their PID, and two that fail."""

    def noting():
        return lambda number: (folder / f"{os.getpid()}-{number}").touch()

    def failing():
        raise ValueError("no such thing\nand more")

    def dying():
        return lambda number: os.abort() if number else None

    builds = {"a": noting, "b": noting, "failing": failing, "dying": dying}
    return [Contender("peer", name, build) for name, build in builds.items()]


@pytest.mark.full
def test_contenders_run_in_subprocesses_and_may_fail_there(tmp_path):
    factory = ContenderFactory(strangers, (tmp_path,))
    timings = measure(strangers(tmp_path), rounds=2, warm_up=2, factory=factory)
    assert timings["peer, failing"].failure == "ValueError: no such thing"
    assert timings["peer, dying"].failure == "its process ended"
    assert [len(timings[f"peer, {name}"].seconds) for name in "ab"] == [2, 2]
    # Two processes, neither of them this one, and both did both rounds.
    names = [note.name.split("-") for note in tmp_path.iterdir()]
    assert len({pid for pid, _ in names} - {str(os.getpid())}) == 2
    assert sorted(number for _, number in names) == ["0", "0", "1", "1"]


def test_ratios_are_formed_within_rounds_against_the_best_peer():
    ours = Row("heedful", "x", [4.0, 9.0, 40.0])
    best = Row("peer", "y", [2.0, 3.0, 10.0])
    other = Row("peer", "z", [1.0, 5.0, 2.0])
    table = Table("T", "tokens per second", [ours, other, best, Row("peer", "broken", [], failure="Oh")])
    assert table.best_peer is best
    assert table.ratio(ours) == 3.0
    assert fastest(table, 1) == {"heedful, x", "peer, y"}
    lines = markdown(table).splitlines()
    assert [line.split(" | ")[1] for line in lines[4:]] == ["x", "y", "z", "broken"]
    assert "| peer | broken | Oh |" in lines[-1]


def test_the_share_is_of_the_highest_peak():
    row = Row("heedful", "x", [1.0, 1.0, 1.0], speeds=[1e9, 3e9, 2e9], memory=12.4, compile_seconds=3.0)
    both = markdown(Table("T", "tokens per second", [row], {"fp32": 4e9, "bf16": 8e9}))
    assert "| 25% | 12 MiB | 3 s |" in both
    assert "emulated" not in both
    alone = markdown(Table("T", "tokens per second", [row], {"fp32": 4e9}))
    assert "| 50% | 12 MiB | 3 s |" in alone
    assert "bf16 would be emulated" in alone


def test_choosing_by_name():
    contenders = [contender("peer", name, []) for name in ("bf16", "fp32")]
    assert choose(contenders, "fp") == contenders[1:]
    assert choose(contenders, None) == contenders
    with pytest.raises(SystemExit, match="matches none"):
        choose(contenders, "int8")


def test_bf16_is_left_out_if_it_is_emulated():
    contenders = [replace(contender("peer", name, []), bf16=name == "bf16") for name in ("bf16", "fp32")]
    assert choose(contenders, None, has_bf16=False) == contenders[1:]
    assert choose(contenders, None, has_bf16=True) == contenders


def test_validation_is_over_every_character_of_whole_windows():
    torch.manual_seed(0)
    table = torch.randn(5, 5)
    text = torch.randint(5, (3 * 7 + 4,))
    total = sum(-float(table[a].log_softmax(0)[b]) for a, b in itertools.pairwise(text[:22].tolist()))
    assert validate(lambda ids: table[ids], text, length=7) == pytest.approx(total / 21, rel=1e-6)


def test_the_rate_rises_and_falls():
    rates = [rate(update, 2000) for update in range(2000)]
    assert rates.index(max(rates)) == 100
    assert max(rates) == pytest.approx(1e-3)
    assert rates[:100] == sorted(rates[:100])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(1e-4, rel=1e-4)


def test_the_plain_gpt_is_causal_and_of_the_known_size():
    torch.manual_seed(0)
    model = PlainGPT(65, 64, n_layers=4, d_model=128, n_heads=4).eval()
    ids = torch.randint(65, (2, 7))
    changed = ids.clone()
    changed[:, 4] = (ids[:, 4] + 1) % 65
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-6)
    assert (before[:, 4:] - after[:, 4:]).abs().amax(-1).min() > 1e-4
    # 0.80M without the positions, as such a model is commonly said to have.
    assert sum(p.numel() for p in model.parameters()) - 64 * 128 == 795_904
    assert isinstance(model.head, nn.Linear)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("aten::mm", PRODUCTS),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", PRODUCTS),
        ("aten::_softmax_backward_data", "softmax and its largest entries"),
        ("aten::native_layer_norm", "norms"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::index_copy_", "copies, padding, gathering"),
        ("aten::mul", REST),
        ("_LinearCrossEntropyBackward", OUTSIDE),
    ],
)
def test_operations_are_told_apart_by_name(name, kind):
    assert kind_of(name) == kind
