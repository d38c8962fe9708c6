"""Layer norm against batch norm: batches by hand, losses and statistics against other ways to find them."""

import math

import pytest
import torch
from sweep import Laws, curve, judged, made, value, verdict_of
from torch.nn import functional

from heedful.lab.experiments import norms_compared
from heedful.lab.experiments.norms_compared import BATCH, LAYER
from heedful.lab.experiments.transfer import END
from heedful.nn.norms import BatchNorm
from heedful.nn.taps import recording

NAME = "layer-or-batch-norm"


class TestExperiments(Laws):
    family = "norms_compared"


def some(n, first=0):
    return [ids for ids, _ in norms_compared.data().tested[first : first + n]]


def test_nothing_is_asked_of_company():
    own, extra = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13]]
    batch = norms_compared.batch_of(own, extra)
    assert batch.inputs.layout.lengths == (4, 2, 3, 4)
    assert batch.targets.tolist() == [5, 6, 7, END, 8, END]
    assert batch.rows.tolist() == [0, 1, 2, 3, 4, 5]


def test_company_changes_no_sentence_that_is_learned_from():
    alone, among = (next(norms_compared.batches(3, n, seed=4)) for n in (0, 5))
    assert torch.equal(alone.targets, among.targets)
    assert among.inputs.layout.lengths[:3] == alone.inputs.layout.lengths
    assert among.inputs.layout.n_sequences == 8


@pytest.mark.parametrize("norm, coupled", [(LAYER, False), (BATCH, True)])
def test_company_is_felt_through_statistics_alone(norm, coupled):
    model = norms_compared.model_of(norm, seed=1)
    losses = [
        norms_compared.mean_loss(model, [norms_compared.batch_of(some(2), extra)], training=True)
        for extra in ([], some(5, first=2))
    ]
    assert (abs(losses[0] - losses[1]) > 1e-3) == coupled
    assert norms_compared.mean_loss(model, [norms_compared.batch_of(some(2))], training=False) > 0


def test_a_mean_loss_is_that_of_all_tokens_and_leaves_the_model_alone():
    model = norms_compared.model_of(BATCH, seed=2).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cut = [norms_compared.batch_of(some(n, first)) for first, n in ((0, 1), (1, 3))]
    found = norms_compared.mean_loss(model, cut, training=False)
    whole = norms_compared.batch_of(some(4))
    with torch.no_grad():
        logits = model.heads["token"](model(whole.inputs))
    assert found == pytest.approx(functional.cross_entropy(logits, whole.targets).item(), rel=1e-4)
    norms_compared.mean_loss(model, cut, training=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model.training


def test_how_far_means_are_off_in_deviations():
    """Statistics are set to the batch's own, from below upwards; then the last norm's means are moved."""
    model = norms_compared.model_of(BATCH, seed=3).eval()
    batch = norms_compared.batch_of(some(7))
    norms = [part for part in model.modules() if isinstance(part, BatchNorm)]
    for norm in norms:
        with torch.no_grad():
            seen = []
            hook = norm.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
            model(batch.inputs)
            hook.remove()
            norm.running_mean.copy_(seen[0].mean(0))
            norm.running_variance.copy_(seen[0].var(0, correction=0))
    assert norms_compared.error_of_means(model, [batch]) == pytest.approx(0.0, abs=1e-5)
    norms[-1].running_mean += 3 * norms[-1].running_variance.sqrt()
    expected = math.sqrt(9 / len(norms))
    assert norms_compared.error_of_means(model, [batch, batch]) == pytest.approx(expected, rel=1e-3)
    assert norms_compared.error_of_means(norms_compared.model_of(LAYER, seed=3), [batch]) == 0.0


@pytest.mark.parametrize("norm", norms_compared.NORMS)
def test_no_word_is_read_ahead_in_evaluation(norm):
    model = norms_compared.model_of(norm, seed=1).eval()
    whole, part = norms_compared.batch_of([[4, 5, 6, 7]]), norms_compared.batch_of([[4, 5]])
    with recording(model, ["stack.top"]) as seen, torch.no_grad():
        model(whole.inputs)
        model(part.inputs)
    torch.testing.assert_close(seen["stack.top"][0][:3], seen["stack.top"][1])


@pytest.mark.parametrize(
    "leads, verdict",
    [
        ([0.4, 0.3], "holds"),
        ([0.3, 0.0, -0.1], "holds with conditions"),
        ([0.0, 0.2], "is wrong"),
        ([-0.3, -0.2], "is wrong"),
    ],
)
def test_the_verdict(leads, verdict):
    assert verdict_of(NAME, leads=leads) == verdict


def test_a_lead_is_what_layer_norm_takes_off_the_loss(monkeypatch):
    losses = {(LAYER, 1): 2.0, (LAYER, 8): 1.5, (BATCH, 1): 3.0, (BATCH, 8): 1.6}
    made_up = lambda norm, n, *_: norms_compared.Trained(losses[norm, n], 0.0, 0.0, 0.0)  # noqa: E731
    monkeypatch.setattr(norms_compared, "train_and_evaluate", made_up)
    found = judged(NAME, norms_compared.compare_losses_by_batch_size("short", 0))
    assert [each.value for each in found.measured[:2]] == pytest.approx([1.0, 0.1])
    assert found.verdict == "holds with conditions"


def test_modes_differ_with_batch_norm_alone_and_least_with_many_sentences():
    _, gaps = curve(NAME, 1, LAYER)
    assert list(gaps) == pytest.approx([0.0] * len(gaps), abs=1e-5)
    few, many = curve(NAME, 1, BATCH)[1]
    assert few > 0.2 > abs(many)


def test_means_of_more_sentences_are_nearer():
    few, many = (row["means off by"] for row in made(NAME).table)
    assert few > 1.5 * many > 0
    assert made(NAME, control=True).table[0]["means off by"] < few / 2


def test_a_single_sentence_is_learned_from_as_well_where_statistics_are_of_many():
    loss = "loss with batch norm, sentences: 1"
    assert value(NAME, loss, control=True) < value(NAME, loss) - 0.25
    for norm in (LAYER, BATCH):
        assert value(NAME, f"loss with {norm}, sentences: 1") < math.log(norms_compared.data().n_ids)
