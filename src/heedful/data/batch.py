"""A batch: the one place that owns the shift between inputs and targets, the layout and the counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.masking import Hidden
from heedful.nn.layout import Ids, Layout, Tokens
from heedful.nn.patches import Pictures


@dataclass(frozen=True, eq=False)
class Spans:
    """For each wanted token the span that it is in.

    Args:
        before: the place in ``[T]`` of the last token before the span.
        after: of the first one after it.
        within: the token's number in the span, from 0.
    """

    before: Int[Tensor, " R"]
    after: Int[Tensor, " R"]
    within: Int[Tensor, " R"]

    def to(self, device: torch.device | str) -> "Spans":
        """The same on another device."""
        return Spans(*(each.to(device) for each in (self.before, self.after, self.within)))


@dataclass(frozen=True, eq=False)
class TokenLinks:
    """Which source tokens target tokens stand for, link by link.

    Args:
        sequence: of each link, the number of its pair in the batch.
        query: the place in its sequence of inputs where the target token is foretold.
        key: the place of the source token in its sequence.
        share: one over the number of links of the target token.
        n_tokens: target tokens with a link.
    """

    sequence: Int[Tensor, " N"]
    query: Int[Tensor, " N"]
    key: Int[Tensor, " N"]
    share: Float[Tensor, " N"]
    n_tokens: int

    def to(self, device: torch.device | str) -> "TokenLinks":
        """The same on another device."""
        return TokenLinks(
            self.sequence.to(device, non_blocking=True),
            self.query.to(device, non_blocking=True),
            self.key.to(device, non_blocking=True),
            self.share.to(device, non_blocking=True),
            self.n_tokens,
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Packed sequences for one forward pass.

    Args:
        inputs: what the model (its decoder) reads: for teacher forcing, ``<s> y_1 ... y_n``; or pictures.
        targets: what it should answer at each of those places: ``y_1 ... y_n </s>``.
        source: what the encoder reads, tokens or pictures, or None.
        samples: the numbers of the corpus rows it was made of.
        rows: the places of the inputs at which an answer is wanted, in their order; None: all.
        ragged: whether lengths may differ, also if they happen to agree.
        classes: of each sequence the number of its class, where it has one.
        spans: where each wanted token's span lies, where spans were hidden.
        values: of each sequence its number, where it has one.
        answers: of each sequence the places in ``[T]`` where its answer begins and ends, where it has one.
        links: between tokens of inputs and source, where they are known.
    """

    inputs: Tokens | Pictures
    targets: Int[Tensor, " R"]
    source: Tokens | Pictures | None = None
    samples: tuple[int, ...] = ()
    rows: Int[Tensor, " R"] | None = None
    ragged: bool = True
    classes: Int[Tensor, " B"] | None = None
    spans: Spans | None = None
    values: Float[Tensor, " B"] | None = None
    answers: Int[Tensor, "B 2"] | None = None
    links: TokenLinks | None = None

    @classmethod
    def forced(
        cls,
        sources: Sequence[Ids] | None,
        targets: Sequence[Ids],
        *,
        start: int,
        end: int,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Teacher forcing (lecture S0): inputs ``<s> y``, targets ``y </s>``; sources end in ``</s>``.

        ``sources`` is None for a model that reads none.
        """
        first, last = np.array([start]), np.array([end])
        source = None if sources is None else Tokens.of([np.concatenate([s, last]) for s in sources])
        inputs = Tokens.of([np.concatenate([first, t]) for t in targets])
        wanted = Tokens.of([np.concatenate([t, last]) for t in targets])
        return cls(inputs, wanted.ids, source, tuple(samples))

    @classmethod
    def windows(cls, rows: Int[np.ndarray, "n window"], samples: Sequence[int] = ()) -> "Batch":
        """Stretches of running text: of each row, all but the last id are read, all but the first wanted."""
        n, length = len(rows), rows.shape[1] - 1
        ids, wanted = (torch.from_numpy(part.reshape(-1)) for part in (rows[:, :-1], rows[:, 1:]))
        return cls(Tokens(ids, Layout.of([length] * n)), wanted, None, tuple(samples), ragged=False)

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
        """Source and target in one text, ``<s> x <sep> y </s>``, for a model that reads no source.

        Lecture S1 writes a summary after its article in this way (Liu et al. 2018, section 4.2.2).

        Args:
            sources: x.
            targets: y.
            start: the id that begins a text.
            separate: the id between both.
            end: the id that ends a text.
            answers_only: whether only y and the end are wanted, or x and the separator too.
            samples: the numbers of the samples.
        """
        first, middle, last = (np.array([i]) for i in (start, separate, end))
        texts = [np.concatenate([first, x, middle, y, last]) for x, y in zip(sources, targets, strict=True)]
        inputs, wanted = Tokens.of([t[:-1] for t in texts]), Tokens.of([t[1:] for t in texts])
        if not answers_only:
            return cls(inputs, wanted.ids, None, tuple(samples))
        of_answer = [np.arange(len(x) + len(y) + 2) > len(x) for x, y in zip(sources, targets, strict=True)]
        rows = torch.from_numpy(np.flatnonzero(np.concatenate([*of_answer, np.zeros(0, bool)])))
        return cls(inputs, wanted.ids[rows], None, tuple(samples), rows)

    @classmethod
    def framed(
        cls,
        parts: Sequence[Sequence[Ids]],
        *,
        classify: int,
        separate: int,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """``<cls> a <sep>``, or of pairs ``<cls> a <sep> b <sep>`` with segments 0 and 1; no answer yet.

        Source: Devlin et al. 2019, figure 2.

        Args:
            parts: for each sample its one or two texts.
            classify: the id of the token that stands first.
            separate: the id of the token that ends each text.
            samples: the numbers of the samples.
        """
        first, last = np.array([classify]), np.array([separate])
        tokens = Tokens.of(
            [np.concatenate([first, *(x for part in texts for x in (part, last))]) for texts in parts]
        )
        if any(len(texts) > 1 for texts in parts):
            # Of a pair, the first text takes the class token and its own separator.
            counts = [[len(text) + 1 + (i == 0) for i, text in enumerate(texts)] for texts in parts]
            numbers = [np.repeat(np.arange(len(lengths)), lengths) for lengths in counts]
            tokens = replace(tokens, segments=torch.from_numpy(np.concatenate(numbers)))
        nothing, rows = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        return cls(tokens, nothing, None, tuple(samples), rows)

    @classmethod
    def bare(cls, texts: Sequence[Ids], samples: Sequence[int] = ()) -> "Batch":
        """Texts of which none is empty, with nothing around them; no answer yet."""
        nothing = torch.zeros(0, dtype=torch.int64)
        return cls(Tokens.of(texts), nothing, None, tuple(samples), nothing)

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
        """Texts or pairs (`framed`), each with its class."""
        batch = cls.framed(parts, classify=classify, separate=separate, samples=samples)
        return replace(batch, classes=torch.tensor(list(labels), dtype=torch.int64))

    def tagged(self, marks: Sequence[Ids]) -> "Batch":
        """`framed` texts of which some tokens have a tag, which is wanted there.

        Args:
            marks: for each id of each text, 0, or the number of its tag plus 1.
        """
        around = np.zeros(1, dtype=np.int64)
        flat = np.concatenate(
            [around[:0], *(x for own in marks for x in (around, np.asarray(own, np.int64), around))]
        )
        rows = np.flatnonzero(flat)
        return replace(self, rows=torch.from_numpy(rows), targets=torch.from_numpy(flat[rows] - 1))

    def answered(self, answers: Sequence[tuple[int, int] | None]) -> "Batch":
        """`framed` sequences, each with the first and the last token of its answer.

        Args:
            answers: numbers of tokens in the sequence; None: the class token stands for no answer.
        """
        offsets = self.inputs.layout.offsets[:-1]
        within = torch.tensor([answer or (0, 0) for answer in answers], dtype=torch.int64)
        return replace(self, answers=offsets[:, None] + within.view(-1, 2))

    def linked(self, links: Sequence[Ids]) -> "Batch":
        """Pairs (`forced`) of which it is known which tokens stand for which.

        Args:
            links: of each pair, the places of target and source token of every link in turn, from 0, special
                tokens not counted; none twice.
        """
        rows = [np.asarray(own, dtype=np.int64).reshape(-1, 2) for own in links]
        sequence = np.repeat(np.arange(len(rows)), np.array([len(own) for own in rows], dtype=np.int64))
        places = np.concatenate([np.zeros((0, 2), dtype=np.int64), *rows])
        # The start token stands first, so y_t is foretold at place t; the source has none.
        token = self.inputs.layout.offsets[sequence].numpy() + places[:, 0]
        _, own_token, n_links = np.unique(token, return_inverse=True, return_counts=True)
        share = torch.from_numpy(1.0 / n_links[own_token]).float()
        query, key = (torch.from_numpy(np.ascontiguousarray(column)) for column in places.T)
        return replace(self, links=TokenLinks(torch.from_numpy(sequence), query, key, share, len(n_links)))

    @classmethod
    def of_pictures(cls, pictures: Pictures, classes: Sequence[int], samples: Sequence[int] = ()) -> "Batch":
        """Pictures of which each has a class; nothing is wanted of single tokens."""
        nothing, rows = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        numbers = torch.as_tensor(classes, dtype=torch.int64)
        return cls(pictures, nothing, None, tuple(samples), rows, ragged=False, classes=numbers)

    @classmethod
    def masked(
        cls,
        sequences: Sequence[Ids],
        hidden: Sequence[Hidden],
        *,
        segments: Sequence[Ids] | None = None,
        classes: Sequence[int] | None = None,
        samples: Sequence[int] = (),
    ) -> "Batch":
        """Sequences of which some tokens are hidden, and asked for.

        Args:
            sequences: as they were, special tokens included.
            hidden: what was done to each.
            segments: of each token.
            classes: of each sequence.
            samples: the numbers of the samples.
        """
        inputs = Tokens.of([each.ids for each in hidden])
        if segments is not None:
            inputs = replace(inputs, segments=Tokens.of(segments).ids)
        offsets = inputs.layout.offsets[:-1].tolist()

        def packed(name: str) -> Int[Tensor, " R"]:
            parts = [getattr(each, name) + offset for each, offset in zip(hidden, offsets, strict=True)]
            return torch.from_numpy(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))

        wanted = Tokens.of([np.asarray(s)[h.places] for s, h in zip(sequences, hidden, strict=True)])
        within = Tokens.of([each.within for each in hidden]).ids
        return cls(
            inputs,
            wanted.ids,
            None,
            tuple(samples),
            packed("places"),
            classes=None if classes is None else torch.tensor(list(classes), dtype=torch.int64),
            spans=Spans(packed("before"), packed("after"), within),
        )

    @property
    def n_tokens(self) -> int:
        """Tokens the model reads, both sides."""
        return self.inputs.layout.n_tokens + (self.source.layout.n_tokens if self.source else 0)

    def prepare(self) -> None:
        """Make ready for a compiled model: see `Layout.prepare`."""
        for side in (self.inputs, self.source):
            if side is not None:
                side.layout.prepare(ragged=self.ragged)

    def picked(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, "R d"]:
        """The hidden states at which an answer is wanted."""
        return hidden if self.rows is None else hidden[self.rows]

    @property
    def n_answers(self) -> tuple[int, ...]:
        """How many answers are wanted in each sequence, where they are tokens."""
        layout = self.inputs.layout
        if self.rows is None:
            return layout.lengths
        return tuple(torch.bincount(layout.sequence[self.rows], minlength=layout.n_sequences).tolist())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return replace(
            self,
            inputs=self.inputs.to(device),
            targets=self.targets.to(device, non_blocking=True),
            source=self.source.to(device) if self.source else None,
            rows=None if self.rows is None else self.rows.to(device, non_blocking=True),
            classes=None if self.classes is None else self.classes.to(device, non_blocking=True),
            spans=None if self.spans is None else self.spans.to(device),
            values=None if self.values is None else self.values.to(device, non_blocking=True),
            answers=None if self.answers is None else self.answers.to(device, non_blocking=True),
            links=None if self.links is None else self.links.to(device),
        )
