import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from toy_training import ToyModel, same

from heedful.artifacts.weights import load_weights, named_tensors, save_tensors, save_weights
from heedful.errors import DamagedError, DataError, RequestError, WorkError


class Parts(nn.Module):
    """Parameters under the given names, and a counter."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))
        self.register_buffer("counter", torch.tensor(7))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)


@pytest.mark.parametrize("tied", [False, True])
def test_round_trip(tmp_path, tied):
    path = tmp_path / "weights.safetensors"
    model, other = ToyModel(tied=tied, seed=1), ToyModel(tied=tied, seed=2)
    assert not same(model.state_dict(), other.state_dict())
    save_weights(path, model)
    load_weights(path, other)
    assert same(model.state_dict(), other.state_dict())
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]


def test_a_tied_tensor_is_stored_once(tmp_path):
    model = ToyModel(tied=True)
    assert named_tensors(model)[1] == {"heads.token.weight": "embedding.weight"}
    save_weights(tmp_path / "w", model)
    with safe_open(tmp_path / "w", framework="pt") as file:
        assert sorted(file.keys()) == ["embedding.weight", "heads.token.bias"]


def test_buffers_that_are_kept_travel_and_others_do_not(tmp_path):
    a, b = Parts(x=(2, 3), empty=(0,), void=(0,)), Parts(x=(2, 3), empty=(0,), void=(0,))
    b.counter.zero_()
    save_weights(tmp_path / "w", a)
    load_weights(tmp_path / "w", b)
    assert b.counter == 7
    assert torch.equal(a.x, b.x)


def test_every_difference_is_in_one_error_and_nothing_is_loaded(tmp_path):
    save_weights(tmp_path / "w", Parts(alpha=(2, 3), beta=(5,), gamma=(7,)))
    model = Parts(alpha=(3, 2), betta=(5,), delta=(2,))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(RequestError) as caught:
        load_weights(tmp_path / "w", model)
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'w'}: weights do not fit the model:",
        "  unknown: beta (did you mean 'betta'?)",
        "  unknown: gamma",
        "  missing: betta",
        "  missing: delta",
        "  alpha has shape [2, 3] in the file, [3, 2] in the model",
    ]
    assert same(model.state_dict(), before)


def test_ties_must_agree(tmp_path):
    tied, loose = ToyModel(tied=True), ToyModel(tied=False)
    save_weights(tmp_path / "tied", tied)
    save_weights(tmp_path / "loose", loose)
    with pytest.raises(RequestError, match=r"is tied to embedding.weight in the file, but not in the model"):
        load_weights(tmp_path / "tied", loose)
    with pytest.raises(
        RequestError, match=r"is tied to embedding.weight in the model, but a different tensor"
    ):
        load_weights(tmp_path / "loose", tied)
    with torch.no_grad():
        loose.heads["token"].weight.copy_(loose.embedding.weight)
    save_weights(tmp_path / "equal", loose)
    load_weights(tmp_path / "equal", tied)
    assert torch.equal(tied.embedding.weight, loose.embedding.weight)


def test_missing_and_invalid_files(tmp_path):
    model = ToyModel()
    with pytest.raises(DataError, match="no such weights file"):
        load_weights(tmp_path / "w", model)
    (tmp_path / "w").write_bytes(b"not safetensors at all")
    with pytest.raises(DamagedError, match="cannot be read"):
        load_weights(tmp_path / "w", model)
    save_weights(tmp_path / "w", model)
    whole = (tmp_path / "w").read_bytes()
    (tmp_path / "w").write_bytes(whole[:-9])
    with pytest.raises(DamagedError, match="cannot be read"):
        load_weights(tmp_path / "w", model)


def test_a_folder_that_is_not_there_is_an_error_with_its_name(tmp_path):
    with pytest.raises(WorkError, match="nowhere/w: cannot be written"):
        save_weights(tmp_path / "nowhere" / "w", ToyModel())


TABLE = {"format": "heedful-weights-1", "aliases": {"heads.token.weight": "embedding.weight"}}


@pytest.mark.parametrize(
    "record",
    [
        {"format": TABLE["format"]},
        {**TABLE, "aliases": ["heads.token.weight"]},
        {**TABLE, "aliases": None},
        {**TABLE, "aliases": {"heads.token.weight": 3}},
        {**TABLE, "aliases": {"heads.token.weight": "nowhere"}},
        {**TABLE, "aliases": {"heads.token.bias": "embedding.weight"}},
        [TABLE],
        "[" * 200_000,
        "{",
    ],
    ids=lambda record: str(record)[:60],
)
def test_metadata_that_are_not_as_written_are_damage(tmp_path, record):
    path, model = tmp_path / "weights.safetensors", ToyModel(tied=True)
    tensors, aliases = named_tensors(model)
    assert aliases == TABLE["aliases"]
    text = record if isinstance(record, str) else json.dumps(record)
    save_file(dict(tensors), path, {"heedful": text})
    with pytest.raises(DamagedError, match=r"weights\.safetensors: the (metadata|table of tied tensors)"):
        load_weights(path, model)


def test_a_path_that_is_not_utf_8_is_written_and_read(tmp_path):
    folder = tmp_path / b"r\xffn".decode("utf-8", "surrogateescape")
    folder.mkdir()
    model, other = ToyModel(tied=True, seed=1), ToyModel(tied=True, seed=2)
    save_weights(folder / "w", model)
    load_weights(folder / "w", other)
    assert same(model.state_dict(), other.state_dict())
    (folder / "w").write_bytes((folder / "w").read_bytes()[:-1])
    with pytest.raises(DamagedError, match="w: cannot be read as safetensors: the file is incomplete; copy"):
        load_weights(folder / "w", other)


@pytest.mark.parametrize(("value", "problem"), [(float("nan"), "NaN"), (float("inf"), "infinity")])
def test_weights_that_are_no_numbers_are_refused_and_change_nothing(tmp_path, value, problem):
    model, other = nn.Linear(2, 3), nn.Linear(2, 3)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with torch.no_grad():
        model.bias[1] = value
    save_weights(tmp_path / "w", model)
    with pytest.raises(DamagedError, match=rf"w: damaged: bias contains {problem}; restore it"):
        load_weights(tmp_path / "w", other)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_numbers_of_another_kind_are_refused(tmp_path, dtype):
    tensors = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3).to(dtype)}
    save_tensors(tmp_path / "w", tensors, {})
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(RequestError, match=f"bias has type {name} in the file, float32 in the model"):
        load_weights(tmp_path / "w", nn.Linear(2, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_another_precision_are_converted(tmp_path, dtype):
    save_tensors(tmp_path / "w", {"weight": torch.ones(3, 2).to(dtype), "bias": torch.zeros(3)}, {})
    model = nn.Linear(2, 3)
    load_weights(tmp_path / "w", model)
    assert torch.equal(model.weight, torch.ones(3, 2))
