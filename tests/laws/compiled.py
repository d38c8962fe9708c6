"""Run as a script with names of models and backends: a compiled model must equal itself, gradients too."""

import sys

import torch
from cases import SOURCES, TARGETS, model_of, same, source_of

from heedful.nn.layout import Tokens


def run(call, model):
    hidden = call(Tokens.of(TARGETS), source_of(model, SOURCES))
    parameters = [p for p in model.parameters() if p is not model.heads["token"].weight]
    return hidden, torch.autograd.grad(hidden.square().mean(), parameters, allow_unused=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, backend in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        torch.compiler.reset()
        model = model_of(name)
        compiled, eager = run(torch.compile(model, backend=backend), model), run(model, model)
        same(compiled[0], eager[0])
        for ours, theirs in zip(compiled[1], eager[1], strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                same(ours, theirs)
