"""Experiments on recurrence: gradients by products of Jacobians, models step by step, words by hand."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, judged, made, measured, value, verdict_of

from heedful.lab.experiments import recurrence
from heedful.lab.experiments.recurrence import ATTENTION, FIXED, Accuracy, Setting
from heedful.lab.seeds import seeded
from heedful.lab.tiny import n_parameters
from heedful.nn.cells import ElmanCell, LSTMCell
from heedful.nn.recurrent import Recurrence


class TestExperiments(Laws):
    family = "recurrence"


def test_an_rnns_gradient_is_the_product_of_its_jacobians():
    n, d = 7, recurrence.D
    found = recurrence.gradient_by_distance(recurrence.MIXERS["RNN"], n, seed=3)
    with seeded(3):
        cell = Recurrence(ElmanCell(d, d)).double().cell
        x, weights = torch.randn(n, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    w_h, w_x = cell.recurrent.weight.detach().numpy(), cell.input.weight.detach().numpy()
    states = [np.zeros(d)]
    for row in x.numpy():
        states.append(np.tanh(w_h @ states[-1] + w_x @ row + cell.input.bias.detach().numpy()))
    back = weights.numpy()
    for k, state in enumerate(reversed(states[1:])):
        through = (1 - state**2) * back
        assert found[k].item() == pytest.approx(np.linalg.norm(through @ w_x), rel=1e-9)
        back = through @ w_h


def test_factors_are_in_order():
    rnn, lstm, attention = (
        value("gradient-over-distance", f"what a token of distance leaves of the gradient, {name}")
        for name in recurrence.MIXERS
    )
    assert rnn < lstm < attention
    assert attention == pytest.approx(1.0, abs=0.03)
    table = made("gradient-over-distance").table
    assert table[0]["RNN"] == pytest.approx(1.0)
    # The factor is that of the curve: from 8 to 16 tokens it was applied eight times.
    by_distance = {row["distance"]: row["RNN"] for row in table}
    assert by_distance[16] / by_distance[8] == pytest.approx(rnn**8, rel=0.5)


def test_the_cell_of_1997_keeps_all_of_its_gradient():
    assert value("forget-gate", "gradient after 40 steps, LSTM of 1997") == 1.0
    assert value("forget-gate", "gradient after 40 steps, RNN") < 1e-3


def test_a_forget_gate_multiplies_the_gradient():
    n, d = 5, recurrence.D
    make = recurrence.MEMORIES[recurrence._GATED]
    found = recurrence.memory_gradients(make, n, seed=2)
    with seeded(2):
        cell = LSTMCell(d, d, forget_bias=0.0).double()
        x, weights = torch.randn(n, 1, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    gates = torch.sigmoid(cell.project(x)[:, 0, d : 2 * d])
    unit = weights / weights.norm()
    for t in range(n):
        assert found[t] == pytest.approx((unit * gates[: t + 1].prod(0)).norm().item(), rel=1e-9)


def test_clipping_keeps_the_direction_and_cures_only_what_is_large():
    assert measured("clipping", "gradient at the first token, before").expected == 1.5**29
    for control in (False, True):
        before = measured("clipping", "gradient at the first token, before", control)
        assert before.value == pytest.approx(before.expected, rel=1e-3)
        whole = value("clipping", "norm of all gradients, before", control)
        gain = 0.5 if control else 1.5
        assert whole == pytest.approx(math.sqrt(sum(gain ** (2 * k) for k in range(30))), rel=1e-3)
        clipped = value("clipping", "norm of all gradients, clipped", control)
        assert clipped == pytest.approx(min(1.0, whole), rel=1e-3)
        first = value("clipping", "gradient at the first token, clipped", control)
        assert first == pytest.approx(before.value * clipped / whole, rel=1e-6)


# One vector for a sentence


SENTENCES = [(2, 5, 7, 3), (11, 4, 4, 6), (9, 2, 3, 10)]


def logits_by_hand(model, sentence, written, attends):
    """Of every word that is written: one RNN reads, one that gets h_T or a weighted sum of all h writes.

    The steps are those of Bahdanau et al. 2015, appendix A, with tanh cells, s_0 = h_T and dot products.
    """
    p = {name: each.detach().numpy() for name, each in model.named_parameters()}

    def cell(name, x, state):
        return np.tanh(
            p[f"{name}.input.weight"] @ x + p[f"{name}.input.bias"] + p[f"{name}.recurrent.weight"] @ state
        )

    states = [np.zeros(p["encoder.layers.0.cell.recurrent.weight"].shape[0], dtype=np.float32)]
    for word in (*sentence, recurrence.END):
        states.append(cell("encoder.layers.0.cell", p["source_embedding.weight"][word], states[-1]))
    annotations, state, found = np.stack(states[1:]), states[-1], []
    for word in (recurrence.START, *written):
        y = p["target_embedding.weight"][word]
        scores = np.exp(annotations @ state)
        context = scores / scores.sum() @ annotations if attends else annotations[-1]
        before = state
        found.append((before, y, context))
        projected = p["decoder.step.cell.input.weight"] @ y + p["decoder.step.cell.input.bias"]
        state = np.tanh(
            projected
            + p["decoder.step.context.weight"] @ context
            + p["decoder.step.cell.recurrent.weight"] @ before
        )
    before, y, context = (torch.from_numpy(np.stack(each)).float() for each in zip(*found, strict=True))
    with torch.no_grad():
        return model.heads["token"](model.decoder.readout(before, y, context))


@pytest.mark.parametrize("attends", [False, True])
def test_a_decoder_knows_the_source_by_its_last_state_or_by_all_of_them(attends):
    model = recurrence.model_of(Setting(attends, d=5), seed=3).eval()
    batch = recurrence.batch_of(SENTENCES, in_order=False)
    with torch.no_grad():
        logits = model.heads["token"](model(batch.inputs, batch.source)).split([5, 5, 5])
    for sentence, found in zip(SENTENCES, logits, strict=True):
        torch.testing.assert_close(found, logits_by_hand(model, sentence, sentence[::-1], attends))


@pytest.mark.parametrize("in_order", [False, True])
def test_words_are_right_at_the_place_where_they_are_read(in_order):
    class Sure:
        """Writes 4 everywhere."""

        def __init__(self):
            self.heads = {"token": lambda hidden: hidden}

        def __call__(self, inputs, source):
            return torch.eye(20)[torch.full((len(inputs.ids),), 4)]

    found = recurrence.correct_words(Sure(), SENTENCES, in_order)
    assert found.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_what_is_written_is_what_is_read_from_its_end():
    batch = recurrence.batch_of(SENTENCES[:1], in_order=False)
    assert batch.source.ids.tolist() == [2, 5, 7, 3, recurrence.END]
    assert batch.inputs.ids.tolist() == [recurrence.START, 3, 7, 5, 2]
    assert batch.targets.tolist() == [3, 7, 5, 2, recurrence.END]
    assert recurrence.batch_of(SENTENCES[:1], in_order=True).targets.tolist() == [2, 5, 7, 3, recurrence.END]


def test_nothing_is_trained_on_what_is_tested():
    assert [len(recurrence.draw_test_sentences(length)) for length in (2, 3, 8)] == [10, 100, 100]
    for length in (2, 3, 8):
        assert len({*recurrence.draw_test_sentences(length)}) == len(recurrence.draw_test_sentences(length))
        assert {len(each) for each in recurrence.draw_test_sentences(length)} == {length}
    found = recurrence.draw_sentences(2000, 5, torch.Generator().manual_seed(1))
    assert not {*found} & {each for length in range(2, 6) for each in recurrence.draw_test_sentences(length)}
    lengths = torch.bincount(torch.tensor([len(each) for each in found]), minlength=6)[2:] / 2000
    torch.testing.assert_close(lengths, torch.full((4,), 0.25), atol=0.05, rtol=0)
    words = {word for each in found for word in each}
    assert words == {*range(recurrence.FIRST, recurrence.FIRST + recurrence.SYMBOLS)}


def test_attention_adds_no_parameter():
    one, other = (recurrence.model_of(each, 0) for each in recurrence.SETTINGS.values())
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (one, other)]
    assert shapes[0] == shapes[1]
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)
    assert value("one-vector", f"parameters, {FIXED}") == n_parameters(one)


@pytest.mark.parametrize(
    "fixed, attention, verdict",
    [
        (Accuracy([1.0, 0.5], [0.1, 0.9]), Accuracy([1.0, 0.9], [0.9, 0.9]), "holds"),
        (Accuracy([1.0, 0.9], [0.9, 0.9]), Accuracy([1.0, 0.9], [0.9, 0.9]), "is wrong"),
        (Accuracy([1.0, 0.5], [0.1, 0.9]), Accuracy([1.0, 0.5], [0.5, 0.5]), "holds with conditions"),
        (Accuracy([1.0, 0.5], [0.1, 0.9]), Accuracy([1.0, 0.9], [0.6, 0.9]), "holds with conditions"),
        (Accuracy([1.0, 0.5], [0.5, 0.5]), Accuracy([1.0, 0.9], [0.9, 0.9]), "holds with conditions"),
    ],
)
def test_the_verdict(fixed, attention, verdict):
    facts = {"fixed": recurrence.deciding_values(fixed), "attention": recurrence.deciding_values(attention)}
    assert verdict_of("one-vector", **facts, wider_gain=0.0, in_order_loss=0.0) == verdict


def test_of_what_only_the_long_form_trains_is_said_what_is_so(monkeypatch):
    found = {name: Accuracy([1.0, 0.5], [0.1, 0.9]) for name in recurrence.SETTINGS}
    settings = recurrence.SETTINGS | recurrence.FURTHER

    def statement(size):
        of = {settings[name]: each for name, each in found.items()}
        monkeypatch.setattr(recurrence, "mean_accuracy", lambda setting, *_: of[setting])
        return judged("one-vector", recurrence.measure_accuracy_by_sentence_length(size, 3)).statement

    remarks = "twice as wide holds more", "even fewer are correct"
    assert not any(remark in statement("short") for remark in remarks)
    better, worse = Accuracy([1.0, 0.8], [0.6, 1.0]), Accuracy([0.9, 0.3], [0.2, 0.4])
    found |= {recurrence.WIDER: better, recurrence.IN_ORDER: worse}
    assert all(remark in statement("long") for remark in remarks)
    found |= {recurrence.WIDER: worse, recurrence.IN_ORDER: better}
    assert not any(remark in statement("long") for remark in remarks)
    assert "twice as wide" not in made("one-vector").statement
    assert "loses the first ones" in made("one-vector").statement
    assert "fit into one vector" in made("one-vector", control=True).statement


def test_curves_are_of_lengths_and_of_the_places_of_the_longest():
    for name in (FIXED, ATTENTION):
        lengths, by_length = curve("one-vector", 0, name)
        places, by_place = curve("one-vector", 1, name)
        assert ([*lengths], [*places]) == ([*range(2, 9)], [*range(1, 9)])
        # All places count alike.
        assert by_length[-1] == pytest.approx(np.mean(by_place), abs=1e-6)
        assert [row[name] for row in made("one-vector").table] == list(by_length)
        fall = measured("one-vector", f"fewer right words of 8 than of 2, {name}")
        assert fall.value == pytest.approx(100 * (by_length[0] - by_length[-1]))
