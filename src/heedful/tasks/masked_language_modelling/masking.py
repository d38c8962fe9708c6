"""Masked language modelling: hidden tokens of running text are predicted, and masks in texts are filled.

text -> token ids, documents end to end -> `Windows` -> hidden tokens -> model -> loss     `MaskedBatches`
text with masks -> token ids -> hidden states -> ids for the masks -> text                `MaskFiller.predict`
(or two texts, with the probability that the second follows the first)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.masking import Masking
from heedful.data.plan import Draw, Lengths
from heedful.data.windows import Sentences, Windows, circular_sections
from heedful.errors import RequestError, WorkError
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.objectives.classification import class_logits
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, group_by_length, join_notes, truncate, unknown_note
from heedful.tasks.prediction import (
    BATCH_TOKENS,
    DEFAULT_OPTIONS,
    EMPTY,
    Prediction,
    PredictOptions,
    TaskInput,
    as_texts,
    content_of,
)
from heedful.text.parts import around_masks
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

MASK = "[MASK]"
"""The default text for a mask in an input."""

PAIR_SEPARATOR = "\t"
"""Separates the two texts of a pair."""


FOLLOWS, UNRELATED = 0, 1
"""Classes of pairs: the second text follows the first, or comes from elsewhere (BERT's numbers)."""


class MaskedBatches:
    """Batches of windows of running text with masked tokens, as single sequences or as pairs.

    A window has the class token before it and a separator after it. Pairs are made as by Devlin et al. 2019
    (section 3.1 and appendix A.2):

    - A window begins at a sentence: it is moved on to the first that begins in it, if any. All windows keep
      their length, so the next window may overlap it; no two of an epoch begin at the same position.
    - It is cut in two where a sentence begins in it, each with equal probability; not where a document
      begins, unless there is no other choice. If no sentence begins in it, it is cut at any token.
    - Half of the second parts, by chance, are replaced by as many tokens of another document than the one in
      which the first part ends: a token is drawn from all of these, and the part begins with its sentence.
      Like windows, these parts may extend over the end of a document. In a text of one document they come
      from anywhere in it, possibly from the true continuation.

    BERT ends both parts with a sentence, unless they are too long; here every sequence is full, so the second
    may end in the midst of one.

    Args:
        ids: the stream.
        longest: tokens of a sequence, special ones included.
        masking: how tokens are masked.
        signs: where sentences begin, for pairs; None: single sequences.
        seed: with epoch and sample, determines all randomness.
    """

    def __init__(
        self,
        ids: NDArray[np.integer],
        longest: int,
        masking: Masking,
        *,
        signs: SentenceSigns | None = None,
        seed: int,
    ) -> None:
        self.masking, self.seed = masking, seed
        self.sentences = None if signs is None else Sentences(ids, signs)
        self.n_parts = 1 if signs is None else 2
        # Language models only predict the windows' last token; here it is read too.
        self.windows = Windows(ids, longest - 1 - self.n_parts, seed)

    @property
    def lengths(self) -> Lengths:
        """``[N]``, with the special tokens."""
        return self.windows.lengths + 1 + self.n_parts

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these windows in an epoch."""
        sequences, segments, classes, hidden = [], [], [], []
        for sample, start in zip(samples, self.windows.starts(samples, epoch).tolist(), strict=True):
            draw = Draw(self.seed, epoch, sample)
            parts, follows = self._parts(start, draw)
            ids = np.concatenate([[SPECIALS.classify], *(x for p in parts for x in (p, [SPECIALS.separate]))])
            sequences.append(ids.astype(np.int64))
            segments.append(
                np.repeat(np.arange(len(parts)), [len(p) + 1 + (i == 0) for i, p in enumerate(parts)])
            )
            classes.append(follows)
            hidden.append(self.masking.mask_tokens(sequences[-1], draw))
        return Batch.masked(
            sequences,
            hidden,
            segments=segments if self.sentences else None,
            classes=classes if self.sentences else None,
            samples=samples,
        )

    def _parts(self, start: int, draw: Draw) -> tuple[list[NDArray[np.int64]], int]:
        """Return the texts of a sequence, and the class of a pair."""
        length, size = self.windows.length, len(self.windows.ids)
        if self.sentences is None:
            return [self._stretch(start, length)], FOLLOWS
        offset = self.sentences.distance_to_next(start)
        start = (start + offset) % size if offset < length else start
        cuts = self.sentences.starts_within(start, length)
        cut = int(cuts[draw.below(len(cuts))]) if len(cuts) else 1 + draw.below(length - 1)
        second_start, pair_class = (start + cut) % size, FOLLOWS
        if draw.floats(1)[0] >= 0.5:
            second_start, pair_class = (
                self.sentences.draw_from_other_document((second_start - 1) % size, draw),
                UNRELATED,
            )
        return [self._stretch(start, cut), self._stretch(second_start, length - cut)], pair_class

    def _stretch(self, start: int, length: int) -> NDArray[np.int64]:
        return circular_sections(self.windows.ids, np.array([start]), length)[0]


WITHOUT_WORDS = frozenset({"character", "byte"})
"""Kinds of tokenizers whose pieces do not show whether they begin a word."""


def word_beginnings(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return for each id whether it begins a word: its piece begins with white space.

    Raises:
        RequestError: if the tokenizer's pieces do not show where words begin.
    """
    begins = [piece[:1].isspace() for piece in tokenizer.model.pieces]
    if tokenizer.model.config.kind == "word":
        begins = [True] * len(begins)
    if not any(begins) or tokenizer.model.config.kind in WITHOUT_WORDS:
        raise RequestError(
            f"the pieces of a {tokenizer.model.config.kind} tokenizer do not show where words begin; "
            "use hide=tokens, or another tokenizer"
        )
    return np.array(begins)


@dataclass(frozen=True)
class MaskedTexts:
    """A text with masks, or a pair of them, as ids.

    Args:
        texts: the ids of each text.
        spaced: for each mask, whether its filling begins with a space.
        n_cut: how many tokens were truncated.
        unknown_note: a note about words that are not in the vocabulary.
    """

    texts: list[list[int]]
    spaced: list[bool]
    n_cut: int
    unknown_note: str | None = None

    @property
    def n_masks(self) -> int:
        """The number of masks."""
        return len(self.spaced)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on truncation and unknown words."""
        return join_notes(f"cut by {self.n_cut} tokens" if self.n_cut else None, self.unknown_note)


class MaskFiller:
    """Fills masks in texts.

    An input may be a pair of texts, ``<cls> a <sep> b <sep>``; the answer then has a tab between them,
    and the probability that the second follows the first, if the model has learned it.

    Each mask is filled by one token. A prediction's ``tokens`` and ``log_probs`` are those of the masks, its
    ``score`` is their sum: masks are filled independently of each other. A text without a mask is returned
    unchanged, with a note.

    Args:
        model: has a head ``token``; in evaluation mode.
        tokenizer: of the texts.
        longest: the most tokens of a sequence; longer texts are truncated, and the prediction notes it.
        options: ``gap`` (the text for a mask), ``n_best`` and ``progress``.
        budget: maximum number of tokens of a batch, with padding.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        longest: int,
        options: PredictOptions = DEFAULT_OPTIONS,
        budget: int = BATCH_TOKENS,
    ) -> None:
        self.mask = MASK if options.gap is None else options.gap
        if not self.mask:
            raise RequestError("gap: must not be empty")
        self.model, self.tokenizer, self.longest = model, tokenizer, longest
        self.n_best, self.progress, self.budget = options.n_best or 1, options.progress, budget
        self.device = next(model.parameters()).device
        begins = [piece.startswith(b" ") for piece in tokenizer.model.pieces]
        # If no piece begins with a space, none can be required.
        self._without_space = torch.tensor(
            [any(begins) and not has_space for has_space in begins], device=self.device
        )

    @torch.inference_mode()
    def predict(self, inputs: Sequence[TaskInput]) -> list[Prediction]:
        """Fill the masks of texts, or of pairs of texts."""
        texts = [as_texts(task_input) for task_input in inputs]
        masked = [self.masked(input_texts) for input_texts in texts]
        results = [
            Prediction(
                PAIR_SEPARATOR.join(input_texts),
                notes=join_notes(self._unfilled(input_texts, masked_input)),
                cut=masked_input.n_cut,
            )
            for input_texts, masked_input in zip(texts, masked, strict=True)
        ]
        for group in self._groups(masked):
            group_inputs = [masked[i] for i in group]
            tokens = input_tokens(group_inputs).to(self.device)
            hidden = self.model(tokens)
            log_probs = self._log_probs(tokens, hidden, group_inputs)
            follows = self._follows(tokens, hidden) if any(map(self._predicts_next, group_inputs)) else ()
            for n, (i, masked_input) in enumerate(zip(group, group_inputs, strict=True)):
                if masked_input.n_masks:
                    results[i] = self._prediction(masked_input, log_probs[n])
                if self._predicts_next(masked_input):
                    results[i] = replace(results[i], follows=follows[n])
            self.progress(len(group))
        return results

    def _log_probs(self, inputs: Tokens, hidden: Tensor, group: Sequence[MaskedTexts]) -> Sequence[Tensor]:
        """Return the log-probabilities ``[masks, V]`` of the tokens that may fill each input's masks."""
        logits = self.model.heads["token"](hidden[inputs.ids == SPECIALS.mask]).float()
        log_probs = logits.log_softmax(-1)
        log_probs[:, : len(SPECIALS)] = float("-inf")
        needs_space = torch.tensor([flag for masked in group for flag in masked.spaced], device=self.device)
        log_probs[needs_space.bool()[:, None] & self._without_space] = float("-inf")
        return log_probs.cpu().split([masked.n_masks for masked in group])

    def _predicts_next(self, masked: MaskedTexts) -> bool:
        """Return whether to predict if the second text follows: for pairs, if the model has learned it."""
        return len(masked.texts) > 1 and "next" in self.model.heads

    def _follows(self, inputs: Tokens, hidden: Tensor) -> Sequence[float]:
        """Return the probability that each second text follows; it has no meaning for single texts."""
        logits = class_logits(hidden, self.model.heads, inputs.layout, "next")
        return logits.softmax(-1)[:, FOLLOWS].tolist()

    def masked(self, texts: Sequence[str]) -> MaskedTexts:
        """Return the ids of a text or a pair, truncated."""
        split_texts = [around_masks(self.tokenizer, content_of(text).split(self.mask)) for text in texts]
        all_ids = [_with_masks(split_text.parts) for split_text in split_texts]
        truncated = [list(ids) for ids in truncate(all_ids, self.longest)]
        # No text spells a special token, so all masks are those of the input; the first ones are kept.
        spaced = [
            split_text.spaced[: ids.count(SPECIALS.mask)]
            for split_text, ids in zip(split_texts, truncated, strict=True)
        ]
        n_cut = sum(map(len, all_ids)) - sum(map(len, truncated))
        texts_between_masks = [part for text in texts for part in text.split(self.mask)]
        note = unknown_note(self.tokenizer, texts_between_masks, all_ids)
        return MaskedTexts(truncated, list(chain.from_iterable(spaced)), n_cut, note)

    def _unfilled(self, texts: Sequence[str], masked: MaskedTexts) -> str | tuple[str, ...]:
        """Return a note on why nothing was filled; for pairs with another answer, the usual note."""
        if not any(masked.texts):
            return EMPTY
        if masked.n_cut and any(self.mask in text for text in texts):
            return f"{self.mask} lies beyond the {sum(map(len, masked.texts))} tokens that are read"
        if self._predicts_next(masked):
            return masked.notes
        return f"there is no {self.mask} to fill"

    def _groups(self, masked: Sequence[MaskedTexts]) -> Iterator[list[int]]:
        """Yield the indices of inputs that need the model, longest first, in groups of bounded size."""
        lengths = {
            i: sum(map(len, masked_input.texts)) + CLASS_TEMPLATE.n_specials(len(masked_input.texts))
            for i, masked_input in enumerate(masked)
            if masked_input.n_masks or self._predicts_next(masked_input)
        }
        return group_by_length(lengths, self.budget)

    def _prediction(self, text: MaskedTexts, log_probs: Tensor) -> Prediction:
        sorted_log_probs, sorted_ids = log_probs.sort(dim=-1, descending=True, stable=True)
        best: list[tuple[float, list[int], list[float]]] = [(0.0, [], [])]
        for mask_log_probs, mask_ids in zip(
            sorted_log_probs[:, : self.n_best].tolist(), sorted_ids[:, : self.n_best].tolist(), strict=True
        ):
            # The best fillings of all masks consist of the best tokens of each mask.
            extended = [
                (score + log_prob, [*filling_ids, token_id], [*filling_log_probs, log_prob])
                for score, filling_ids, filling_log_probs in best
                for log_prob, token_id in zip(mask_log_probs, mask_ids, strict=True)
                if log_prob > float("-inf")  # not allowed there
            ]
            if not extended:
                raise WorkError("the model predicts NaN for a gap: its weights may be damaged")
            best = sorted(extended, key=lambda filling: -filling[0])[: self.n_best]
        prediction, *alternatives = [self._filled(text, *filling) for filling in best]
        return replace(prediction, alternatives=alternatives, notes=text.notes, cut=text.n_cut)

    def _filled(
        self, text: MaskedTexts, score: float, filling_ids: Sequence[int], log_probs: list[float]
    ) -> Prediction:
        fillings = iter(filling_ids)
        texts = [[next(fillings) if i == SPECIALS.mask else i for i in ids] for ids in text.texts]
        return Prediction(
            PAIR_SEPARATOR.join(self.tokenizer.decode(ids) for ids in texts),
            score,
            self.tokenizer.tokens(filling_ids),
            log_probs,
            ids=tuple(filling_ids),
        )


def input_tokens(group: Sequence[MaskedTexts]) -> Tokens:
    """Return texts and pairs with special tokens, as the model reads them."""
    inputs = CLASS_TEMPLATE([masked.texts for masked in group]).inputs
    assert isinstance(inputs, Tokens)
    return inputs


def _with_masks(parts: Sequence[list[int]]) -> list[int]:
    """Join parts of a text with a mask between them."""
    first, *rest = parts
    return [*first, *(i for part in rest for i in (SPECIALS.mask, *part))]
