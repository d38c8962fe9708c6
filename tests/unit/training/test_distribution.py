import json
import os
import signal
import socket
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel
from toy_training import Toy, in_process, make_batch, same, toy_data

from heedful.artifacts.weights import load_weights, save_weights
from heedful.config import merged
from heedful.data.batch import Batch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.objectives.cross_entropy import NextToken
from heedful.training import checkpoints, distribution
from heedful.training.callbacks import Updated
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.update import PlannedData

SETTINGS = {"max_updates": 9, "validate_every": 4, "accumulate": 1}


def _together(target, *args, world=2):
    """Run ``target`` in ``world`` processes that `torchrun` might have started."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        in_process(_joined, target, *args, environment={**shared, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(world)
    ]
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * world


def _joined(target, *args):
    with distribution.process_group() as device:
        assert device == torch.device("cpu")
        target(*args)


def _train(run, settings, dropout, data=None, stop=None, resume=False):
    def interrupt(event):
        if isinstance(event, Updated) and event.update == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    toy = Toy(run, settings, dropout=dropout, callbacks=[interrupt], **({"data": data} if data else {}))
    result = toy.train(resume)
    rank = distribution.rank()
    save_weights(run / f"weights-{rank}", toy.step.model)
    record = {**result.state.to_json(), "stopped": result.stop_reason, "schedule": toy.schedule.state_dict()}
    (run / f"state-{rank}.json").write_text(json.dumps({**record, "seconds": 0}))


def _loaded(path):
    toy = Toy(path.parent)
    load_weights(path, toy.step.model)
    return toy.weights


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_two_processes_equal_one_with_twice_the_micro_batches(tmp_path, dropout):
    """Dropout included, as the parts of an update are the same ones."""
    both, one = tmp_path / "both", tmp_path / "one"
    both.mkdir()
    one.mkdir()
    _together(_train, both, SETTINGS, dropout)
    _train(one, {**SETTINGS, "accumulate": 2}, dropout)
    first, second, alone = (_loaded(p) for p in (both / "weights-0", both / "weights-1", one / "weights-0"))
    assert same(first, second)
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-5)
    states = [json.loads(p.read_text()) for p in (both / "state-0.json", both / "state-1.json")]
    assert states[0] == states[1]
    wanted = json.loads((one / "state-0.json").read_text())
    for key in ("update", "cursor", "tokens", "samples", "stopped", "validated"):
        assert states[0][key] == wanted[key]


EXPERTS = {
    "d_model": 6,
    "n_layers": 1,
    "dropout": 0.0,
    "context": 9,
    "layer": {
        "mixer": {"n_heads": 2},
        "channels": {"kind": "experts", "n": 7, "k": 2, "expert": {"d_ff": 7, "activation": "gelu"}},
    },
}
PLAIN = {"layer": {"channels": {"kind": "feed-forward", "d_ff": 7, "activation": "gelu"}}}
PARTS = [[[3, 4, 5]], [[6], [7, 8, 9, 10]]]


def _expert_gradients(run):
    """Of one update in two parts; noise is seeded by the part. Of 7 experts, some have no token of a part."""
    torch.manual_seed(1)
    step = ModelWithLoss(build_model(LanguageModelConfig.model_validate(EXPERTS), 13), NextToken())
    forward, world, rank = distribution.wrap(step), distribution.world(), distribution.rank()
    batches = [Batch.teacher_forced(None, rows, start=1, end=2) for rows in PARTS]
    counts = Counter()
    for batch in batches[rank::world]:
        counts.update(step.counts(batch))
    counts = distribution.sum_counts(counts)
    for number, batch in list(enumerate(batches))[rank::world]:
        torch.manual_seed(number)
        loss, _ = forward(batch, counts)
        (loss * world).backward()
    save_file({name: p.grad for name, p in step.model.named_parameters()}, run / f"gradients-{rank}")


def test_experts_in_two_processes_equal_one_with_both_parts(tmp_path):
    """Their balance included, as its terms are sums over parts; and experts that idle on one rank alone."""
    both, one = tmp_path / "both", tmp_path / "one"
    both.mkdir()
    one.mkdir()
    _together(_expert_gradients, both)
    _expert_gradients(one)
    first, second, alone = (
        load_file(p) for p in (both / "gradients-0", both / "gradients-1", one / "gradients-0")
    )
    assert same(first, second)
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-6)
    idle = [name for name, tensor in alone.items() if "experts" in name and not tensor.any()]
    assert len(idle) < len([name for name in alone if "experts" in name])


def _two_updates_of_a_part(run):
    """Of a model that has a head which the objective does not use, as a tagger's encoder has a pooler."""
    torch.manual_seed(1)
    model = build_model(LanguageModelConfig.model_validate(merged(EXPERTS, PLAIN)), 13)
    model.heads["unused"] = torch.nn.Linear(6, 5)
    step = ModelWithLoss(model, NextToken())
    forward, world, rank = distribution.wrap(step), distribution.world(), distribution.rank()
    batches = [Batch.teacher_forced(None, rows, start=1, end=2) for rows in PARTS]
    counts = Counter()
    for batch in batches:
        counts.update(step.counts(batch))
    for _ in range(2):
        for batch in batches[rank::world]:
            (forward(batch, counts)[0] * world).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    save_file(found, run / f"gradients-{rank}")


