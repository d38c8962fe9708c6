"""Embeddings: one vector for each input of a task, pooled from hidden states of its model.

| model | hidden states | default pooling |
|---|---|---|
| of a class, a number, or sentence embeddings | the last layer's | the model's own (``heads["pooled"]``) |
| of tags, answers or masked tokens | the last layer's | mean |
| language model, also of a translator | the last layer's | mean |
| encoder-decoder, also of a captioner | the encoder's output | mean |
| of the class of an image | the last layer's | the model's own |
| of the class of pixels | the last layer's | mean |

A masked language model that also learned to recognise the next sentence has a pooled vector, but the mean of
its hidden states represents sentences better (Reimers and Gurevych 2019, table 1). Poolings run over all
tokens that the model reads, special tokens included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.data.images import LazyImage
from heedful.errors import DataError, RequestError, nearest
from heedful.models.base import Model
from heedful.models.recurrent import RecurrentEncoderDecoder
from heedful.models.transformer import EncoderDecoder
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Ids, Tokens
from heedful.nn.patches import Images
from heedful.nn.pooling import FirstPooling, LastPooling, MaxPooling, MeanPooling
from heedful.nn.taps import capture
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.inputs.texts import (
    SourceTemplate,
    Template,
    encode_texts,
    group_by_length,
    input_note,
    truncate,
)
from heedful.tasks.prediction import BATCH_TOKENS, Progress, TaskInput, as_texts
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject

Pooling = Literal["mean", "first", "last", "max"]

POOLINGS: dict[str, type[nn.Module]] = {
    "mean": MeanPooling,
    "first": FirstPooling,
    "last": LastPooling,
    "max": MaxPooling,
}

BIDIRECTIONAL: tuple[Pooling, ...] = get_args(Pooling)

CAUSAL: tuple[Pooling, ...] = ("mean", "last", "max")
"""Poolings of language models, whose first token sees only itself."""

PATCHES: tuple[Pooling, ...] = ("mean", "max")
"""Poolings of images, whose first and last patch are in the corners."""


@dataclass(frozen=True)
class EmbeddingInputs:
    """Inputs in the form in which a model reads them, one sequence for each.

    Args:
        n_tokens: length of the sequence of each input, by its number; inputs that cannot be read are missing.
        batch: returns the sequences of the inputs with these numbers.
        has_pooling: whether the task trains ``heads["pooled"]``, which is then the default.
        poolings: the other poolings that the model supports.
        notes: what is unusual about an input, by its number.
        cut: how many tokens of an input were truncated, by its number.
        errors: why an input cannot be read, by its number.
    """

    n_tokens: Mapping[int, int]
    batch: Callable[[Sequence[int]], Tokens | Images]
    has_pooling: bool
    poolings: tuple[Pooling, ...] = BIDIRECTIONAL
    notes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    cut: Mapping[int, int] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of_texts(
        cls,
        tokenizer: Tokenizer,
        inputs: Sequence[TaskInput],
        template: Template | SourceTemplate,
        longest: int,
        *,
        has_pooling: bool = False,
        poolings: tuple[Pooling, ...] = BIDIRECTIONAL,
        keep: Literal["first", "last"] = "first",
    ) -> "EmbeddingInputs":
        """Encode texts, or texts that are read together, and truncate long ones.

        Args:
            tokenizer: of all texts.
            inputs: texts or tuples of texts.
            template: the special tokens around them.
            longest: maximum number of tokens of a sequence, including special tokens.
            has_pooling: see the class.
            poolings: see the class.
            keep: which tokens of a long text are read.
        """
        texts = [as_texts(task_input) for task_input in inputs]
        ids = [encode_texts(tokenizer, parts) for parts in texts]
        n_tokens, notes, cut = {}, {}, {}
        for i, parts in enumerate(ids):
            n_specials = template.n_specials(len(parts))
            n_tokens[i] = min(max(1, sum(map(len, parts)) + n_specials), longest)
            found, cut[i] = input_note(tokenizer, texts[i], parts, longest - n_specials)
            if found:
                notes[i] = found

        def read(parts: Sequence[Ids]) -> Sequence[Ids]:
            if keep == "last":
                return [part[-longest:] for part in parts]
            return truncate(parts, longest, template)

        def batch(numbers: Sequence[int]) -> Tokens | Images:
            return template([read(ids[i]) for i in numbers]).inputs

        return cls(n_tokens, batch, has_pooling, poolings, notes, cut)

    @classmethod
    def of_sources(
        cls, tokenizer: Tokenizer, inputs: Sequence[TaskInput], longest: int, *, is_one_text: bool
    ) -> "EmbeddingInputs":
        """Encode sources as an encoder (``x </s>``), or a language model before the target, reads them.

        Args:
            tokenizer: of the sources.
            inputs: texts.
            longest: maximum number of tokens of a source; longer ones are truncated.
            is_one_text: whether a language model reads source and target as one text, ``<s> x <sep> y``.
        """
        template = SourceTemplate((), (SPECIALS.end,))
        if is_one_text:
            template = SourceTemplate((SPECIALS.start,), (SPECIALS.separate,))
        poolings = CAUSAL if is_one_text else BIDIRECTIONAL
        return cls.of_texts(tokenizer, inputs, template, longest + template.n_specials(1), poolings=poolings)

    @classmethod
    def of_images(
        cls, reader: ImageReader, inputs: Sequence[TaskInput], n_tokens: int, *, has_pooling: bool = False
    ) -> "EmbeddingInputs":
        """Read images; those that cannot be read have an error.

        Args:
            reader: how they are read.
            inputs: paths, arrays or images.
            n_tokens: number of tokens of the model for an image.
            has_pooling: see the class.
        """
        pixels, errors = {}, {}
        for i, task_input in enumerate(inputs):
            try:
                pixels[i] = reader.pixels(LazyImage.of(task_input))
            except DataError as error:
                errors[i] = str(error)

        def batch(numbers: Sequence[int]) -> Images:
            return Images.of(reader.normalised(np.stack([pixels[i] for i in numbers])), n_tokens)

        return cls(dict.fromkeys(pixels, n_tokens), batch, has_pooling, PATCHES, errors=errors)

    def pooling(self, name: str | None, model: Model, *, of_last_layer: bool) -> nn.Module:
        """Return the pooling with this name, or the default: the model's own if it is of the last layer.

        Raises:
            RequestError: the model does not support it.
        """
        if name is None:
            return model.heads["pooled"] if self.has_pooling and of_last_layer else MeanPooling()
        if name not in self.poolings:
            expected = ", ".join(self.poolings)
            hint = nearest(name, self.poolings)
            raise RequestError(f"pooling={name}: not supported by this run{hint}; expected one of {expected}")
        return POOLINGS[name]()


@dataclass(frozen=True)
class Embedding:
    """The vector of an input.

    Args:
        vector: ``[d]``, or None if the input cannot be read.
        notes: what is unusual about the input.
        error: why it cannot be read.
        cut: how many of its tokens were truncated.
    """

    vector: NDArray[np.float32] | None
    notes: tuple[str, ...] = ()
    error: str | None = None
    cut: int = 0

    def to_dict(self, input: JsonMapping) -> JsonObject:
        """Return the JSON object of ``docs/schemas/embedding.schema.json``.

        Args:
            input: the record that was read; its fields are copied, those with a name of an entry of the
                object under ``input``.
        """
        vector = None if self.vector is None else self.vector.tolist()
        parts = {"vector": vector, "note": "; ".join(self.notes) or None, "error": self.error}
        nested = {key: value for key, value in input.items() if key in ("version", "input", *parts)}
        passed_through = {key: value for key, value in input.items() if key not in nested}
        found = {key: part for key, part in parts.items() if part is not None}
        return {**passed_through, **({"input": nested} if nested else {}), "version": 1, **found}


@torch.inference_mode()
def embed(
    model: Model,
    inputs: EmbeddingInputs,
    pooling: str | None = None,
    layer: int | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress = lambda n: None,
) -> list[Embedding]:
    """Compute the vector of each input, inputs of similar lengths together; return them in order.

    Args:
        model: in evaluation mode.
        inputs: the inputs.
        pooling: one of `POOLINGS`; by default the model's own, or the mean over tokens.
        layer: index of the Transformer layer whose output is pooled, from 0, or negative from the end; None:
            the last hidden states.
        batch_tokens: maximum number of tokens of a batch, with padding.
        progress: called with the number of inputs just done.

    Raises:
        RequestError: the model does not support the pooling, or does not have the layer.
    """
    pool = inputs.pooling(pooling, model, of_last_layer=layer is None)
    device = next(model.parameters()).device
    tap = None if layer is None else _layer_tap(model, layer)
    vectors: dict[int, NDArray[np.float32]] = {}
    for group in group_by_length(inputs.n_tokens, batch_tokens):
        batch = inputs.batch(group).to(device)
        rows = pool(hidden_states(model, batch, tap), batch.layout).float().cpu().numpy()
        vectors |= dict(zip(group, rows, strict=True))
        progress(len(group))
    progress(len(inputs.errors))
    return list(_embeddings(inputs, vectors))


def _embeddings(inputs: EmbeddingInputs, vectors: Mapping[int, NDArray[np.float32]]) -> Iterator[Embedding]:
    for i in range(len(vectors) + len(inputs.errors)):
        yield Embedding(vectors.get(i), inputs.notes.get(i, ()), inputs.errors.get(i), inputs.cut.get(i, 0))


def hidden_states(model: Model, inputs: Tokens | Images, tap: str | None = None) -> Float[Tensor, "T d"]:
    """Return the hidden states that are pooled: of a tap, or the output of the encoder or of the model."""
    if tap is not None:
        with capture(model, {tap: None}) as captured:
            hidden_states(model, inputs)
        return captured[tap][-1]
    match model:
        case EncoderDecoder():
            return model.encode(inputs)
        case RecurrentEncoderDecoder():
            return model.encode(inputs).annotations
    hidden: Tensor = model(inputs)
    return hidden


def _layer_tap(model: Model, layer: int) -> str:
    """Return the name of the tap of the output of a layer that reads the input.

    Raises:
        RequestError: the model has no such layer: it is recurrent, a convolutional network, or smaller.
    """
    for name in ("encoder", "stack"):
        stack = getattr(model, name, None)
        if isinstance(stack, EncoderStack):
            layers = range(len(stack.blocks))
            if not -len(layers) <= layer < len(layers):
                raise RequestError(f"layer: there is no such layer; the model has {len(layers)}")
            return f"{name}.blocks.{layers[layer]}.output"
    raise RequestError("layer: not supported by this run, whose model has no Transformer layers")
