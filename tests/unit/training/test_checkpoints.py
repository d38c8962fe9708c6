import errno
import json
import math
import os
import resource
import shutil
import signal

import pytest
import torch
from toy_training import ToyModel, in_process, same

from heedful.errors import DamagedError, DataError, RequestError, WorkError
from heedful.training import checkpoints
from heedful.training.checkpoints import ScoredCheckpoint, TrainingState
from heedful.training.optimizers import AdamConfig, SGDConfig, build_optimizer, set_lr, state_tensors

FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def _trained(seed=1, steps=2, tied=True):
    model = ToyModel(tied=tied, seed=seed)
    optimizer = build_optimizer(AdamConfig(), model)
    set_lr(optimizer, 0.1)
    for _ in range(steps):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimizer.step()
    return model, optimizer


def _save(run, update=5, **fields):
    model, optimizer = _trained(seed=update)
    return checkpoints.save(run, model, optimizer, TrainingState(update, **fields)), model, optimizer


def _content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_round_trip(tmp_path):
    state = TrainingState(
        update=5,
        cursor={"epoch": 2, "segments": [{"tokens_per_update": 64, "samples": 7}]},
        validated=4,
        best=[ScoredCheckpoint(4, 0.1 + 0.2), ScoredCheckpoint(2, 1e-300)],
        bad_validations=3,
        schedule={"scale": 0.25, "best": None, "bad": 1},
        seconds=1.25,
        tokens=10**12,
        samples=77,
    )
    model, optimizer = _trained()
    path = checkpoints.save(tmp_path, model, optimizer, state)
    assert path == tmp_path / "checkpoints" / "step-00000005"
    assert sorted(p.name for p in path.iterdir()) == FILES
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    loaded = checkpoints.load(path)
    assert loaded.state == state
    other, fresh = _trained(seed=9, steps=0)
    loaded.restore(other, fresh)
    assert same(model.state_dict(), other.state_dict())
    assert len(state_tensors(fresh, other)) == 6
    assert same(state_tensors(optimizer, model), state_tensors(fresh, other))


def test_another_model_or_optimizer_is_refused(tmp_path):
    path, _, _ = _save(tmp_path)
    loaded = checkpoints.load(path)
    model = ToyModel(tied=True)
    with pytest.raises(RequestError, match="saved with optimizer Adam; it cannot be resumed with SGD"):
        loaded.restore(model, build_optimizer(SGDConfig(), model))
    loose = ToyModel(tied=False)
    with pytest.raises(RequestError, match="weights do not fit the model"):
        loaded.restore(loose, build_optimizer(AdamConfig(), loose))


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_flip, _cut, _empty, os.unlink])
@pytest.mark.parametrize("name", FILES[1:])
def test_any_damage_is_reported_with_the_newest_intact_checkpoint(tmp_path, name, harm):
    good, _, _ = _save(tmp_path, 5)
    bad, _, _ = _save(tmp_path, 9)
    harm(bad / name)
    with pytest.raises(DamagedError) as caught:
        checkpoints.load(bad)
    assert str(bad / name) in str(caught.value)
    assert str(caught.value).endswith(f"the newest intact checkpoint is {good}")
    found, damaged = checkpoints.latest_intact(tmp_path)
    assert found.path == good
    assert [str(bad / name) in str(error) for error in damaged] == [True]


def _nest(path):
    path.write_text("[" * 200_000)


def _not_utf8(path):
    path.write_bytes(path.read_bytes().replace(b"version", b"versi\xffn"))


def _other_hash(path):
    path.write_text(path.read_text().replace('"sha256": "', '"sha256": "0', 1))


def _other_key(path):
    path.write_text(path.read_text().replace('"size"', '"sixe"', 1))


@pytest.mark.parametrize("harm", [_cut, _empty, os.unlink, _nest, _not_utf8, _other_hash, _other_key])
def test_a_damaged_manifest_is_found_too(tmp_path, harm):
    bad, _, _ = _save(tmp_path, 9)
    (bad / "manifest.json").write_text((bad / "manifest.json").read_text().rstrip())
    harm(bad / "manifest.json")
    with pytest.raises(DamagedError, match=r"manifest\.json.*no other checkpoint is intact"):
        checkpoints.load(bad)
    found, damaged = checkpoints.latest_intact(tmp_path)
    assert found is None
    assert len(damaged) == 1


def test_a_device_in_the_place_of_a_manifest_is_not_read(tmp_path):
    """It may have no end."""
    bad, _, _ = _save(tmp_path, 9)
    (bad / "manifest.json").unlink()
    (bad / "manifest.json").symlink_to(os.devnull)
    with pytest.raises(DamagedError, match=r"manifest\.json: must be a regular file or a pipe"):
        checkpoints.load(bad)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["weights", "optimizer"])
def test_weights_that_diverged_are_not_saved_and_earlier_checkpoints_stay(tmp_path, value, part):
    path, model, optimizer = _save(tmp_path)
    before = _content(path)
    parameter = next(model.parameters())
    with torch.no_grad():
        tensor = parameter if part == "weights" else optimizer.state[parameter]["exp_avg"]
        tensor.view(-1)[-1] = value
    name = "NaN" if math.isnan(value) else "infinity"
    with pytest.raises(WorkError, match=rf"update 6: training diverged: .* contains {name}; .*learning rate"):
        checkpoints.save(tmp_path, model, optimizer, TrainingState(6))
    assert (_content(path), checkpoints.paths(tmp_path)) == (before, [path])


