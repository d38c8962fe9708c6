"""Cells against their formulas, written out gate by gate, unit by unit."""

import math

import pytest
import torch

from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell, StackedCell

N, D_X, D_H = 3, 5, 7
CELLS = [ElmanCell, LSTMCell, GRUCell, ResetAfterGRUCell]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def affine(weight, x, bias) -> list[float]:
    return [sum(w * v for w, v in zip(row, x)) + b for row, b in zip(weight, bias)]


def randomised(cell):
    torch.manual_seed(3)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return cell.double()


def state_of(cell):
    torch.manual_seed(5)
    return tuple(torch.randn(N, D_H, dtype=torch.float64) for _ in range(cell.n_states))


def by_hand(cell, x, state):
    """The new h of one sequence, in plain Python."""
    w, b = cell.input.weight.tolist(), cell.input.bias.tolist()
    u, h = cell.recurrent.weight.tolist(), state[0]
    part = lambda rows, gate: rows[gate * D_H : (gate + 1) * D_H]  # noqa: E731
    zero = [0.0] * D_H
    w_x = lambda gate: affine(part(w, gate), x, part(b, gate))  # noqa: E731
    u_h = lambda gate, h=h: affine(part(u, gate), h, zero)  # noqa: E731
    both = lambda gate: [p + q for p, q in zip(w_x(gate), u_h(gate))]  # noqa: E731
    if isinstance(cell, ElmanCell):
        return [math.tanh(v) for v in both(0)]
    if isinstance(cell, LSTMCell):
        i, f, g, o = both(0), both(1), both(2), both(3)
        c = [sigmoid(f[k]) * state[1][k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(D_H)]
        return [sigmoid(o[k]) * math.tanh(c[k]) for k in range(D_H)]
    r, z = ([sigmoid(v) for v in both(gate)] for gate in (0, 1))
    if isinstance(cell, GRUCell):
        reset = [r[k] * h[k] for k in range(D_H)]
        past = affine(cell.candidate.weight.tolist(), reset, zero)
    else:
        past = affine(part(u, 2), h, cell.candidate_bias.tolist())
        past = [r[k] * past[k] for k in range(D_H)]
    n = [math.tanh(p + q) for p, q in zip(w_x(2), past)]
    return [z[k] * h[k] + (1 - z[k]) * n[k] for k in range(D_H)]


@pytest.mark.parametrize("kind", CELLS)
def test_a_step_equals_the_formula(kind):
    cell = randomised(kind(D_X, D_H))
    x, state = torch.randn(N, D_X, dtype=torch.float64), state_of(cell)
    after = cell(cell.project(x), state)
    rows = [by_hand(cell, x[n].tolist(), [s[n].tolist() for s in state]) for n in range(N)]
    torch.testing.assert_close(cell.output(after), torch.tensor(rows, dtype=torch.float64))
    assert len(after) == cell.n_states


@pytest.mark.parametrize(
    "kind, count",
    [
        (ElmanCell, D_H**2 + D_H * D_X + D_H),
        (LSTMCell, 4 * (D_H**2 + D_H * D_X + D_H)),
        (GRUCell, 3 * (D_H**2 + D_H * D_X + D_H)),
        (ResetAfterGRUCell, 3 * (D_H**2 + D_H * D_X + D_H) + D_H),
    ],
)
def test_parameters_are_counted_as_published(kind, count):
    assert sum(p.numel() for p in kind(D_X, D_H).parameters()) == count


@pytest.mark.parametrize("kind", CELLS)
def test_every_recurrent_matrix_starts_orthogonal_and_biases_at_zero(kind):
    cell = kind(D_X, D_H)
    matrices = [w for w in (cell.recurrent, getattr(cell, "candidate", None)) if w is not None]
    for matrix in (gate for w in matrices for gate in w.weight.split(D_H)):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(D_H), atol=1e-5, rtol=0)
    forget = slice(D_H, 2 * D_H)
    bias = cell.input.bias.detach().clone()
    if kind is LSTMCell:
        assert bias[forget].tolist() == [1.0] * D_H
        bias[forget] = 0
    assert not bias.any()


def test_the_forget_bias_is_a_parameter_of_the_cell():
    assert LSTMCell(D_X, D_H, forget_bias=0.25).input.bias.tolist() == [0] * 7 + [0.25] * 7 + [0] * 14


