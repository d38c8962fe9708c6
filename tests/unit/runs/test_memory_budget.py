"""What every training holds is counted as training makes it, and refused only where it is too much."""

import pytest
import torch

from heedful.config import merged
from heedful.errors import RequestError
from heedful.runs import memory_budget
from heedful.runs.building import on_device
from heedful.runs.memory_budget import fewest_sizes, least_memory, require_memory
from heedful.tasks.registry import task_for
from heedful.tasks.translation import TranslationRecipe
from heedful.training.optimizers import build_optimizer, state_tensors

CPU = torch.device("cpu")


def recipe(**sections):
    files = {"kind": "files", "columns": {"source": "text", "target": "text"}}
    model = {
        "kind": "transformer",
        "d_model": 6,
        "n_layers": 1,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 2},
            "channels": {"kind": "feed-forward", "d_ff": 10},
        },
    }
    return TranslationRecipe.model_validate(
        {
            "task": {"kind": "translation"},
            "data": {"train": files, "valid": files},
            "model": merged(model, sections.pop("model", {})),
            "schedule": {"kind": "constant"},
            "training": {"max_updates": 2},
            "tokenizer": {"subwords": {"kind": "word"}},
            **sections,
        }
    )


def held(settings, model):
    """Bytes of the tensors that stand after an update, counted one by one."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    optimizer = build_optimizer(settings.optimizer, model)
    optimizer.step()
    states = [tensor for tensor in state_tensors(optimizer, model).values() if tensor.dim()]
    tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None), *states]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


OPTIMIZERS = [
    {"kind": "adam"},
    {"kind": "adamw"},
    {"kind": "sgd"},
    {"kind": "sgd", "momentum": 0.9},
    {"kind": "muon"},
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_what_training_holds_is_counted(optimizer):
    settings = recipe(optimizer=optimizer)
    model = task_for(settings).build_model(fewest_sizes(settings))
    next(model.parameters()).requires_grad_(False)
    counted = least_memory(settings, model)
    true = held(settings, model)
    assert counted < true if optimizer["kind"] == "muon" else counted == true


def test_a_model_is_refused_where_the_machine_has_one_byte_too_few(monkeypatch):
    settings = recipe()
    sizes = fewest_sizes(settings)
    needed = least_memory(settings, on_device("meta", task_for(settings).build_model, sizes))
    for there in (needed, None):
        monkeypatch.setattr(memory_budget, "machine_memory", lambda there=there: there)
        require_memory(settings, sizes, CPU)
    monkeypatch.setattr(memory_budget, "machine_memory", lambda: needed - 1)
    with pytest.raises(
        RequestError, match=r"at least 0\.0 GiB, and this machine has 0\.0 GiB; lower its sizes"
    ):
        require_memory(settings, sizes, CPU)


def test_a_vocabulary_that_the_text_may_not_fill_is_no_reason_to_refuse_before_work():
    settings = recipe(tokenizer={"subwords": {"kind": "word", "vocab_size": 10**7}})
    require_memory(settings, fewest_sizes(settings), CPU)
    with pytest.raises(RequestError, match="does not fit in memory"):
        require_memory(settings, (10**12, 10**12), CPU)


def test_sizes_that_cannot_even_be_counted_are_too_large():
    settings = recipe()
    huge = settings.model.model_copy(update={"d_model": 10**12})  # beyond what a recipe accepts
    settings = settings.model_copy(update={"model": huge})
    with pytest.raises(RequestError, match=r"^model: does not fit in memory"):
        require_memory(settings, fewest_sizes(settings), CPU)
