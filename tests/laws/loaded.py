"""Run as a script with a folder: for each configuration and its weights there, write what the model says."""

import sys
from pathlib import Path

import torch
from cases import SOURCES, TARGETS, V_SOURCE, V_TARGET
from pydantic import TypeAdapter
from safetensors.torch import save_file

from heedful.models.registry import ModelConfig, build_model
from heedful.nn.layout import Tokens
from heedful.training.weights import load_weights


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    outputs = {}
    for path in sorted(folder.glob("*.json")):
        config = TypeAdapter(ModelConfig).validate_json(path.read_text(encoding="utf-8"))
        torch.manual_seed(99)
        model = build_model(config, V_TARGET if config.tie == "three-way" else V_SOURCE, V_TARGET).eval()
        load_weights(path.with_suffix(".safetensors"), model)
        with torch.no_grad():
            hidden = model(Tokens.of(TARGETS), Tokens.of(SOURCES))
            outputs[path.stem] = model.heads["token"](hidden)
    save_file(outputs, folder / "outputs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
