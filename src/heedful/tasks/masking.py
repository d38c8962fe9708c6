"""Masked language modelling: hidden tokens of running text are found again, and gaps are filled.

text -> token ids, documents end to end -> `Windows` -> hidden tokens -> model -> loss     `Maskings`
text with gaps -> token ids -> hidden states -> ids for the gaps -> text                  `Filler.predict`
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.masking import Draw, Masking
from heedful.data.plan import Lengths
from heedful.data.sentences import Sentences
from heedful.data.windows import Windows, ring
from heedful.errors import RequestError, WorkError
from heedful.nn.layout import Tokens
from heedful.tasks.grouping import longest_first
from heedful.tasks.language_modelling import TextCodec
from heedful.tasks.prediction import Prediction
from heedful.text.gaps import around_gaps
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

GAP = "[MASK]"
"""What stands for a gap in an input, unless said otherwise."""

# Tokens that are read together: of the rectangle [texts, longest].
BUDGET = 8192

FOLLOWS, STRANGE = 0, 1
"""Classes of pairs: the second text follows the first, or comes from elsewhere (BERT's numbers)."""


class Maskings:
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
        signs: what tells sentences, for pairs; None: windows as they are.
        seed: with epoch and sample, determines all randomness.
    """

    def __init__(
        self,
        ids: NDArray[Any],
        longest: int,
        masking: Masking,
        *,
        signs: SentenceSigns | None = None,
        seed: int,
    ) -> None:
        self.masking, self.seed = masking, seed
        self.sentences = None if signs is None else Sentences(ids, signs)
        self.n_parts = 1 if signs is None else 2
        # The windows' last token is foretold by language models; here it is read too.
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
            second, kind = self.sentences.elsewhere((second - 1) % size, draw), STRANGE
        return [self._stretch(start, cut), self._stretch(second, length - cut)], kind

    def _stretch(self, start: int, length: int) -> NDArray[np.int64]:
        return ring(self.windows.ids, np.array([start]), length)[0]


def word_beginnings(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """For each id whether it begins a word: its piece begins with white space.

    Raises:
        RequestError: the tokenizer's pieces do not tell.
    """
    found = [piece[:1].isspace() for piece in tokenizer.model.pieces]
    if tokenizer.model.config.kind == "word":
        found = [True] * len(found)
    if not any(found) or tokenizer.model.config.kind in {"character", "byte"}:
        raise RequestError(
            f"whole words cannot be told from the pieces of a {tokenizer.model.config.kind} tokenizer; "
            "hide single tokens, or take subwords"
        )
    return np.array(found)


@dataclass(frozen=True)
class Gapped:
    """A text with gaps, as ids.

    Args:
        ids: with a mask at each gap.
        gaps: the places of its gaps.
        spaced: of each gap whether its filling begins with a space.
        n_cut: tokens beyond those that are read.
    """

    ids: list[int]
    gaps: list[int]
    spaced: list[bool]
    n_cut: int


class Filler:
    """A model with its tokenizer: texts with gaps in, the texts with the gaps filled out.

    Each gap is filled by one token. A prediction's ``tokens`` and ``log_probs`` are those of the gaps, its
    ``score`` is their sum: gaps are filled independently of each other. A text without a gap comes back as it
    is, and the prediction says so.

    Args:
        model: has a head ``token``; put into evaluation mode here.
        codec: of the text.
        longest: the most tokens of a sequence; longer texts are cut, and the prediction says so.
        gap: what stands for a gap in the inputs.
        n_best: answers for each input.
        budget: tokens of the rectangle that is read together; bounds the memory.
    """

    def __init__(
        self,
        model: Any,
        codec: TextCodec,
        *,
        longest: int,
        gap: str = GAP,
        n_best: int = 1,
        budget: int = BUDGET,
    ) -> None:
        if not gap:
            raise RequestError("the text that stands for a gap cannot be empty")
        self.model, self.codec, self.longest = model.eval(), codec, longest
        self.gap, self.n_best, self.budget = gap, n_best, budget
        self.device = next(model.parameters()).device
        begins = [piece.startswith(b" ") for piece in codec.text.model.pieces]
        # Where no piece begins with a space, none can be asked for.
        self._without_space = torch.tensor([any(begins) and not own for own in begins], device=self.device)

    @torch.inference_mode()
    def predict(
        self,
        texts: Sequence[str],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Prediction]:
        """Fill the gaps.

        Args:
            texts: with gaps.
            alignment: refused: nothing is written that could be aligned.
            first: not used: nothing is drawn.
            progress: called with the number of texts just done.
        """
        if alignment:
            raise RequestError("a masked language model reads no source, so there is no alignment")
        gapped = [self.gapped(text) for text in texts]
        results = [
            Prediction(text, note=self._unfilled(text, own)) for text, own in zip(texts, gapped, strict=True)
        ]
        for group in self._groups(gapped):
            rows = [[SPECIALS.classify, *gapped[i].ids, SPECIALS.separate] for i in group]
            tokens = Tokens.of(rows, device=self.device)
            offsets = tokens.layout.offsets.tolist()
            places = [
                offset + 1 + gap for offset, i in zip(offsets, group, strict=False) for gap in gapped[i].gaps
            ]
            logits = self.model.heads["token"](self.model(tokens)[places]).float()
            log_probs = logits.log_softmax(-1)
            log_probs[:, : len(SPECIALS)] = float("-inf")
            spaced = torch.tensor([own for i in group for own in gapped[i].spaced], device=self.device)
            log_probs[spaced[:, None] & self._without_space] = float("-inf")
            each = iter(log_probs.cpu().split([len(gapped[i].gaps) for i in group]))
            for i in group:
                results[i] = self._prediction(gapped[i], next(each))
            progress(len(group))
        return results

    def gapped(self, text: str) -> Gapped:
        """The ids of a text, cut where it is too long, and the places of its gaps."""
        around = around_gaps(self.codec.text, text.split(self.gap))
        ids, gaps = list(around.parts[0]), []
        for part in around.parts[1:]:
            gaps.append(len(ids))
            ids += [SPECIALS.mask, *part]
        room = self.longest - 2
        gaps = [gap for gap in gaps if gap < room]
        return Gapped(ids[:room], gaps, around.spaced[: len(gaps)], max(0, len(ids) - room))

    def _unfilled(self, text: str, gapped: Gapped) -> str:
        """Why nothing was filled."""
        if gapped.n_cut and self.gap in text:
            return f"{self.gap} lies beyond the {len(gapped.ids)} tokens that are read"
        return f"there is no {self.gap} to fill"

    def _groups(self, gapped: Sequence[Gapped]) -> Iterator[list[int]]:
        """Indices of texts with gaps, longest first, cut into groups of bounded size."""
        lengths = {i: len(text.ids) + 2 for i, text in enumerate(gapped) if text.gaps}
        return longest_first(lengths, self.budget)

    def _prediction(self, text: Gapped, log_probs: torch.Tensor) -> Prediction:
        values, numbers = log_probs.sort(dim=-1, descending=True, stable=True)
        best: list[tuple[float, list[int], list[float]]] = [(0.0, [], [])]
        for row, ids in zip(
            values[:, : self.n_best].tolist(), numbers[:, : self.n_best].tolist(), strict=True
        ):
            # The best of all are among the best of each.
            longer = [
                (score + value, [*chosen, i], [*each, value])
                for score, chosen, each in best
                for value, i in zip(row, ids, strict=True)
                if value > float("-inf")  # what may not stand there
            ]
            if not longer:
                raise WorkError("what the model says of a gap is no number: its weights may be damaged")
            best = sorted(longer, key=lambda found: -found[0])[: self.n_best]
        note = f"cut by {text.n_cut} tokens" if text.n_cut else None
        first, *others = [self._filled(text, *found) for found in best]
        return replace(first, alternatives=others, note=note)

    def _filled(
        self, text: Gapped, score: float, chosen: Sequence[int], log_probs: list[float]
    ) -> Prediction:
        ids = list(text.ids)
        for gap, i in zip(text.gaps, chosen, strict=True):
            ids[gap] = i
        tokenizer = self.codec.text
        return Prediction(
            tokenizer.decode(ids), score, tokenizer.tokens(chosen), log_probs, ids=tuple(chosen)
        )
