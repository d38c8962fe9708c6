"""The table of names: both directions, and every way in which a file can differ from it."""

import pytest
import torch
from torch import nn

from heedful.errors import RequestError
from heedful.interop.names import (
    SAME,
    TRANSPOSED,
    Numbering,
    Table,
    linear,
    pair,
    read_weights,
    reshaped,
    rows,
    stacked,
    write_weights,
)


class Small(nn.Module):
    """Two projections, of which one is fused, and an embedding with a tied head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.qkv = nn.Linear(5, 6)
        self.out = nn.Linear(2, 5, bias=False)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight


NUMBERING = Numbering((None, 3, 0, None, 1, 4, 2))  # five tokens of theirs


def table(**changes):
    return Table(
        [
            pair("embedding.weight", "own.tokens.weight", form=rows(NUMBERING)),
            *linear("qkv", "own.q", "own.k", "own.v"),
            pair("out.weight", "own.out.weight", form=TRANSPOSED),
        ],
        **{"copies": {"head.weight": "own.tokens.weight"}, "prefix": "own.", **changes},
    )


def tensors():
    shapes = {"tokens.weight": (5, 5), "out.weight": (2, 5)}
    shapes |= {f"{x}.weight": (2, 5) for x in "qkv"} | {f"{x}.bias": (2,) for x in "qkv"}
    draw = torch.Generator().manual_seed(1)
    return {f"own.{name}": torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def refused(held, *parts, **changes):
    model = Small()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(RequestError) as error:
        read_weights(table(**changes), held, model, "folder/file")
    assert str(error.value).startswith("folder/file: does not fit its configuration:\n  ")
    for part in parts:
        assert part in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return str(error.value)


def test_each_parameter_is_found_as_its_line_says():
    held, model = tensors(), Small()
    read_weights(table(), held, model, "x")
    torch.testing.assert_close(
        model.qkv.weight, torch.cat([held[f"own.{x}.weight"] for x in "qkv"]), rtol=0, atol=0
    )
    assert torch.equal(model.qkv.bias, torch.cat([held[f"own.{x}.bias"] for x in "qkv"]))
    assert torch.equal(model.out.weight, held["own.out.weight"].T)
    their_rows = held["own.tokens.weight"]
    for ours, theirs in enumerate(NUMBERING.theirs):
        wanted = their_rows.double().mean(0).float() if theirs is None else their_rows[theirs]
        assert torch.equal(model.embedding.weight[ours], wanted)
    assert model.head.weight is model.embedding.weight


def test_what_was_read_is_written_bit_for_bit():
    held, model = tensors(), Small()
    read_weights(table(), held, model, "x")
    written = write_weights(table(), model)
    assert written.keys() == held.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, held[name])
        assert tensor.is_contiguous()
    # No two of them share memory, which files would not take.
    assert len({t.untyped_storage().data_ptr() for t in written.values()}) == len(written)


@pytest.mark.parametrize("form", [SAME, TRANSPOSED, stacked(2), reshaped((6, 5), (2, 3, 5, 1))])
def test_a_form_undoes_itself(form):
    ours = torch.randn(6, 5)
    assert torch.equal(form.read(form.write(ours)), ours)


def test_what_has_no_place_there_is_neither_read_nor_written():
    pairs = [line for line in table().pairs if not line.ours.startswith("out.")]
    part = Table(pairs, {"head.weight": "own.tokens.weight"}, ignored=[r"out\..*"])
    held, model = tensors(), Small()
    own = model.out.weight.clone()
    del held["own.out.weight"]
    read_weights(part, held, model, "x")
    assert torch.equal(model.out.weight, own)
    assert torch.equal(model.qkv.bias[:2], held["own.q.bias"])
    assert write_weights(part, model).keys() == held.keys()
    with pytest.raises(ValueError, match=r"the table of names and the model differ: out\.weight"):
        write_weights(Table(pairs), model)


def test_a_row_for_each_token_may_lie_in_a_single_row():
    form = rows(NUMBERING, as_one_row=True)
    theirs = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    ours = form.read([theirs])
    assert ours.tolist() == [3.0, 4.0, 1.0, 3.0, 2.0, 5.0, 3.0]
    assert torch.equal(form.write(ours)[0], theirs)


def test_a_token_that_they_have_not_is_no_more_probable_than_tokens_are_on_average():
    """So their log-probabilities lose at most log(1 + made / theirs)."""
    draw = torch.Generator().manual_seed(3)
    their_rows = 5 * torch.randn(97, 11, generator=draw)
    numbering = Numbering((None,) * 6 + tuple(range(97)))
    hidden = torch.randn(31, 11, generator=draw)
    theirs = (hidden @ their_rows.T).log_softmax(-1)
    ours = (hidden @ rows(numbering).read([their_rows]).T).log_softmax(-1)[:, 6:]
    loss = theirs - ours
    assert loss.min() > -1e-5
    assert loss.max() < torch.tensor(1 + 6 / 97).log() + 1e-5


def test_a_file_without_the_prefix_is_the_same():
    held, model, other = tensors(), Small(), Small()
    read_weights(table(), held, model, "x")
    read_weights(table(), {name.removeprefix("own."): tensor for name, tensor in held.items()}, other, "x")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_copy_may_be_there_or_stand_for_what_it_is_a_copy_of():
    held = tensors()
    read_weights(table(), {**held, "head.weight": held["own.tokens.weight"].clone()}, Small(), "x")
    model = Small()
    alone = {**held, "head.weight": held["own.tokens.weight"]}
    del alone["own.tokens.weight"]
    read_weights(table(), alone, model, "x")
    assert torch.equal(model.embedding.weight[1], held["own.tokens.weight"][3])


def test_a_copy_that_differs_is_refused():
    held = tensors()
    refused(
        {**held, "head.weight": held["own.tokens.weight"] + 1},
        "head.weight should be a copy of own.tokens.weight, and differs",
    )


def test_every_difference_is_told_at_once():
    held = tensors()
    held["own.out.wieght"] = held.pop("own.out.weight")
    held["own.k.weight"] = torch.zeros(2, 3)
    held["own.q.bias"] = torch.zeros(2, dtype=torch.int8)
    refused(
        held,
        "unknown: own.out.wieght (did you mean 'own.out.weight'?)",
        "missing: own.out.weight",
        "own.k.weight has shape [2, 3] in the file, expected [2, 5]",
        "own.q.bias holds int8: quantised weights are not read",
    )


def test_another_number_of_tokens_is_another_shape():
    held = tensors()
    held["own.tokens.weight"] = torch.zeros(6, 5)
    refused(held, "own.tokens.weight has shape [6, 5] in the file, expected [5, 5]")


def test_of_very_many_differences_some_are_told():
    message = refused({f"x{i}": torch.zeros(1) for i in range(40)}, "unknown: x0", "and 36 more")
    assert message.count("\n") == 13


def test_what_holds_nothing_learned_is_left_aside_by_name_alone():
    held = {**tensors(), "own.mask.3": torch.ones(2)}
    read_weights(table(derived=[r"own\.mask\.\d+"]), held, Small(), "x")
    refused({**held, "own.mask.x": torch.ones(2)}, "unknown: own.mask.x", derived=[r"own\.mask\.\d+"])


def test_weights_in_half_precision_are_widened():
    held = {name: tensor.half() for name, tensor in tensors().items()}
    model = Small()
    read_weights(table(), held, model, "x")
    assert model.out.weight.dtype == torch.float32
    assert torch.equal(model.out.weight, held["own.out.weight"].T.float())


def test_a_table_that_forgets_a_parameter_is_no_table():
    short = Table(table().pairs[:-1])
    with pytest.raises(ValueError, match=r"differ: out.weight"):
        write_weights(short, Small())
    twice = Table([*table().pairs, table().pairs[-1]])
    with pytest.raises(ValueError, match=r"differ: out.weight"):
        read_weights(twice, tensors(), Small(), "x")