def test_a_manifest_without_its_own_hash_is_damaged(tmp_path):
    path, _, _ = _save(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match=r"manifest\.json: .*sha256: missing"):
        checkpoints.load(path)


def test_the_message_names_the_difference(tmp_path):
    path, _, _ = _save(tmp_path)
    size = (path / "state.json").stat().st_size
    _cut(path / "state.json")
    with pytest.raises(DamagedError, match=f"expected size {size}, got {size - 1}"):
        checkpoints.load(path)


def test_a_later_format_and_a_missing_checkpoint(tmp_path):
    path, _, _ = _save(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["version"] == 2
    (path / "manifest.json").write_text(json.dumps({**manifest, "version": 3}))
    with pytest.raises(DataError, match=r"manifest\.json: expected format version 2, got 3"):
        checkpoints.load(path)
    with pytest.raises(DataError, match="no such checkpoint"):
        checkpoints.load(tmp_path / "checkpoints" / "step-00000001")
    assert checkpoints.latest_intact(tmp_path / "elsewhere") == (None, [])


def test_a_name_that_is_no_number_is_refused(tmp_path):
    path, _, _ = _save(tmp_path)
    path.rename(path.with_name("step-old"))
    with pytest.raises(DataError, match="step-old: expected a folder named step-<update>"):
        checkpoints.latest_intact(tmp_path)


def test_checkpoints_are_ordered_by_number(tmp_path):
    for update in (5, 123456789, 20):
        _save(tmp_path, update)
    assert [int(p.name[5:]) for p in checkpoints.paths(tmp_path)] == [5, 20, 123456789]


def test_saving_the_same_update_again_replaces_it(tmp_path):
    _save(tmp_path, 5)
    path, _, _ = _save(tmp_path, 5, tokens=99)
    assert checkpoints.load(path).state.tokens == 99
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("point", ["after-sync", "while-replacing", "after-rename"])
def test_killed_while_replacing_leaves_the_old_or_the_new_one(tmp_path, point):
    _save(tmp_path, 5)
    process = in_process(_save, tmp_path, environment={"HEEDFUL_FAULT": point})
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    checkpoints.clean(tmp_path)
    found, damaged = checkpoints.latest_intact(tmp_path)
    assert (found.state.update, damaged) == (5, [])
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000005"]


def test_prune_keeps_the_newest_and_the_best_and_drops_a_given_up_future(tmp_path):
    for update in (1, 2, 3, 4, 5, 8, 9):
        _save(tmp_path, update)
    checkpoints.prune(tmp_path, current=5, n_last=2, best=[2, 9])
    assert [int(p.name[5:]) for p in checkpoints.paths(tmp_path)] == [2, 4, 5]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


def test_prune_removes_past_checkpoints_out_of_turn(tmp_path):
    for update in (3, 5, 6):
        _save(tmp_path, update)
    checkpoints.prune(tmp_path, current=5, n_last=2, best=[], is_regular=lambda update: update % 3 == 0)
    assert [int(p.name[5:]) for p in checkpoints.paths(tmp_path)] == [3, 5]
    _save(tmp_path, 6)
    checkpoints.prune(tmp_path, current=6, n_last=2, best=[], is_regular=lambda update: update % 3 == 0)
    assert [int(p.name[5:]) for p in checkpoints.paths(tmp_path)] == [3, 6]


def test_clean_removes_unfinished_folders_and_restores_replaced_ones(tmp_path):
    a, _, _ = _save(tmp_path, 5)
    b, _, _ = _save(tmp_path, 9)
    shutil.copytree(a, a.with_name(".step-00000007.tmp"))
    shutil.copytree(a, a.with_name(".step-00000005.replaced"))
    b.rename(b.with_name(".step-00000009.replaced"))
    checkpoints.clean(tmp_path)
    assert sorted(p.name for p in a.parent.iterdir()) == [a.name, b.name]
    assert checkpoints.load(b).state.update == 9


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_disk_that_is_full_at_any_sync_leaves_earlier_checkpoints_alone(tmp_path, monkeypatch, failing):
    """Four files, the folder, then the parent, at which the new one is complete already."""
    good, _, _ = _save(tmp_path, 5)
    before = _content(good)
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match=r"step-00000009.*No space left on device"):
        _save(tmp_path, 9)
    assert len(calls) == failing
    assert _content(good) == before
    expected = [good.name, "step-00000009"] if failing == 6 else [good.name]
    assert sorted(p.name for p in good.parent.iterdir()) == expected


@pytest.mark.parametrize("limit", [100, 1000])
def test_a_write_that_really_fails(tmp_path, limit):
    """A limit on the size of files makes the writes of model or optimizer fail half way."""
    good, _, _ = _save(tmp_path, 5)
    before = _content(good)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(WorkError, match="step-00000009: the checkpoint cannot be written"):
            _save(tmp_path, 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _content(good) == before
    assert [p.name for p in good.parent.iterdir()] == [good.name]


def test_everything_is_synced_before_the_rename_and_the_parent_after(tmp_path, monkeypatch):
    order = []
    real_sync, real_rename = checkpoints.sync, type(tmp_path).rename
    monkeypatch.setattr(checkpoints, "sync", lambda p: (order.append(p.name), real_sync(p)))
    monkeypatch.setattr(
        type(tmp_path), "rename", lambda self, to: (order.append("rename"), real_rename(self, to))[1]
    )
    _save(tmp_path, 5)
    assert sorted(order[:4]) == FILES
    assert order[4:] == [".step-00000005.tmp", "rename", "checkpoints"]
