"""Folders as transformers writes them, made without it: a tiny GPT-2 with a tokenizer of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from heedful.interop.gpt2 import table
from heedful.interop.names import Numbering, write_weights
from heedful.models.language_model import LanguageModelConfig, build

END = "<|endoftext|>"
TEXT = ["the cat sat on the mat, and it's the cat's mat.", "  We'll see 1234 dogs!\n\nÜber façade, நாய் 🐈"]

CONFIG = {
    "model_type": "gpt2",
    "n_embd": 22,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 13,
    "n_inner": 31,
    "layer_norm_epsilon": 1e-3,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def trained(end: str = "last", vocab_size: int = 311) -> Library:
    """A byte-level tokenizer as GPT-2's, with its end token first, as trainers put it, or last."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - (end == "last"),
        special_tokens=[END] if end == "first" else [],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(TEXT, trainer)
    library.add_special_tokens([END])
    return library


def random_model(config: dict[str, Any], vocab_size: int) -> Any:
    """A model with weights far from zero."""
    torch.manual_seed(1)
    model = build(
        LanguageModelConfig(
            d_model=config["n_embd"],
            n_layers=config["n_layer"],
            context=config["n_positions"],
            dropout=0.0,
            tie=config.get("tie_word_embeddings", True),
            layer={
                "mixer": {"n_heads": config["n_head"]},
                "channels": {"d_ff": config["n_inner"], "activation": "gelu-tanh"},
                "norm": {"eps": config["layer_norm_epsilon"]},
            },
        ),
        vocab_size,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def write_gpt2(folder: Path, library: Library, **changes: Any) -> Path:
    """A folder with the tokenizer and random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    n = library.get_vocab_size()
    end = library.token_to_id(END)
    config = {**CONFIG, "vocab_size": n, "eos_token_id": end, "bos_token_id": end, **changes}
    model = random_model(config, n)
    their = table(_of(config), Numbering(tuple(range(n))))
    save_file(write_weights(their, model), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    library.save(str(folder / "tokenizer.json"))
    return folder


def _of(config: dict[str, Any]) -> LanguageModelConfig:
    return LanguageModelConfig(
        d_model=config["n_embd"],
        n_layers=config["n_layer"],
        tie=config.get("tie_word_embeddings", True),
        layer={"mixer": {"n_heads": config["n_head"]}},
    )


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A folder that can be imported."""
    return write_gpt2(tmp_path / "their-gpt2", trained())


@pytest.fixture
def changed(gpt2: Path) -> Callable[..., Path]:
    """The same with other values in its configuration; None takes a key away."""

    def change(**values: Any) -> Path:
        path = gpt2 / "config.json"
        config = {**json.loads(path.read_text("utf-8")), **values}
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}), "utf-8")
        return gpt2

    return change


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Library]:
    """See `trained`."""
    return trained


@pytest.fixture(scope="session")
def make_gpt2() -> Callable[..., Path]:
    """See `write_gpt2`."""
    return write_gpt2
