"""What answers in a text of its own, whatever it reads: a source's hypotheses, and what is told of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from heedful.decoding.config import BeamConfig, DecodingConfig, decode
from heedful.decoding.protocol import Hypothesis, Request
from heedful.engine.choosing import Inference
from heedful.tasks.forced import forced
from heedful.tasks.generation import Generator, n_hypotheses
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import SequenceFormat
from heedful.tasks.streaming import OnText, Spelling, telling
from heedful.text.tokenizer import Tokenizer

# What is decoded together: so many tokens of the rectangle [sources, beams, longest].
DECODING_BUDGET = 8192


class TextGenerator:
    """A model with the tokenizer of what it writes.

    Args:
        model: keeps the model contract; put into evaluation mode here.
        tokenizer: of the answers.
        decoding: how to decode.
        pairing: how source and answer are laid before the model.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        pairing: SequenceFormat,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizer, self.decoding = model.eval(), tokenizer, decoding
        self.pairing, self.inference = pairing, inference or Inference(self.model)
        self.device = next(model.parameters()).device
        side = tokenizer.preprocessing.build()
        self.spelling = Spelling(tokenizer, side.undo, side.certain, is_local=side.moses is None)

    @property
    def width(self) -> int:
        """Hypotheses that run side by side for a source."""
        return n_hypotheses(self.decoding)

    def write(
        self,
        sources: Sequence[Any],
        lengths: Sequence[int],
        ordinals: Sequence[int],
        on_text: OnText | None = None,
    ) -> list[list[Hypothesis]]:
        """The answers to each source, best first.

        Args:
            sources: as the pairing takes them.
            lengths: their tokens, by which the decoding measures how much may be written.
            ordinals: their numbers; sampling draws for each number on its own.
            on_text: told of the answer to a single source while it is written.
        """
        specials = self.tokenizer.specials
        coverage = isinstance(self.decoding, BeamConfig) and self.decoding.coverage > 0
        generator = Generator(self.inference.ready(attention=coverage), attention=coverage)
        first, read = self.pairing.begin(generator, sources, self.device)
        with telling(self.spelling, on_text) as on_token:
            request = Request(
                first,
                generator.step,
                end=specials.end,
                max_lengths=[self._most(n) for n in lengths],
                forbidden=specials.never_written,
                source_lengths=None if read is None else read.layout.lengths,
                ordinals=ordinals,
                on_token=on_token,
            )
            return decode(self.decoding, request)

    def _most(self, source_length: int) -> int:
        """The most tokens to write."""
        wanted, room = self.decoding.max_length.of(source_length), self.pairing.room(source_length)
        return wanted if room is None else min(wanted, room)

    def prediction(self, hypotheses: Sequence[Hypothesis]) -> Prediction:
        """The best answer, with the others as its alternatives."""
        first, *others = [self.spelling.prediction(h) for h in hypotheses]
        return replace(first, alternatives=others)

    @torch.inference_mode()
    def alignment(self, source: Any, hypothesis: Hypothesis) -> list[Any] | None:
        """From one forced pass over the finished hypothesis: ``[layer][head][target][source]``."""
        batch = self.pairing.collate([source], [hypothesis.ids]).to(self.device)
        weights = forced(self.model, batch, alignment=True)[0].alignment
        return None if weights is None else weights.float().tolist()
