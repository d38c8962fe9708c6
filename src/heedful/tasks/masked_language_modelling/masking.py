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
from heedful.data.windows import Sentences, Windows, ring
from heedful.errors import RequestError, WorkError
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.objectives.classification import class_logits
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, group_by_length, join_notes, truncate, unknown_note
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput, as_texts
from heedful.text.parts import around_masks
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

MASK = "[MASK]"
"""The default text for a mask in an input."""

PAIR_SEPARATOR = "\t"
"""Separates the two texts of a pair."""

# Tokens that are read together: of the rectangle [texts, longest].
BUDGET = 8192

FOLLOWS, UNRELATED = 0, 1
"""Classes of pairs: the second text follows the first, or comes from elsewhere (BERT's numbers)."""


class MaskedBatches:
    """Batches of windows of running text, with tokens hidden, as pairs or as they are.

    A window has the class token before it and a separator after it. Pairs are made as by Devlin et al. 2019
    (section 3.1 and appendix A.2):

    - A window begins at a sentence: it is moved on to the next that begins in it, if any. All windows keep
      their length, so what one ends with may be read again by the next; no two of an epoch begin at the same
      place.
    - It is cut in two where a sentence begins in it, each with equal probability; not where a document does,
      which does not follow, unless that is all there is. Where no sentence begins, it is cut at any token.
    - Half of the second parts, by chance, are replaced by as many tokens of another document than the one in
      which the first part ends: a token is drawn from all of theirs, and its sentence is read from its
      beginning. Like windows, these run on where a document ends. In a text of one document they come from
      anywhere in it, and chance may find the very place that follows.

    BERT ends both parts with a sentence, unless they are too long; here every sequence is full, so the second
    may end in the midst of one.

    Args:
        ids: the stream.
        longest: tokens of a sequence, special ones included.
        masking: how tokens are hidden.
        signs: where sentences begin, for pairs; None: windows as they are.
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
        """The batch of some windows in some epoch."""
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
            hidden.append(self.masking.hide(sequences[-1], draw))
        return Batch.masked(
            sequences,
            hidden,
            segments=segments if self.sentences else None,
            classes=classes if self.sentences else None,
            samples=samples,
        )

    def _parts(self, start: int, draw: Draw) -> tuple[list[NDArray[np.int64]], int]:
        """The texts of a sequence, and of a pair its class."""
        length, size = self.windows.length, len(self.windows.ids)
        if self.sentences is None:
            return [self._stretch(start, length)], FOLLOWS
        moved = self.sentences.forward(start)
        start = (start + moved) % size if moved < length else start
        cuts = self.sentences.inside(start, length)
        cut = int(cuts[draw.below(len(cuts))]) if len(cuts) else 1 + draw.below(length - 1)
        second, kind = (start + cut) % size, FOLLOWS
        if draw.floats(1)[0] >= 0.5:
            second, kind = self.sentences.elsewhere((second - 1) % size, draw), UNRELATED
        return [self._stretch(start, cut), self._stretch(second, length - cut)], kind

    def _stretch(self, start: int, length: int) -> NDArray[np.int64]:
        return ring(self.windows.ids, np.array([start]), length)[0]


WITHOUT_WORDS = frozenset({"character", "byte"})
"""Kinds of tokenizers of which no piece shows whether it begins a word."""


def word_beginnings(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """For each id whether it begins a word: its piece begins with white space.

    Raises:
        RequestError: if the tokenizer's pieces do not show where words begin.
    """
    begins = [piece[:1].isspace() for piece in tokenizer.model.pieces]
    if tokenizer.model.config.kind == "word":
        begins = [True] * len(begins)
    if not any(begins) or tokenizer.model.config.kind in WITHOUT_WORDS:
        raise RequestError(
            f"the pieces of a {tokenizer.model.config.kind} tokenizer do not show where words begin; "
            "hide single tokens, or take subwords"
        )
    return np.array(begins)


@dataclass(frozen=True)
class MaskedTexts:
    """A text with masks, or a pair of them, as ids.

    Args:
        texts: of each text its ids.
        spaced: of each mask whether its filling begins with a space.
        n_cut: tokens beyond those that are read.
        unknown: a note about words that are not in the vocabulary.
    """

    texts: list[list[int]]
    spaced: list[bool]
    n_cut: int
    unknown: str | None = None

    @property
    def n_masks(self) -> int:
        """How many there are in all."""
        return len(self.spaced)

    @property
    def note(self) -> str | None:
        """Whether it was cut, and what is unknown."""
        return join_notes(f"cut by {self.n_cut} tokens" if self.n_cut else None, self.unknown)


class MaskFiller:
    """Fills masks in texts.

    An input may be a pair of texts, ``<cls> a <sep> b <sep>``; the answer has a tab between them then, and
    has the probability that the second follows the first, if the model has learned that.

    Each mask is filled by one token. A prediction's ``tokens`` and ``log_probs`` are those of the masks, its
    ``score`` is their sum: masks are filled independently of each other. A text without a mask comes back as
    it is, and the prediction notes it.

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
        budget: int = BUDGET,
    ) -> None:
        self.mask = MASK if options.gap is None else options.gap
        if not self.mask:
            raise RequestError("gap: must not be empty")
        self.model, self.tokenizer, self.longest = model, tokenizer, longest
        self.n_best, self.progress, self.budget = options.n_best or 1, options.progress, budget
        self.device = next(model.parameters()).device
        begins = [piece.startswith(b" ") for piece in tokenizer.model.pieces]
        # Where no piece begins with a space, none can be asked for.
        self._without_space = torch.tensor([any(begins) and not own for own in begins], device=self.device)

    @torch.inference_mode()
    def predict(self, inputs: Sequence[TaskInput]) -> list[Prediction]:
        """Fill the masks of texts, or of pairs of texts."""
        texts = [as_texts(task_input) for task_input in inputs]
        masked = [self.masked(own) for own in texts]
        results = [
            Prediction(PAIR_SEPARATOR.join(own), note=self._unfilled(own, ids), cut=ids.n_cut)
            for own, ids in zip(texts, masked, strict=True)
        ]
        for group in self._groups(masked):
            some = [masked[i] for i in group]
            tokens = input_tokens(some).to(self.device)
            hidden = self.model(tokens)
            log_probs = self._log_probs(tokens, hidden, some)
            follows = self._follows(tokens, hidden) if any(map(self._is_judged, some)) else ()
            for n, i in enumerate(group):
                filled = self._prediction(some[n], log_probs[n]) if some[n].n_masks else results[i]
                results[i] = replace(filled, follows=follows[n]) if self._is_judged(some[n]) else filled
            self.progress(len(group))
        return results

    def _log_probs(self, inputs: Tokens, hidden: Tensor, group: Sequence[MaskedTexts]) -> Sequence[Tensor]:
        """Of each input the log-probabilities ``[masks, V]`` of the tokens that may fill its masks."""
        logits = self.model.heads["token"](hidden[inputs.ids == SPECIALS.mask]).float()
        log_probs = logits.log_softmax(-1)
        log_probs[:, : len(SPECIALS)] = float("-inf")
        spaced = torch.tensor([own for masked in group for own in masked.spaced], device=self.device)
        log_probs[spaced.bool()[:, None] & self._without_space] = float("-inf")
        return log_probs.cpu().split([masked.n_masks for masked in group])

    def _is_judged(self, masked: MaskedTexts) -> bool:
        """Whether to predict if the second text follows: for pairs, with a model that has learned it."""
        return len(masked.texts) > 1 and "next" in self.model.heads

    def _follows(self, inputs: Tokens, hidden: Tensor) -> Sequence[float]:
        """Of each pair how probable it is that its second text follows; of single texts it means nothing."""
        logits = class_logits(hidden, self.model.heads, inputs.layout, "next")
        return logits.softmax(-1)[:, FOLLOWS].tolist()

    def masked(self, texts: Sequence[str]) -> MaskedTexts:
        """The ids of a text or a pair, cut where they are too long."""
        around = [around_masks(self.tokenizer, text.split(self.mask)) for text in texts]
        whole = [_with_masks(own.parts) for own in around]
        kept = [list(ids) for ids in truncate(whole, self.longest)]
        # No text spells a special token, so all masks are those of the input; the first ones are kept.
        spaced = [own.spaced[: ids.count(SPECIALS.mask)] for own, ids in zip(around, kept, strict=True)]
        n_cut = sum(map(len, whole)) - sum(map(len, kept))
        known = [part for text in texts for part in text.split(self.mask)]
        unknown = unknown_note(self.tokenizer, known, whole)
        return MaskedTexts(kept, list(chain.from_iterable(spaced)), n_cut, unknown)

    def _unfilled(self, texts: Sequence[str], masked: MaskedTexts) -> str | None:
        """Why nothing was filled; nothing of a pair, which is asked for another answer too."""
        if masked.n_cut and any(self.mask in text for text in texts):
            return f"{self.mask} lies beyond the {sum(map(len, masked.texts))} tokens that are read"
        if self._is_judged(masked):
            return masked.note
        return f"there is no {self.mask} to fill"

    def _groups(self, masked: Sequence[MaskedTexts]) -> Iterator[list[int]]:
        """Indices of what is asked something, longest first, cut into groups of bounded size."""
        lengths = {
            i: sum(map(len, own.texts)) + CLASS_TEMPLATE.n_specials(len(own.texts))
            for i, own in enumerate(masked)
            if own.n_masks or self._is_judged(own)
        }
        return group_by_length(lengths, self.budget)

    def _prediction(self, text: MaskedTexts, log_probs: Tensor) -> Prediction:
        values, numbers = log_probs.sort(dim=-1, descending=True, stable=True)
        best: list[tuple[float, list[int], list[float]]] = [(0.0, [], [])]
        for row, ids in zip(
            values[:, : self.n_best].tolist(), numbers[:, : self.n_best].tolist(), strict=True
        ):
            # The best of all are among the best of each.
            longer = [
                (score + value, [*chosen, i], [*own, value])
                for score, chosen, own in best
                for value, i in zip(row, ids, strict=True)
                if value > float("-inf")  # not allowed there
            ]
            if not longer:
                raise WorkError("the model predicts NaN for a gap: its weights may be damaged")
            best = sorted(longer, key=lambda filling: -filling[0])[: self.n_best]
        first, *others = [self._filled(text, *filling) for filling in best]
        return replace(first, alternatives=others, note=text.note, cut=text.n_cut)

    def _filled(
        self, text: MaskedTexts, score: float, chosen: Sequence[int], log_probs: list[float]
    ) -> Prediction:
        fillings = iter(chosen)
        texts = [[next(fillings) if i == SPECIALS.mask else i for i in ids] for ids in text.texts]
        return Prediction(
            PAIR_SEPARATOR.join(self.tokenizer.decode(ids) for ids in texts),
            score,
            self.tokenizer.tokens(chosen),
            log_probs,
            ids=tuple(chosen),
        )


def input_tokens(group: Sequence[MaskedTexts]) -> Tokens:
    """Texts and pairs as the model reads them."""
    inputs = CLASS_TEMPLATE([masked.texts for masked in group]).inputs
    assert isinstance(inputs, Tokens)
    return inputs


def _with_masks(parts: Sequence[list[int]]) -> list[int]:
    """The parts with a mask between each and the next."""
    first, *others = parts
    return [*first, *(i for part in others for i in (SPECIALS.mask, *part))]
