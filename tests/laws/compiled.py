"""Run as a script: is told models and backends, and says whether each equals itself compiled, gradients too.

A line in, ``["name", "backend"]``, is answered by one out: a text that says what is wrong, or an empty one.
Blocks alone are compiled, as training does, and the same graphs must serve other lengths; with ``whole``
before the backend, it is the model; with ``sampled``, it is an update with scheduled sampling. Models with
equal blocks share their graphs.
"""

import json
import os
import sys
import traceback

import torch
from cases import (
    LABELLED,
    MODELS,
    SOURCES,
    TARGETS,
    batch_for,
    labelled_batch,
    labelled_model,
    model_of,
    same,
)
from torch._dynamo import config
from torch._dynamo.utils import counters

from heedful.nn.dropout import Dropout
from heedful.nn.taps import capture, recording, taps
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.scheduled_sampling import LinearDecay, ScheduledSampling


def examples(name, model):
    """Two batches with other lengths, or, of images, with other numbers of them."""
    if name in LABELLED:
        return labelled_batch(name), labelled_batch(name, [2, 1, 3])
    shorter = (
        [ids[: 2 + i] for i, ids in enumerate(SOURCES)],
        [ids[: 3 + i % 2] for i, ids in enumerate(TARGETS)],
    )
    return batch_for(model, SOURCES, TARGETS), batch_for(model, *shorter)


def run(step, batch, call=None):
    """Hidden states, and the gradients of all parameters that they depend on."""
    if step.compiled:
        batch.prepare()
    torch.manual_seed(5)  # for dropout
    hidden = (step.model if call is None else call)(batch.inputs, batch.source)
    parameters = [*step.model.parameters()]
    return hidden, torch.autograd.grad(hidden.square().mean(), parameters, allow_unused=True)


def agree(ours, theirs):
    same(ours[0], theirs[0])
    for a, b in zip(ours[1], theirs[1], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            same(a, b)


def with_dropout(model):
    """As it is trained; what is dropped follows from the seed, compiled or not."""
    for part in model.modules():
        if isinstance(part, Dropout):
            part.p = 0.25
    return model.train()


def blocks(name, model, backend):
    """Compile as training does; every kind of block is one graph, whatever the lengths."""
    step = ModelWithLoss(with_dropout(model), NextToken())
    batch, other = examples(name, model)
    eager = run(step, batch), run(step, other)
    step.compile(backend)
    if hasattr(model, "encoder") and name != "transformer":
        model.encoder.compiled = None  # a decoder's blocks have all that an encoder's have
    counters.clear()
    agree(run(step, batch), eager[0])
    assert not counters["graph_break"], dict(counters["graph_break"])
    # Whoever is attached is told, by the one block as it is; nothing is compiled for it, or forgotten.
    names = [tap for tap in taps(model) if "blocks.0" in tap]
    name = next((tap for tap in names if tap.endswith("weights")), names[0])
    with torch.compiler.set_stance("fail_on_recompile"):
        agree(run(step, other), eager[1])
        for attach in (capture, recording):
            with attach(model, {name: None}) as seen:
                agree(run(step, batch), eager[0])
                agree(run(step, other), eager[1])
            assert len(seen[name]) == 2
        agree(run(step, batch), eager[0])


def updated(step, batch):
    """The loss of an update that reads its own predictions, and its gradients."""
    torch.manual_seed(5)  # for dropout
    loss, _ = step(batch, step.counts(batch), 1)
    return loss, torch.autograd.grad(loss, [*step.model.parameters()], allow_unused=True)


def sampled(model, backend):
    """Compile as training does: the pass that predicts is compiled too, without gradients."""
    sampling = ScheduledSampling(LinearDecay(offset=0.0, slope=0.0), 1)
    step, batch = ModelWithLoss(model.train(), NextToken(), sampling=sampling), examples("", model)[0]
    eager = updated(step, batch)
    step.compile(backend)
    agree(updated(step, batch), eager)


def compare(name, backend):
    model = labelled_model(name) if name in LABELLED else model_of(name)
    if backend.startswith("sampled "):
        sampled(model, backend.removeprefix("sampled "))
    elif not backend.startswith("whole "):
        blocks(name, model, backend)
    else:
        step, (batch, _) = ModelWithLoss(model, NextToken()), examples(name, model)
        call = torch.compile(model, backend=backend.removeprefix("whole "))
        agree(run(step, batch, call), run(step, batch))


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Of so small a model, lengths are widths by chance, which the compiler would take for one number.
    torch.fx.experimental._config.use_duck_shape = False
    config.recompile_limit = config.accumulated_recompile_limit = 10 * len({**MODELS, **LABELLED})
    config.fail_on_recompile_limit_hit = True
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed is no answer
    for line in sys.stdin:
        try:
            compare(*json.loads(line))
            wrong = ""
        except Exception:
            wrong = traceback.format_exc()
        print(json.dumps(wrong), file=answers, flush=True)
