import pytest
import torch
from toy_training import Toy, ToyModel, same

from heedful.artifacts.weights import load_weights, save_tensors, save_weights
from heedful.errors import DamagedError, RequestError
from heedful.training.checkpoints import average, final_weights, path_of, select_checkpoints
from heedful.training.settings import TrainingConfig


class Counting(ToyModel):
    """A toy with a counter, which has no mean."""

    def __init__(self, count: int, **options) -> None:
        super().__init__(**options)
        self.register_buffer("count", torch.tensor(count))


def _file(folder, seed, tied=True):
    model = Counting(seed, seed=seed, tied=tied)
    save_weights(folder / f"{seed}", model)
    return model, folder / f"{seed}"


def test_the_mean_is_taken_in_fp64_and_counters_are_the_last_ones(tmp_path):
    models, files = zip(*[_file(tmp_path, seed) for seed in (2, 3, 5, 7, 11)], strict=True)
    # In fp32 the small number would vanish beside the large ones.
    for model, value in zip(models, [1e8, 1.0, -1e8, 1.0, 0.5], strict=True):
        with torch.no_grad():
            model.embedding.weight[0, 0] = value
    for model, path in zip(models, files, strict=True):
        save_weights(path, model)
    tensors, aliases = average(files)
    assert aliases == {"heads.token.weight": "embedding.weight"}
    stacked = torch.stack([model.embedding.weight.detach().double() for model in models])
    assert torch.equal(tensors["embedding.weight"], stacked.mean(0).float())
    assert tensors["embedding.weight"][0, 0] == 0.5
    assert tensors["count"] == 11
    save_tensors(tmp_path / "mean", tensors, aliases)
    other = Counting(0, tied=True)
    load_weights(tmp_path / "mean", other)
    assert torch.equal(other.heads["token"].weight, tensors["embedding.weight"])


def test_the_average_of_one_is_itself(tmp_path):
    model, path = _file(tmp_path, 3, tied=False)
    assert same(average([path])[0], model.state_dict())


def test_unlike_files_are_refused(tmp_path):
    _, a = _file(tmp_path, 2, tied=True)
    _, b = _file(tmp_path, 3, tied=False)
    with pytest.raises(RequestError, match=r"differ in heads.token.weight"):
        average([a, b])
    with pytest.raises(RequestError, match="expected at least one weights file to average"):
        average([])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    metrics = iter([5.0, 2.0, 4.0, 1.0, 3.0, 6.0])
    settings = {"max_updates": 6, "validate_every": 1, "keep_last": 3, "keep_best": 3}
    Toy(folder, settings, validate=lambda model: {"loss": next(metrics)}).train()
    return folder


@pytest.mark.parametrize(
    "options, updates",
    [
        ({}, [4]),
        ({"average": 2}, [5, 6]),
        ({"average": 3, "average_of": "last"}, [4, 5, 6]),
        ({"average": 2, "average_of": "best"}, [4, 2]),
        ({"average": 99, "average_of": "best"}, [4, 2, 5]),
    ],
)
def test_the_checkpoints_that_are_chosen(run, options, updates):
    settings = TrainingConfig(max_updates=6, **options)
    paths = [path_of(run, update) for update in updates]
    assert select_checkpoints(run, settings) == paths
    assert same(final_weights(run, settings)[0], average([p / "model.safetensors" for p in paths])[0])


def test_without_validation_the_last_is_chosen(tmp_path):
    Toy(tmp_path, {"max_updates": 3}, validate=None).train()
    assert select_checkpoints(tmp_path, TrainingConfig(max_updates=3)) == [path_of(tmp_path, 3)]
    (path_of(tmp_path, 2) / "model.safetensors").unlink()
    with pytest.raises(DamagedError, match=r"step-00000002/model.safetensors: file is missing"):
        select_checkpoints(tmp_path, TrainingConfig(max_updates=3, average=2))
    with pytest.raises(RequestError, match="no checkpoint to load weights from"):
        select_checkpoints(tmp_path / "none", TrainingConfig(max_updates=3))
