"""Recurrences against torch's own layers with the same weights: whole tensors and all gradients."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.nn.cells import ElmanCell, LSTMCell, ResetAfterGRUCell
from heedful.nn.layout import Layout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentStack

D_X, D_H = 5, 7
LENGTHS = [3, 11, 2, 5]
PAIRS = [(ElmanCell, nn.RNN), (LSTMCell, nn.LSTM), (ResetAfterGRUCell, nn.GRU)]


def theirs_of(layer: nn.RNNBase, suffix: str) -> dict[str, nn.Parameter]:
    return {k: getattr(layer, f"{k}_{suffix}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


def split_biases(cell, theirs):
    """torch's two biases as ours: summed, but for the part that the GRU's reset gate multiplies."""
    inner = torch.zeros_like(theirs["bias_hh"])
    if isinstance(cell, ResetAfterGRUCell):
        inner[2 * D_H :] = theirs["bias_hh"][2 * D_H :]
    return theirs["bias_ih"] + theirs["bias_hh"] - inner, inner[2 * D_H :]


def copy(cell, theirs):
    bias, candidate = split_biases(cell, theirs)
    with torch.no_grad():
        cell.input.weight.copy_(theirs["weight_ih"])
        cell.recurrent.weight.copy_(theirs["weight_hh"])
        cell.input.bias.copy_(bias)
        if isinstance(cell, ResetAfterGRUCell):
            cell.candidate_bias.copy_(candidate)


def same_gradients(cell, theirs):
    torch.testing.assert_close(cell.input.weight.grad, theirs["weight_ih"].grad)
    torch.testing.assert_close(cell.recurrent.weight.grad, theirs["weight_hh"].grad)
    torch.testing.assert_close(cell.input.bias.grad, theirs["bias_ih"].grad)
    if isinstance(cell, ResetAfterGRUCell):
        torch.testing.assert_close(cell.candidate_bias.grad, theirs["bias_hh"].grad[2 * D_H :])


def compare(ours: RecurrentStack, theirs: nn.RNNBase, cells):
    layout = Layout.of(LENGTHS)
    torch.manual_seed(3)
    x = torch.randn(layout.n_tokens, D_X, requires_grad=True)
    same = x.detach().clone().requires_grad_()
    packed = pack_padded_sequence(layout.pad(same), torch.tensor(LENGTHS), True, enforce_sorted=False)
    wanted, final = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0], theirs(packed)[1]
    out, finals = ours.run(x, layout)
    torch.testing.assert_close(out, layout.unpad(wanted))
    hidden = final[0] if isinstance(final, tuple) else final
    per_cell = cells[0].n_states
    states = [state for states in finals for state in states]
    torch.testing.assert_close(torch.stack(states[::per_cell]), hidden)
    if isinstance(final, tuple):
        torch.testing.assert_close(torch.stack(states[1::per_cell]), final[1])
    probe = torch.randn_like(out)
    (out * probe).sum().backward()
    (layout.unpad(wanted) * probe).sum().backward()
    torch.testing.assert_close(x.grad, same.grad)


@pytest.mark.parametrize("kind, reference", PAIRS)
def test_one_direction_equals_torch(kind, reference):
    torch.manual_seed(1)
    ours, theirs = Recurrence(kind(D_X, D_H)), reference(D_X, D_H, batch_first=True)
    copy(ours.cell, theirs_of(theirs, "l0"))
    compare(RecurrentStack([ours]), theirs, [ours.cell])
    same_gradients(ours.cell, theirs_of(theirs, "l0"))


@pytest.mark.parametrize("kind, reference", PAIRS)
def test_two_layers_in_both_directions_equal_torch(kind, reference):
    torch.manual_seed(2)
    theirs = reference(D_X, D_H, num_layers=2, bidirectional=True, batch_first=True)
    layers = [
        Bidirectional(Recurrence(kind(d, D_H)), Recurrence(kind(d, D_H), reverse=True))
        for d in (D_X, 2 * D_H)
    ]
    pairs = [
        (direction.cell, theirs_of(theirs, f"l{i}{suffix}"))
        for i, layer in enumerate(layers)
        for direction, suffix in ((layer.left_to_right, ""), (layer.right_to_left, "_reverse"))
    ]
    for cell, weights in pairs:
        copy(cell, weights)
    compare(RecurrentStack(layers), theirs, [cell for cell, _ in pairs])
    for cell, weights in pairs:
        same_gradients(cell, weights)
