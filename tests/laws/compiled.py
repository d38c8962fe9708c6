"""Run as a script with names of models and backends: a compiled model must equal itself, gradients too.

A backend with ``blocks:`` before it compiles the blocks of the model alone, as training does; then other
lengths must be served by the same graphs.
"""

import sys

import torch
from cases import SOURCES, TARGETS, model_of, same, source_of
from torch._dynamo.utils import counters

from heedful.nn.layout import Tokens
from heedful.nn.taps import recording, taps, watching
from heedful.objectives.cross_entropy import NextToken
from heedful.training.step import Step


def run(call, model, sources=SOURCES, targets=TARGETS):
    inputs, source = Tokens.of(targets), source_of(model, sources)
    if any(getattr(part, "compiled", None) for part in model.modules()):
        for tokens in (inputs, source):
            if tokens is not None:
                tokens.layout.prepare(ragged=True)
    hidden = call(inputs, source)
    parameters = [p for p in model.parameters() if p is not model.heads["token"].weight]
    return hidden, torch.autograd.grad(hidden.square().mean(), parameters, allow_unused=True)


def agree(ours, theirs):
    same(ours[0], theirs[0])
    for a, b in zip(ours[1], theirs[1], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            same(a, b)


def blocks(model, backend):
    """Compile as training does; every block kind is one graph, whatever the lengths."""
    model.train()
    other = (
        [ids[: 2 + i] for i, ids in enumerate(SOURCES)],
        [ids[: 3 + i % 2] for i, ids in enumerate(TARGETS)],
    )
    eager = run(model, model), run(model, model, *other)
    Step(model, NextToken()).compile(backend)
    counters.clear()
    agree(run(model, model), eager[0])
    made = counters["stats"]["unique_graphs"]
    assert made > 0
    agree(run(model, model, *other), eager[1])
    assert counters["stats"]["unique_graphs"] == made
    # Whoever is attached is told, by the one block as it is; nothing is compiled for it, or forgotten.
    name = next(name for name in taps(model) if "blocks.0" in name and name.endswith("weights"))
    for attach in (watching, recording):
        with attach(model, {name: None}) as seen:
            agree(run(model, model), eager[0])
            agree(run(model, model, *other), eager[1])
        assert len(seen[name]) == 2
    agree(run(model, model), eager[0])
    assert counters["stats"]["unique_graphs"] == made


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, backend in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        torch.compiler.reset()
        model = model_of(name)
        print(name, backend, flush=True)
        if backend.startswith("blocks:"):
            blocks(model, backend.removeprefix("blocks:"))
        else:
            agree(run(torch.compile(model, backend=backend), model), run(model, model))
