"""Functions shared by the formats of text and vision encoders."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import recipe_from
from heedful.tasks.registry import task_for
from heedful.typing import JsonObject

_NOT_TRAINED = "It was not trained on these data; replace them with your own to train it further."

# Devlin et al. 2019, appendix A.3: Adam, 2e-5 to 5e-5 for fine-tuning.
_FINE_TUNING = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 3e-5, "warmup": 100},
    "training": {"max_updates": 1000},
}


def stack_of(settings: Settings, dropout: float) -> JsonObject:
    """Read the sizes and settings of a stack, as a tree of heedful's keys; missing ones as in transformers.

    Args:
        settings: content of config.json.
        dropout: default of its dropout rates of attention weights.

    Raises:
        RequestError: a value is invalid, or the number of heads does not divide the width.
    """
    d_model, n_heads = settings.whole("hidden_size", 768), settings.whole("num_attention_heads", 12)
    if d_model % n_heads:
        raise settings.wrong("num_attention_heads", f"{n_heads} does not divide hidden_size={d_model}")
    rate = settings.rate("attention_probs_dropout_prob", dropout)
    activation = settings.choice("hidden_act", ACTIVATIONS, "gelu")
    d_ff = settings.whole("intermediate_size", 3072)
    return {
        "d_model": d_model,
        "n_layers": settings.whole("num_hidden_layers", 12),
        "layer": {
            "mixer": {"kind": "attention", "n_heads": n_heads, "dropout": rate},
            "channels": {"kind": "feed-forward", "d_ff": d_ff, "activation": activation},
            "norm": {"kind": "layer", "eps": epsilon_of(settings)},
        },
    }


def written_stack(config: Any) -> JsonObject:
    """Return the keys of config.json of a stack; the inverse of `stack_of`."""
    layer = config.layer
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": layer.mixer.n_heads,
        "intermediate_size": layer.channels.d_ff or 4 * config.d_model,
        "hidden_act": WRITTEN[layer.channels.activation],
        "layer_norm_eps": layer.norm.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": layer.mixer.dropout,
    }


def epsilon_of(settings: Settings) -> float:
    """Read the ε of the norms.

    Raises:
        RequestError: it is not between 0 and 1.
    """
    epsilon = settings.get("layer_norm_eps", (int, float), 1e-12)
    if not 0 < epsilon < 1:
        raise settings.wrong("layer_norm_eps", f"must be between 0 and 1, got {epsilon}")
    return float(epsilon)


def labels_of(settings: Settings) -> tuple[str, ...]:
    """Read the labels in the order of their indices; like transformers, default to two labels.

    Raises:
        RequestError: they are invalid, or the task is not single-label classification.
    """
    kind = settings.get("problem_type", str)
    if kind in ("regression", "multi_label_classification"):
        raise settings.wrong("problem_type", f"{kind!r}: not supported, only single-label classification is")
    id2label = settings.get("id2label", dict, {"0": "LABEL_0", "1": "LABEL_1"})
    labels = [id2label.get(str(number)) for number in range(len(id2label))]
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < max(2, len(labels)):
        raise settings.wrong(
            "id2label", f"expected at least two different labels numbered from 0, got {id2label!r}"
        )
    return tuple(map(str, labels))


def written_labels(labels: Collection[str]) -> JsonObject:
    """Return the keys of config.json for the labels."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "problem_type": "single_label_classification",
    }


def fresh(
    plain: JsonObject, checkpoint: Checkpoint, held: Mapping[str, Tensor], sizes: Sequence[int]
) -> nn.Module:
    """Build the model of a recipe with its heads, initialised with a fixed seed."""
    recipe = recipe_from(Tree.of(plain, Mark(str(checkpoint.path))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return checkpoint.model_of(held, lambda: task_for(recipe).build_model(sizes))


def recipe_of(
    what: str, checkpoint: Checkpoint, task: JsonObject, data: JsonObject, **sections: Any
) -> JsonObject:
    """Return a recipe (as plain data) for an imported model, with placeholders for the user's data.

    Args:
        what: description of the model.
        checkpoint: source folder.
        task: section ``task``.
        data: section of one data set, with ``{}`` for its name in strings.
        sections: other sections.
    """
    return {
        "description": f"{what}, imported from the folder {checkpoint.path.resolve().name}. {_NOT_TRAINED}",
        "task": task,
        "data": {
            part: {key: x.format(part) if isinstance(x, str) else x for key, x in data.items()}
            for part in ("train", "valid")
        },
        **sections,
        **_FINE_TUNING,
    }
