"""Batches: the only place that defines the shift between inputs and targets, the layout and the counts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from heedful.data.masking import MaskedSequence
from heedful.nn.layout import Ids, Layout, Tokens
from heedful.nn.patches import Images


@dataclass(frozen=True, eq=False, repr=False)
class _Tensors:
    """Base of records of tensors."""

    def to(self, device: torch.device | str) -> Self:
        """Move to another device."""
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = value.to(device, non_blocking=True)
            elif hasattr(value, "to"):
                moved[field.name] = value.to(device)
        return replace(self, **moved)

    def __repr__(self) -> str:
        """Show the shape of each part that there is, in one line."""
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        shown = [f"{name}={_short(value)}" for name, value in parts if value is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Tokens):
        return f"<{len(value.ids):,} tokens in {len(value.layout.lengths):,} sequences>"
    if isinstance(value, Images):
        return f"<images {list(value.pixels.shape)}>"
    return f"<{len(value)}>" if isinstance(value, tuple) else repr(value)


@dataclass(frozen=True, eq=False, repr=False)
class Spans(_Tensors):
    """The span of each target token.

    Args:
        before: the position in ``[T]`` of the last token before the span.
        after: the position in ``[T]`` of the first token after the span.
        within: the token's position in the span, from 0.
    """

    before: Int[Tensor, " R"]
    after: Int[Tensor, " R"]
    within: Int[Tensor, " R"]


@dataclass(frozen=True, eq=False, repr=False)
class TokenLinks(_Tensors):
    """Word alignment between source and target tokens, one entry for each link.

    Args:
        sequence: the index of the link's sentence pair in the batch.
        query: the position in its sequence of inputs at which the target token is predicted.
        key: the position of the source token in its sequence.
        share: one divided by the number of links of the target token.
        n_tokens: the number of target tokens with a link.
    """

    sequence: Int[Tensor, " N"]
    query: Int[Tensor, " N"]
    key: Int[Tensor, " N"]
    share: Float[Tensor, " N"]
    n_tokens: int


@dataclass(frozen=True, eq=False, repr=False)
class Batch(_Tensors):
    """Packed sequences for one forward pass.

    Args:
        inputs: the inputs of the model (of its decoder): for teacher forcing, ``<s> y_1 ... y_n``; or images.
        targets: the expected output at each of these positions: ``y_1 ... y_n </s>``.
        source: the inputs of the encoder, tokens or images, or None.
        samples: the row numbers of the corpus that the batch consists of.
        rows: the input positions that have a target, in order; None: all.
        ragged: whether lengths may differ, even if they happen to be equal.
        classes: the class index of each sequence, for classification.
        spans: the span of each target token, if spans were masked.
        values: the target value of each sequence, for regression, or its target values, ``[B, C]``.
        answers: the first and last position in ``[T]`` of each sequence's answer, for question answering.
        links: the word alignment of inputs and source, if known.
        masks: the class index of each pixel, for segmentation; `UNSCORED`: not scored.
        weights: the weight of each class, target or pixel in the loss; None: 1.
        text_ids: for contrastive learning, the number of each of the K texts of B examples (a text, its
            positive, perhaps a hard negative), equal for equal texts. The sequences are then the first texts
            of all examples, the second of all, and so on.
    """

    inputs: Tokens | Images
    targets: Int[Tensor, " R"]
    source: Tokens | Images | None = None
    samples: tuple[int, ...] = ()
    rows: Int[Tensor, " R"] | None = None
    ragged: bool = True
    classes: Int[Tensor, " B"] | None = None
    spans: Spans | None = None
    values: Float[Tensor, "B ..."] | None = None
    answers: Int[Tensor, "B 2"] | None = None
    links: TokenLinks | None = None
    masks: Int[Tensor, "B H W"] | None = None
    weights: Float[Tensor, "..."] | None = None
    text_ids: Int[Tensor, "B K"] | None = None

    @classmethod
    def teacher_forced(
        cls,
        sources: Sequence[Ids] | None,
        targets: Sequence[Ids],
        *,
        start: int,
        end: int,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Build a batch for teacher forcing (lecture S0): inputs ``<s> y``, targets ``y </s>``.

        Sources end in ``</s>``; ``sources`` is None for a model without an encoder.
        """
        first, last = np.array([start]), np.array([end])
        source = None if sources is None else Tokens.of([np.concatenate([s, last]) for s in sources])
        inputs = Tokens.of([np.concatenate([first, t]) for t in targets])
        shifted = Tokens.of([np.concatenate([t, last]) for t in targets])
        return cls(inputs, shifted.ids, source, tuple(samples))

    @classmethod
    def windows(cls, rows: Int[np.ndarray, "n window"], samples: Sequence[int] = ()) -> "Batch":
        """Build a batch from windows of text: each row's inputs are all ids but the last, targets all but
        the first.
        """
        n, length = len(rows), rows.shape[1] - 1
        ids, targets = (torch.from_numpy(part.reshape(-1)) for part in (rows[:, :-1], rows[:, 1:]))
        return cls(Tokens(ids, Layout.of([length] * n)), targets, None, tuple(samples), ragged=False)

    @classmethod
    def delimited(
        cls,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        *,
        start: int,
        separate: int,
        end: int,
        answers_only: bool = True,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Concatenate source and target, ``<s> x <sep> y </s>``, for a decoder-only model.

        Lecture S1 writes a summary after its article in this way (Liu et al. 2018, section 4.2.2).

        Args:
            sources: x.
            targets: y.
            start: the id of the start token.
            separate: the id of the separator token.
            end: the id of the end token.
            answers_only: whether only y and the end token are targets, or also x and the separator.
            samples: the sample numbers.
        """
        first, middle, last = (np.array([i]) for i in (start, separate, end))
        texts = [np.concatenate([first, x, middle, y, last]) for x, y in zip(sources, targets, strict=True)]
        inputs, shifted = Tokens.of([t[:-1] for t in texts]), Tokens.of([t[1:] for t in texts])
        if not answers_only:
            return cls(inputs, shifted.ids, None, tuple(samples))
        is_answer = [np.arange(len(x) + len(y) + 2) > len(x) for x, y in zip(sources, targets, strict=True)]
        rows = torch.from_numpy(np.flatnonzero(np.concatenate([*is_answer, np.zeros(0, bool)])))
        return cls(inputs, shifted.ids[rows], None, tuple(samples), rows)

    @classmethod
    def with_special_tokens(
        cls, parts: Sequence[Sequence[Ids]], *, classify: int, separate: int, samples: Sequence[int] = ()
    ) -> "Batch":
        """Build ``<cls> a <sep>``, or ``<cls> a <sep> b <sep>`` with segments 0 and 1 for pairs; no targets.

        Source: Devlin et al. 2019, figure 2.

        Args:
            parts: the one or two texts of each sample.
            classify: the id of the first token (``<cls>``).
            separate: the id of the token that ends each text (``<sep>``).
            samples: the sample numbers.
        """
        first, last = np.array([classify]), np.array([separate])
        tokens = Tokens.of(
            [np.concatenate([first, *(x for part in texts for x in (part, last))]) for texts in parts]
        )
        if any(len(texts) > 1 for texts in parts):
            # Segment 0 of a pair includes the class token and the first separator.
            segment_lengths = [[len(text) + 1 + (i == 0) for i, text in enumerate(texts)] for texts in parts]
            segments = [np.repeat(np.arange(len(lengths)), lengths) for lengths in segment_lengths]
            tokens = replace(tokens, segments=torch.from_numpy(np.concatenate(segments)))
        return cls._without_targets(tokens, samples)

    @classmethod
    def bare(cls, texts: Sequence[Ids], samples: Sequence[int] = ()) -> "Batch":
        """Build a batch of non-empty texts without special tokens or targets."""
        return cls._without_targets(Tokens.of(texts), samples)

    @classmethod
    def _without_targets(cls, inputs: Tokens | Images, samples: Sequence[int]) -> "Batch":
        none = torch.zeros(0, dtype=torch.int64)
        return cls(inputs, none, None, tuple(samples), none)

    @classmethod
    def labelled(
        cls,
        parts: Sequence[Sequence[Ids]],
        labels: Sequence[int],
        *,
        classify: int,
        separate: int,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Build a batch of texts or pairs (`with_special_tokens`) with their classes."""
        batch = cls.with_special_tokens(parts, classify=classify, separate=separate, samples=samples)
        return replace(batch, classes=torch.tensor(list(labels), dtype=torch.int64))

    def tagged(self, tags: Sequence[Ids]) -> "Batch":
        """Add tags as targets of some tokens of texts `with_special_tokens`.

        Args:
            tags: for each id of each text, 0 for no tag, or the tag index plus 1.
        """
        no_tag = np.zeros(1, dtype=np.int64)
        flat = np.concatenate(
            [
                no_tag[:0],
                *(x for text_tags in tags for x in (no_tag, np.asarray(text_tags, np.int64), no_tag)),
            ]
        )
        rows = np.flatnonzero(flat)
        return replace(self, rows=torch.from_numpy(rows), targets=torch.from_numpy(flat[rows] - 1))

    def answered(self, answers: Sequence[tuple[int, int] | None]) -> "Batch":
        """Add the first and last token of each answer to sequences `with_special_tokens`.

        Args:
            answers: token positions in the sequence; None: no answer, represented by the class token.
        """
        offsets = self.inputs.layout.offsets[:-1]
        positions = torch.tensor([answer or (0, 0) for answer in answers], dtype=torch.int64)
        return replace(self, answers=offsets[:, None] + positions.view(-1, 2))

    def linked(self, links: Sequence[Ids]) -> "Batch":
        """Add word alignments to sentence pairs (`teacher_forced`).

        Args:
            links: for each pair, alternating positions of the target and source token of every link, from 0,
                special tokens not counted, without duplicates.
        """
        rows = [np.asarray(pair_links, dtype=np.int64).reshape(-1, 2) for pair_links in links]
        sequence = np.repeat(
            np.arange(len(rows)), np.array([len(pair_links) for pair_links in rows], dtype=np.int64)
        )
        positions = np.concatenate([np.zeros((0, 2), dtype=np.int64), *rows])
        # The inputs begin with the start token, so y_t is predicted at position t; the source has none.
        token = self.inputs.layout.offsets[sequence].numpy() + positions[:, 0]
        _, token_index, n_links = np.unique(token, return_inverse=True, return_counts=True)
        share = torch.from_numpy(1.0 / n_links[token_index]).float()
        query, key = (torch.from_numpy(np.ascontiguousarray(column)) for column in positions.T)
        return replace(self, links=TokenLinks(torch.from_numpy(sequence), query, key, share, len(n_links)))

    @classmethod
    def of_images(cls, images: Images, classes: Sequence[int], samples: Sequence[int] = ()) -> "Batch":
        """Build a batch of images with their classes; no token has a target."""
        class_ids = torch.as_tensor(classes, dtype=torch.int64)
        return replace(cls._without_targets(images, samples), ragged=False, classes=class_ids)

    @classmethod
    def segmented(
        cls, images: Images, masks: UInt8[np.ndarray, "B H W"], samples: Sequence[int] = ()
    ) -> "Batch":
        """Build a batch of images with the class of each pixel; no token has a target."""
        targets = torch.from_numpy(masks.astype(np.int64))
        return replace(cls._without_targets(images, samples), ragged=False, masks=targets)

    @classmethod
    def masked(
        cls,
        sequences: Sequence[Ids],
        masked_sequences: Sequence[MaskedSequence],
        *,
        segments: Sequence[Ids] | None = None,
        classes: Sequence[int] | None = None,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Build a batch for masked language modelling: the masked tokens are the targets.

        Args:
            sequences: the original sequences, special tokens included.
            masked_sequences: the masked sequences.
            segments: the segment of each token.
            classes: the class of each sequence.
            samples: the sample numbers.
        """
        inputs = Tokens.of([masked.ids for masked in masked_sequences])
        if segments is not None:
            inputs = replace(inputs, segments=Tokens.of(segments).ids)
        offsets = inputs.layout.offsets[:-1].tolist()

        def packed(name: str) -> Int[Tensor, " R"]:
            parts = [
                getattr(masked, name) + offset
                for masked, offset in zip(masked_sequences, offsets, strict=True)
            ]
            return torch.from_numpy(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))

        targets = Tokens.of(
            [np.asarray(s)[h.positions] for s, h in zip(sequences, masked_sequences, strict=True)]
        )
        within = Tokens.of([masked.within for masked in masked_sequences]).ids
        return cls(
            inputs,
            targets.ids,
            None,
            tuple(samples),
            packed("positions"),
            classes=None if classes is None else torch.tensor(list(classes), dtype=torch.int64),
            spans=Spans(packed("before"), packed("after"), within),
        )

    @property
    def n_tokens(self) -> int:
        """The number of input tokens, source included."""
        return self.inputs.layout.n_tokens + (self.source.layout.n_tokens if self.source else 0)

    def prepare(self) -> None:
        """Prepare the layouts for a compiled model: see `Layout.prepare`."""
        for side in (self.inputs, self.source):
            if side is not None:
                side.layout.prepare(ragged=self.ragged)

    def picked(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, "R d"]:
        """Select the hidden states at positions that have a target."""
        return hidden if self.rows is None else hidden[self.rows]

    @property
    def n_answers(self) -> tuple[int, ...]:
        """The number of target tokens in each sequence."""
        layout = self.inputs.layout
        if self.rows is None:
            return layout.lengths
        return tuple(torch.bincount(layout.sequence[self.rows], minlength=layout.n_sequences).tolist())
