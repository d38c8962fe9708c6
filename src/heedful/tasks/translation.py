"""Translation, and every task that writes one text for another: the columns ``source`` and ``target``.

row -> token ids -> `Batch` -> model -> loss                 `Tokenizers.encode`, `Pairing.collate`
text -> token ids -> state and step -> chosen ids -> text    `Translator.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from heedful.data.report import Encoded
from heedful.data.sources import Located, Row
from heedful.decoding.config import BeamConfig, DecodingConfig, decode
from heedful.decoding.protocol import Hypothesis
from heedful.errors import RequestError
from heedful.inference.choosing import Inference
from heedful.tasks.forced import forced
from heedful.tasks.generation import Generator, n_hypotheses
from heedful.tasks.grouping import longest_first
from heedful.tasks.pairing import TWO_SIDES, Pairing
from heedful.tasks.prediction import Prediction
from heedful.text.tokenizer import Tokenizer

SOURCE, TARGET = COLUMNS = ("source", "target")

# Sentences that are decoded together: so many tokens of the rectangle [sentences, beams, longest].
DECODING_BUDGET = 8192

# Longest source in tokens, where the recipe sets no limit of its own.
MAX_SOURCE = 1024


@dataclass(frozen=True)
class Tokenizers:
    """One tokenizer for each side; both may share a subword model."""

    source: Tokenizer
    target: Tokenizer

    @property
    def fingerprint(self) -> str:
        """Differs where either side is encoded differently."""
        return f"{self.source.fingerprint}-{self.target.fingerprint}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabularies of source and target."""
        return self.source.vocab_size, self.target.vocab_size

    def encode(self, rows: Iterable[Located[Row]], chunk: int = 1000) -> Iterator[Encoded]:
        """The ids of both columns of each row, in order; a chunk of rows is in memory at a time."""
        rows = iter(rows)
        while block := list(islice(rows, chunk)):
            sources = self.source.encode_batch([r.row[SOURCE] for r in block])
            targets = self.target.encode_batch([r.row[TARGET] for r in block])
            for row, source, target in zip(block, sources, targets, strict=True):
                yield Located({SOURCE: source, TARGET: target}, row.where)


class Translator:
    """A model with its tokenizers: texts in, predictions out, as many and in the same order.

    Args:
        model: keeps the model contract; put into evaluation mode here.
        tokenizers: of both sides.
        decoding: how to decode.
        pairing: how source and target are laid before the model.
        max_source: longest source in tokens; the rest of a longer one is cut, and the prediction says so.
        budget: tokens of the rectangle that is decoded together; bounds the memory.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Any,
        tokenizers: Tokenizers,
        decoding: DecodingConfig,
        *,
        pairing: Pairing = TWO_SIDES,
        max_source: int = MAX_SOURCE,
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizers, self.decoding = model.eval(), tokenizers, decoding
        self.pairing, self.max_source, self.budget = pairing, max_source, budget
        self.device = next(model.parameters()).device
        self.inference = inference or Inference(self.model)

    @torch.inference_mode()
    def predict(
        self,
        texts: Sequence[str],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Prediction]:
        """Translate; an input without a token gives an empty prediction.

        Args:
            texts: the sources.
            alignment: also return the attention over the source of every layer and head.
            first: the number of the first text; sampling draws for each number on its own.
            progress: called with the number of sentences just done.
        """
        if alignment and not self.model.alignment_taps:
            raise RequestError("this model has no attention from target to source, so there is no alignment")
        sources = self.tokenizers.source.encode_batch(list(texts))
        results: list[Prediction] = [Prediction("") for _ in texts]
        for group in self._groups(sources):
            cut = [sources[i][: self.max_source] for i in group]
            for i, ids, hypotheses in zip(
                group, cut, self._decode(cut, [first + i for i in group]), strict=True
            ):
                prediction = self._prediction(ids, hypotheses, alignment)
                if len(sources[i]) > self.max_source:
                    note = f"source cut from {len(sources[i])} to {self.max_source} tokens"
                    prediction = replace(prediction, note=note)
                results[i] = prediction
            progress(len(group))
        return results

    def _groups(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of non-empty sources, longest first, cut into groups of bounded size."""
        width = n_hypotheses(self.decoding)
        lengths = {i: len(source) for i, source in enumerate(sources) if source}
        return longest_first(lengths, self.budget, lambda n: (min(n, self.max_source) + 1) * width)

    def _decode(self, sources: Sequence[Sequence[int]], ordinals: Sequence[int]) -> list[list[Hypothesis]]:
        specials = self.tokenizers.target.specials
        coverage = isinstance(self.decoding, BeamConfig) and self.decoding.coverage > 0
        generator = Generator(self.inference.ready(attention=coverage), attention=coverage)
        first, read = self.pairing.begin(generator, sources, self.device)
        return decode(
            self.decoding,
            first.logits,
            first.state,
            generator.step,
            end=specials.end,
            max_lengths=[self._most(len(s)) for s in sources],
            forbidden=specials.never_written,
            attention=first.attention,
            source_lengths=None if read is None else read.layout.lengths,
            ordinals=ordinals,
        )

    def _most(self, source_length: int) -> int:
        """The most tokens to write."""
        wanted, room = self.decoding.max_length.of(source_length), self.pairing.room(source_length)
        return wanted if room is None else min(wanted, room)

    def _prediction(
        self, source: Sequence[int], hypotheses: Sequence[Hypothesis], alignment: bool
    ) -> Prediction:
        first, *others = [self._one(h) for h in hypotheses]
        if alignment:
            first = replace(
                first,
                source_tokens=[*self.tokenizers.source.tokens(source), "</s>"],
                alignment=self._alignment(source, hypotheses[0]),
            )
        return replace(first, alternatives=others)

    def _one(self, hypothesis: Hypothesis) -> Prediction:
        target = self.tokenizers.target
        return Prediction(
            text=target.decode(hypothesis.ids),
            score=hypothesis.score,
            tokens=target.tokens(hypothesis.ids),
            log_probs=list(hypothesis.log_probs),
        )

    def _alignment(self, source: Sequence[int], hypothesis: Hypothesis) -> list[Any] | None:
        """From one forced pass over the finished hypothesis: ``[layer][head][target][source]``."""
        batch = self.pairing.collate([source], [hypothesis.ids]).to(self.device)
        weights = forced(self.model, batch, alignment=True)[0].alignment
        return None if weights is None else weights.float().tolist()
