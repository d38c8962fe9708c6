"""heedful's contenders; only this file and `ours_characters` use its training and decoding interface."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from harness.batches import END, START, pairs, sources, texts
from harness.contender import Contender, Work
from harness.flops import Shape


def prepare() -> None:
    """Set up the process as heedful does; called for every contender before the first tensor is created."""
    from heedful.memory import keep_freed_memory

    keep_freed_memory()


def training_pairs(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return heedful's training step on sentence pairs, with each setting."""
    return _settings(partial(_train_pairs, shape, dropout, rounds, device))


def training_texts(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return heedful's training step on windows of text, with each setting."""
    return _settings(partial(_train_texts, shape, dropout, rounds, device))


def _settings(train: Callable[[str, bool], Work]) -> list[Contender]:
    return [
        Contender(
            "heedful",
            precision + ", compiled" * compiled,
            partial(train, precision, compiled),
            compiled,
            bf16=precision == "bf16",
        )
        for precision in ("fp32", "bf16")
        for compiled in (False, True)
    ]


def decoding(job: Any, device: str) -> list[Contender]:
    """Return heedful's decoding as used for prediction, in each precision of the engine if there is one."""
    settings = ("fp32", "bf16", "int8") if find_spec("heedful.engine") and device == "cpu" else ("plain",)
    return [Contender("heedful", setting, partial(_decode, setting, job, device)) for setting in settings]


def _decode(setting: str, job: Any, device: str) -> Work:
    from heedful.decoding.config import BeamConfig, GreedyConfig, decode
    from heedful.decoding.protocol import Request
    from heedful.nn.layout import Tokens
    from heedful.tasks.generation.generator import Generator

    torch.manual_seed(0)
    model = transformer(job.shape).to(device).eval()
    if setting != "plain":
        from heedful.engine.choosing import Inference

        inference = Inference(model, setting)
        model = inference.ready()
    source = Tokens.of(sources(job.shape, job.sentences), device=device)
    start = Tokens.of([[START]] * job.sentences, device=device)
    config = GreedyConfig() if job.beam == 1 else BeamConfig(beam=job.beam)

    @torch.inference_mode()
    def work(number: int) -> None:
        generator = Generator(model)
        request = Request(
            generator.prefill(source, start), generator.step, end=END, forbidden=(END,),
            max_lengths=[job.new_tokens] * job.sentences,
        )  # fmt: skip
        hypotheses = decode(config, request)
        assert all(len(beams[0].ids) == job.new_tokens for beams in hypotheses)

    return work


def transformer(shape: Shape, dropout: float = 0.0) -> Any:
    """Return a freshly initialised encoder-decoder."""
    from heedful.models.registry import build_model
    from heedful.models.transformer import TransformerConfig

    config = TransformerConfig(
        d_model=shape.d_model,
        n_layers=shape.n_layers,
        dropout=dropout,
        layer={"mixer": {"n_heads": shape.n_heads}, "channels": {"d_ff": shape.d_ff}},
    )
    return build_model(config, shape.vocab, shape.vocab)


def _train_pairs(
    shape: Shape, dropout: float, rounds: int, device: str, precision: str, compiled: bool
) -> Work:
    from heedful.data.batch import Batch

    # Batch adds the special tokens itself.
    batches = [
        Batch.teacher_forced([s[:-1] for s in b.sources], [t[:-1] for t in b.targets], start=START, end=END)
        for b in pairs(shape, rounds)
    ]
    return _train(transformer(shape, dropout), batches, shape.smoothing, device, precision, compiled)


def _train_texts(
    shape: Shape, dropout: float, rounds: int, device: str, precision: str, compiled: bool
) -> Work:
    from heedful.data.batch import Batch
    from heedful.models.language_model import LanguageModelConfig, build

    config = LanguageModelConfig(
        d_model=shape.d_model,
        n_layers=shape.n_layers,
        context=shape.length,
        dropout=dropout,
        layer={"mixer": {"n_heads": shape.n_heads, "dropout": dropout}, "channels": {"d_ff": shape.d_ff}},
    )
    batches = [Batch.windows(rows.numpy()) for rows in texts(shape, rounds)]
    return _train(build(config, shape.vocab), batches, shape.smoothing, device, precision, compiled)


def _train(
    model: Any, batches: list[Any], smoothing: float, device: str, precision: Any, compiled: bool
) -> Work:
    from heedful.objectives.cross_entropy import NextToken
    from heedful.training.model_with_loss import ModelWithLoss
    from heedful.training.optimizers import AdamWConfig, build_optimizer, set_lr

    torch.manual_seed(0)
    step = ModelWithLoss(model.to(device).train(), NextToken(smoothing), precision)
    if compiled:
        step.compile()
    optimizer = build_optimizer(AdamWConfig(beta2=0.98, weight_decay=0.01), model)
    set_lr(optimizer, 1e-4)
    batches = [batch.to(device) for batch in batches]

    def work(number: int) -> None:
        batch = batches[number % len(batches)]
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return work