@pytest.mark.slow
def test_a_head_that_the_objective_does_not_use_may_be_there(tmp_path):
    both, one = tmp_path / "both", tmp_path / "one"
    both.mkdir()
    one.mkdir()
    _together(_two_updates_of_a_part, both)
    _two_updates_of_a_part(one)
    found, alone = load_file(both / "gradients-0"), load_file(one / "gradients-0")
    assert found.keys() == alone.keys()
    assert not any("unused" in name for name in found)
    for name, tensor in alone.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)


def _one_by_one():
    """Updates of a single sample: the second process never has one of its own."""
    return toy_data(tokens_per_update=1)


@pytest.mark.slow
def test_a_process_without_samples_takes_part(tmp_path):
    both, one = tmp_path / "both", tmp_path / "one"
    both.mkdir()
    one.mkdir()
    _together(_train, both, SETTINGS, 0.0, _one_by_one())
    _train(one, SETTINGS, 0.0, _one_by_one())
    first, second, alone = (_loaded(p) for p in (both / "weights-0", both / "weights-1", one / "weights-0"))
    assert same(first, second)
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-5)
    states = [json.loads((folder / "state-0.json").read_text()) for folder in (both, one)]
    assert states[0]["tokens"] == states[1]["tokens"]


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_the_resumed_run_is_bit_equal(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    _together(_train, whole, SETTINGS, 0.4)
    _together(_train, cut, SETTINGS, 0.4, None, 5)
    states = [json.loads((cut / f"state-{rank}.json").read_text()) for rank in (0, 1)]
    assert [(s["stopped"], s["update"]) for s in states] == [("signal", 5)] * 2
    assert checkpoints.load(checkpoints.path_of(cut, 5)).state.update == 5
    _together(_train, cut, SETTINGS, 0.4, None, None, True)
    for rank in (0, 1):
        assert same(_loaded(cut / f"weights-{rank}"), _loaded(whole / "weights-0"))


def _collectives(run):
    rank = distribution.rank()
    assert distribution.world() == 2
    assert distribution.is_first() == (rank == 0)
    counts = {"b": 10 + rank, "a": rank} if rank else {"a": rank, "b": 10 + rank}
    assert distribution.sum_counts(counts) == {"a": 1, "b": 21}
    values = torch.tensor([1.5, -2.0], dtype=torch.float64) * (rank + 1)
    assert distribution.sum_over_ranks(values).tolist() == [4.5, -6.0]
    assert values.tolist() == [1.5 * (rank + 1), -2.0 * (rank + 1)]
    assert distribution.from_first({"x": 1e-300, "ß": None} if rank == 0 else {"y": 2}) == {
        "x": 1e-300,
        "ß": None,
    }
    assert isinstance(distribution.wrap(torch.nn.Linear(2, 3)), DistributedDataParallel)
    distribution.barrier()


@pytest.mark.slow
def test_collectives(tmp_path):
    _together(_collectives, tmp_path)


def test_alone_nothing_changes():
    step = torch.nn.Linear(2, 3)
    values = torch.tensor([1.0])
    with distribution.process_group("cpu") as device:
        assert device == torch.device("cpu")
        assert not torch.distributed.is_initialized()
    assert (distribution.world(), distribution.rank(), distribution.is_first()) == (1, 0, True)
    assert distribution.wrap(step) is step
    assert distribution.sum_counts({"a": 3}) == {"a": 3}
    assert distribution.sum_over_ranks(values) is values
    assert distribution.from_first({"x": 1}) == {"x": 1}
    distribution.barrier()
    with distribution.without_sync(step):
        pass


def test_the_feed_is_the_plan_of_the_corpus():
    data = toy_data()
    stream = data.updates(None)
    seen = [next(stream) for _ in range(40)]
    assert json.loads(json.dumps(seen[7][1])) == seen[7][1]
    again = data.updates(json.loads(json.dumps(seen[7][1])))
    assert [next(again) for _ in range(32)] == seen[8:]
    parts = data.split(seen[0][0], 3)
    assert sorted(i for part in parts for i in part) == sorted(seen[0][0])
    assert data.collate([4, 2], 1).targets.tolist() == make_batch([4, 2], 1).targets.tolist()
    assert isinstance(data, PlannedData)
