"""Translation peers: ``generate`` of transformers, and CTranslate2 with the same weights.

Every contender generates a fixed number of tokens: the end token is suppressed.
"""

import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from contenders import ours
from contenders.pairs import marian
from harness.batches import END, PAD, START, padded, sources
from harness.contender import Contender, Work
from harness.flops import Shape


@dataclass(frozen=True)
class Job:
    """A translation workload.

    Args:
        shape: sizes of the model, and lengths of the sources.
        sentences: batch size.
        new_tokens: generated tokens per sentence.
        beam: beam size; 1 is greedy.
    """

    shape: Shape
    sentences: int
    new_tokens: int
    beam: int


def contenders(job: Job, device: str) -> list[Contender]:
    """Return heedful and the peers with every setting."""
    return [*ours.decoding(job, device), *_transformers(job, device), *_ctranslate2(job, device)]


@lru_cache(maxsize=1)
def _weights(shape: Shape) -> Any:
    """Return one model, shared by both peers."""
    torch.manual_seed(0)
    return marian(shape, dropout=0.0, positions=2048).eval()


def _transformers(job: Job, device: str) -> list[Contender]:
    settings: dict[str, Callable[[Any], Any]] = {"fp32": deepcopy, "bf16": lambda m: deepcopy(m).bfloat16()}
    if device == "cpu":
        settings["int8 dynamic"] = _quantised
    return [
        Contender("transformers Marian", name, partial(_generate, change, job, device), bf16=name == "bf16")
        for name, change in settings.items()
    ]


def _generate(change: Callable[[Any], Any], job: Job, device: str) -> Work:
    model = change(_weights(job.shape)).to(device)
    ids = padded(sources(job.shape, job.sentences)).to(device)
    mask = ids != PAD

    @torch.no_grad()
    def work(number: int) -> None:
        out = model.generate(
            input_ids=ids, attention_mask=mask, num_beams=job.beam, do_sample=False,
            min_new_tokens=job.new_tokens, max_new_tokens=job.new_tokens,
        )  # fmt: skip
        assert out.shape == (job.sentences, job.new_tokens + 1), out.shape

    return work


def _quantised(model: Any) -> Any:
    """Quantise linear layers dynamically: int8 weights, inputs quantised at run time."""
    import warnings

    torch.backends.quantized.engine = "x86"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)


def _ctranslate2(job: Job, device: str) -> list[Contender]:
    import ctranslate2

    types = ctranslate2.get_supported_compute_types(device)
    # int8 stands for int8 with the rest in the type that suits the machine best.
    compute_types = [t for t in ("float32", "bfloat16", "int8", "int8_bfloat16") if t in types]
    threads = sorted({1, torch.get_num_threads()}) if device == "cpu" else [1]
    return [
        Contender("CTranslate2", f"{t}, {n} thread{'s' * (n > 1)}", partial(_translate, t, n, job, device))
        for t in compute_types
        for n in threads
    ]


def _translate(compute_type: str, threads: int, job: Job, device: str) -> Work:
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        _convert(_weights(job.shape), folder)
        translator = ctranslate2.Translator(
            folder, device=device, compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
    rows = [[f"w{i}" for i in row[:-1]] + ["</s>"] for row in sources(job.shape, job.sentences)]

    def work(number: int) -> None:
        results = translator.translate_batch(
            rows, beam_size=job.beam, min_decoding_length=job.new_tokens, max_decoding_length=job.new_tokens
        )
        assert all(len(r.hypotheses[0]) == job.new_tokens for r in results)

    return work


def _convert(model: Any, folder: str) -> None:
    """Write the model in the format of CTranslate2."""
    from ctranslate2.converters.transformers import BartLoader

    model = deepcopy(model)
    model.config.normalize_before = model.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    names = {PAD: "<unk>", START: "<s>", END: "</s>"}
    vocabulary = [names.get(i, f"w{i}") for i in range(model.config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(folder)