def test_the_lstm_of_1997_is_the_limit_of_an_open_forget_gate():
    """With f = 1, c_t = c_{t-1} + i g: the cell as it was before Gers et al. 2000."""
    cell = randomised(LSTMCell(D_X, D_H))
    with torch.no_grad():
        cell.input.bias[D_H : 2 * D_H] = 1e3
    x, (h, c) = torch.randn(N, D_X, dtype=torch.float64), state_of(cell)
    i, _, g, _ = (cell.project(x) + h @ cell.recurrent.weight.T).split(D_H, dim=-1)
    open_state = cell(cell.project(x), (h, c))
    torch.testing.assert_close(open_state[1], c + i.sigmoid() * g.tanh())
    without = LSTMCell(D_X, D_H, forget_gate=False).double()
    assert sum(p.numel() for p in without.parameters()) == 3 * (D_H**2 + D_H * D_X + D_H)
    kept = [*range(D_H), *range(2 * D_H, 4 * D_H)]
    without.load_state_dict({name: weight[kept] for name, weight in cell.state_dict().items()})
    for ours, theirs in zip(without(without.project(x), (h, c)), open_state, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_bahdanaus_gru_is_chos_with_the_update_gate_turned():
    """s_t = (1 - z) s_{t-1} + z n, with W_z, U_z and b_z negated, is the same cell."""
    cell = randomised(GRUCell(D_X, D_H))
    x, (h,) = torch.randn(N, D_X, dtype=torch.float64), state_of(cell)
    w_r, w_z, w_n = cell.project(x).split(D_H, dim=-1)
    u_r, u_z = (h @ u.T for u in cell.recurrent.weight.split(D_H))
    r, z = (w_r + u_r).sigmoid(), (-w_z - u_z).sigmoid()
    n = (w_n + (r * h) @ cell.candidate.weight.T).tanh()
    torch.testing.assert_close(cell(cell.project(x), (h,))[0], (1 - z) * h + z * n)


def test_where_the_reset_gate_acts_makes_a_difference():
    torch.manual_seed(1)
    before, after = GRUCell(D_X, D_H), ResetAfterGRUCell(D_X, D_H)
    with torch.no_grad():
        after.input.load_state_dict(before.input.state_dict())
        after.recurrent.weight.copy_(torch.cat([before.recurrent.weight, before.candidate.weight]))
    x, h = before.project(torch.randn(N, D_X)), torch.randn(N, D_H)
    assert not torch.allclose(before(x, (h,))[0], after(x, (h,))[0])
    # A gate that is open everywhere, or a diagonal U_n, takes the difference away.
    with torch.no_grad():
        before.candidate.weight.copy_(torch.eye(D_H) * 0.7)
        after.recurrent.weight[2 * D_H :] = torch.eye(D_H) * 0.7
    torch.testing.assert_close(before(x, (h,))[0], after(x, (h,))[0])


def test_a_stacked_cell_feeds_each_output_to_the_next_layer():
    torch.manual_seed(2)
    low, high = LSTMCell(D_X, D_H), ElmanCell(D_H, 11)
    stack = StackedCell([low, high])
    x, state = torch.randn(N, D_X), (torch.randn(N, D_H), torch.randn(N, D_H), torch.randn(N, 11))
    h, c = low(low.project(x), state[:2])
    (top,) = high(high.project(h), state[2:])
    after = stack(stack.project(x), state)
    for got, wanted in zip(after, (h, c, top), strict=True):
        assert torch.equal(got, wanted)
    assert torch.equal(stack.output(after), top)
    assert [s.shape for s in stack.initial(N, x)] == [(N, D_H), (N, D_H), (N, 11)]


def test_dropout_in_a_stack_leaves_the_way_through_time_alone():
    torch.manual_seed(4)
    stack = StackedCell([ElmanCell(D_X, D_H), ElmanCell(D_H, D_H)], dropout=0.5)
    x, state = torch.randn(N, D_X), (torch.randn(N, D_H), torch.randn(N, D_H))
    noisy, calm = stack(stack.project(x), state), stack.eval()(stack.project(x), state)
    assert torch.equal(noisy[0], calm[0])
    assert not torch.equal(noisy[1], calm[1])


def test_a_stack_needs_a_cell():
    with pytest.raises(ValueError, match="at least one cell"):
        StackedCell([])
