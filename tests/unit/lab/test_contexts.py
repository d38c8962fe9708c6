"""One vector against attention: models step by step, words counted by hand, verdicts by made-up shares."""

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, measured, value

from heedful.lab import contexts
from heedful.lab.contexts import ATTENTION, FIXED, Accuracy, Setting
from heedful.lab.tiny import n_parameters

SENTENCES = [(2, 5, 7, 3), (11, 4, 4, 6), (9, 2, 3, 10)]


class TestExperiments(Laws):
    family = "contexts"


def logits_by_hand(model, sentence, written, attends):
    """Of every word that is written: one RNN reads, one that gets h_T or a weighted sum of all h writes.

    The steps are those of Bahdanau et al. 2014, appendix A, with tanh cells, s_0 = h_T and dot products.
    """
    p = {name: each.detach().numpy() for name, each in model.named_parameters()}

    def cell(name, x, state):
        return np.tanh(
            p[f"{name}.input.weight"] @ x + p[f"{name}.input.bias"] + p[f"{name}.recurrent.weight"] @ state
        )

    states = [np.zeros(p["encoder.layers.0.cell.recurrent.weight"].shape[0], dtype=np.float32)]
    for word in (*sentence, contexts.END):
        states.append(cell("encoder.layers.0.cell", p["source_embedding.weight"][word], states[-1]))
    annotations, state, found = np.stack(states[1:]), states[-1], []
    for word in (contexts.START, *written):
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
    model = contexts.model_of(Setting(attends, d=5), seed=3).eval()
    batch = contexts.batch_of(SENTENCES, in_order=False)
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

    found = contexts.right(Sure(), SENTENCES, in_order)
    assert found.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_what_is_written_is_what_is_read_from_its_end():
    batch = contexts.batch_of(SENTENCES[:1], in_order=False)
    assert batch.source.ids.tolist() == [2, 5, 7, 3, contexts.END]
    assert batch.inputs.ids.tolist() == [contexts.START, 3, 7, 5, 2]
    assert batch.targets.tolist() == [3, 7, 5, 2, contexts.END]
    assert contexts.batch_of(SENTENCES[:1], in_order=True).targets.tolist() == [2, 5, 7, 3, contexts.END]


def test_nothing_is_trained_on_what_is_tested():
    assert [len(contexts.tested(length)) for length in (2, 3, 8)] == [10, 100, 100]
    for length in (2, 3, 8):
        assert len({*contexts.tested(length)}) == len(contexts.tested(length))
        assert {len(each) for each in contexts.tested(length)} == {length}
    found = contexts.drawn(2000, 5, torch.Generator().manual_seed(1))
    assert not {*found} & {each for length in range(2, 6) for each in contexts.tested(length)}
    lengths = torch.bincount(torch.tensor([len(each) for each in found]), minlength=6)[2:] / 2000
    torch.testing.assert_close(lengths, torch.full((4,), 0.25), atol=0.05, rtol=0)
    words = {word for each in found for word in each}
    assert words == {*range(contexts.FIRST, contexts.FIRST + contexts.SYMBOLS)}


def test_attention_adds_no_parameter():
    one, other = (contexts.model_of(each, 0) for each in contexts.SETTINGS.values())
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
    assert contexts._verdict({FIXED: fixed, ATTENTION: attention}) == verdict


def test_of_what_only_the_long_form_trains_is_said_what_is_so():
    short = {FIXED: Accuracy([1.0, 0.5], [0.1, 0.9])}
    assert not contexts._remarks(short)
    better, worse = Accuracy([1.0, 0.8], [0.6, 1.0]), Accuracy([0.9, 0.3], [0.2, 0.4])
    both = contexts._remarks(short | {contexts.WIDER: better, contexts.IN_ORDER: worse})
    assert "twice as wide holds more" in both
    assert "even fewer are correct" in both
    assert not contexts._remarks(short | {contexts.WIDER: worse, contexts.IN_ORDER: better})
    assert "twice as wide" not in made("one-vector").statement
    assert "loses the first ones" in made("one-vector").statement
    assert "fit into one vector" in made("one-vector", control=True).statement


def test_curves_are_of_lengths_and_of_the_places_of_the_longest():
    for name in (FIXED, ATTENTION):
        lengths, by_length = curve("one-vector", 0, name)
        places, by_place = curve("one-vector", 1, name)
        assert (lengths, places) == ([*range(2, 9)], [*range(1, 9)])
        # All places count alike.
        assert by_length[-1] == pytest.approx(np.mean(by_place), abs=1e-6)
        assert [row[name] for row in made("one-vector").table] == list(by_length)
        fall = measured("one-vector", f"fewer right words of 8 than of 2, {name}")
        assert fall.value == pytest.approx(100 * (by_length[0] - by_length[-1]))
