"""Run with a folder and a number of threads: for each configuration and its weights, write the output."""

import sys
from pathlib import Path

import torch
from cases import SOURCES, TARGETS, source_of, vocabularies
from pydantic import TypeAdapter
from safetensors.torch import save_file

from heedful.artifacts.weights import load_weights
from heedful.models.registry import ModelConfig, build_model
from heedful.nn.layout import Tokens


def main(folder: Path, n_threads: int) -> None:
    torch.set_num_threads(n_threads)
    outputs = {}
    for path in sorted(folder.glob("*.json")):
        config = TypeAdapter(ModelConfig).validate_json(path.read_text(encoding="utf-8"))
        torch.manual_seed(99)
        model = build_model(config, *vocabularies(config)).eval()
        load_weights(path.with_suffix(".safetensors"), model)
        with torch.no_grad():
            hidden = model(Tokens.of(TARGETS), source_of(model, SOURCES))
            outputs[path.stem] = model.heads["token"](hidden)
    save_file(outputs, folder / "outputs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
