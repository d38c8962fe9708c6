"""What the formats of encoders, of texts and of pictures, have in common."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.recipes.trees import Mark, Tree
from heedful.runs.kinds import kind_of
from heedful.runs.reading import recipe_from

_NOT_TRAINED = "It was not trained on these data: whoever trains such a model anew puts their own here."

# Devlin et al. 2019, appendix A.3: Adam, 2e-5 to 5e-5 for fine-tuning.
_CAREFUL = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 3e-5, "warmup": 100},
    "training": {"max_updates": 1000},
}

# What transformers takes where a key is missing, and what heedful calls it.
_SIZES = {
    "hidden_size": ("d_model", 768),
    "num_hidden_layers": ("n_layers", 12),
    "num_attention_heads": ("n_heads", 12),
    "intermediate_size": ("d_ff", 3072),
}


def sizes_of(settings: Settings) -> dict[str, int]:
    """The sizes of a stack, as heedful's configurations name them.

    Raises:
        RequestError: a number is none, or the heads do not share the width.
    """
    found = {ours: settings.whole(key, usual) for key, (ours, usual) in _SIZES.items()}
    if found["d_model"] % found["n_heads"]:
        raise settings.wrong(
            "num_attention_heads", f"{found['n_heads']} does not divide hidden_size={found['d_model']}"
        )
    return found


def written_sizes(config: Any) -> dict[str, int]:
    """`sizes_of` in the other direction."""
    return {
        **{key: getattr(config, ours) for key, (ours, _) in _SIZES.items()},
        "intermediate_size": config.d_ff or 4 * config.d_model,
    }


def epsilon_of(settings: Settings) -> float:
    """The ε of the norms.

    Raises:
        RequestError: it is none.
    """
    epsilon = settings.get("layer_norm_eps", (int, float), 1e-12)
    if not 0 < epsilon < 1:
        raise settings.wrong("layer_norm_eps", f"expected a number between 0 and 1, found {epsilon}")
    return float(epsilon)


def labels_of(settings: Settings) -> tuple[str, ...]:
    """The labels in the order of their numbers; transformers knows two where none are told.

    Raises:
        RequestError: they are not labels, or it is another task that has them.
    """
    kind = settings.get("problem_type", str)
    if kind in ("regression", "multi_label_classification"):
        raise settings.wrong("problem_type", f"{kind!r}: only classifiers of one label an input are imported")
    told = settings.get("id2label", dict, {"0": "LABEL_0", "1": "LABEL_1"})
    labels = [told.get(str(number)) for number in range(len(told))]
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < max(2, len(labels)):
        raise settings.wrong(
            "id2label", f"{told!r}: expected two or more different labels, numbered from 0 on"
        )
    return tuple(map(str, labels))


def written_labels(labels: Collection[str]) -> dict[str, Any]:
    """What config.json says of the labels."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "problem_type": "single_label_classification",
    }


def fresh(
    plain: dict[str, Any], checkpoint: Checkpoint, held: Mapping[str, Tensor], sizes: Sequence[int]
) -> nn.Module:
    """The model of a recipe, with its heads; what the source has not begins alike every time."""
    recipe = recipe_from(Tree.of(plain, Mark(str(checkpoint.path))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return checkpoint.model_of(held, lambda: kind_of(recipe).model(recipe, sizes))


def recipe_of(
    what: str, checkpoint: Checkpoint, task: dict[str, Any], data: dict[str, Any], **sections: Any
) -> dict[str, Any]:
    """A recipe that says what the model is, and leaves room for a user's own data; plain.

    Args:
        what: is imported.
        checkpoint: from where.
        task: its section.
        data: the section of one data set, in whose texts ``{}`` stands for its name.
        sections: others.
    """
    return {
        "description": f"{what}, imported from the folder {checkpoint.path.resolve().name}. {_NOT_TRAINED}",
        "task": task,
        "data": {
            part: {key: x.format(part) if isinstance(x, str) else x for key, x in data.items()}
            for part in ("train", "valid")
        },
        **sections,
        **_CAREFUL,
    }
