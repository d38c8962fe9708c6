"""Features of an input, which are left out or replaced, and the answers whose change is measured.

A feature is a word of a text, with all its tokens, or a patch of an image. Words of the answer, masks and
special tokens are not features.

| task | answer | what is measured of it |
|---|---|---|
| classification, image classification | the label | its log-odds, log p / (1 - p) |
| multi-label classification | each label | its log-odds, the logit |
| tagging | the tag of each word | its log-odds |
| segmentation | each class, summed over its patches | its log-odds |
| question answering | the span | log-probability of its start plus that of its end |
| translation, summarisation, captions, completions | each word | its log-probability |
| masked language modelling | each filled mask | its log-probability |
| regression, similarity | the number | the number |

Log-odds are those against all other labels. Against the second most probable label alone, a word that decides
between the answer and a third label would seem to have no effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import RequestError
from heedful.nn.layout import Tokens
from heedful.tasks.model_input import INPUT, SOURCE, Axis, ModelInput
from heedful.text.scripts import NO_WORD
from heedful.text.specials import SPECIALS

SPACES = "\N{LOWER ONE EIGHTH BLOCK}\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
"""What stands for a space at the beginning of a token."""


@dataclass(frozen=True)
class Features:
    """The words or patches of an input.

    Args:
        axis: the name of the axis: that of the encoder's input if there is one.
        names: of each, as it is shown.
        tokens: the positions on the axis of each.
        is_image: whether they are patches.
        unknown: the indices of the words that the model reads as ``<unk>``, or with a part that it does.
    """

    axis: str
    names: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    is_image: bool = False
    unknown: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Answers:
    """Parts of an answer, each the sum over some prediction targets.

    Args:
        names: of each, as it is shown.
        targets: the indices of the targets of each.
        words: the word that each is about, as it is shown; empty if they are about the whole input.
    """

    names: tuple[str, ...]
    targets: tuple[tuple[int, ...], ...]
    words: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, values: Tensor) -> Tensor:
        """Sum values of targets ``[..., m]`` over those of each answer; NaN if one of them is."""
        return torch.stack([values[..., list(indices)].sum(-1) for indices in self.targets], dim=-1)


def features_of(prepared: ModelInput) -> Features:
    """Return the features of an input.

    Raises:
        RequestError: it has none.
    """
    name = INPUT if prepared.batch.source is None else SOURCE
    axis, targets = prepared.axes[name], prepared.targets
    if axis.grid is not None:
        places = range(axis.before, len(axis.tokens))
        return Features(name, axis.tokens[axis.before :], tuple((place,) for place in places), is_image=True)
    is_answered = targets.are_tokens and targets.axis == name
    answered = {*targets.positions[targets.n_given :]} if is_answered else set()
    words = tokens_by_word(axis)
    names = {word: axis.surface[word] for word in words}
    if is_continuation(prepared):
        # The answer may complete the last word.
        first = min(answered, default=0)
        for word, tokens in words.items():
            if tokens[0] < first <= tokens[-1]:
                words[word] = tuple(token for token in tokens if token < first)
                names[word] = "".join(axis.tokens[token] for token in words[word]).lstrip(SPACES)
        words = {word: tokens for word, tokens in words.items() if tokens[-1] < first}
    features = {word: tokens for word, tokens in words.items() if not answered.intersection(tokens)}
    if not features:
        raise RequestError("the input has no words besides the answer, so that none can be left out")
    side = prepared.batch.inputs if name == INPUT else prepared.batch.source
    assert isinstance(side, Tokens)
    is_unknown = (side.ids == SPECIALS.unknown).tolist()
    unknown = [i for i, tokens in enumerate(features.values()) if any(is_unknown[n] for n in tokens)]
    return Features(
        name, tuple(names[word] for word in features), tuple(features.values()), unknown=tuple(unknown)
    )


def is_continuation(prepared: ModelInput) -> bool:
    """Whether the answer follows the input in the same text."""
    rows, targets = prepared.batch.rows, prepared.targets
    if rows is None or not targets.are_tokens or targets.axis != INPUT:
        return False
    return rows.tolist() != [*targets.positions]


def tokens_by_word(axis: Axis) -> dict[int, tuple[int, ...]]:
    """Return the positions of the tokens of each word."""
    tokens: dict[int, tuple[int, ...]] = {}
    for position, word in enumerate(axis.words):
        if word != NO_WORD:
            tokens[word] = (*tokens.get(word, ()), position)
    return tokens


def answers_of(prepared: ModelInput) -> Answers:
    """Return the parts of the answer of an input that the model predicted.

    Raises:
        RequestError: the answer is empty.
    """
    targets = prepared.targets
    indices = range(targets.n_given, len(targets))
    if not indices:
        raise RequestError("the answer is empty, so there is nothing that words can change")
    names, axis = targets.names, prepared.axes[targets.axis]
    if targets.are_positions:
        return Answers((prepared.answer.text or "no answer",), (tuple(indices),))
    if not targets.positions:
        return Answers(tuple(names[i] for i in indices), tuple((i,) for i in indices))
    if axis.grid is not None:
        return _grouped([(names[i], names[i], i) for i in indices])
    words = [axis.words[targets.positions[i]] if axis.words else NO_WORD for i in indices]
    if targets.are_tokens:
        return _grouped(
            [
                (f"token {i}", names[i], i) if word == NO_WORD else (f"word {word}", axis.surface[word], i)
                for i, word in zip(indices, words, strict=True)
            ]
        )
    surface = tuple("" if word == NO_WORD else axis.surface[word] for word in words)
    return Answers(tuple(names[i] for i in indices), tuple((i,) for i in indices), surface)


def _grouped(rows: Sequence[tuple[str, str, int]]) -> Answers:
    """Group targets, each with the key of its group and the name of that."""
    names = {key: name for key, name, _ in reversed(rows)}
    groups: dict[str, list[int]] = {}
    for key, _, index in rows:
        groups.setdefault(key, []).append(index)
    return Answers(tuple(names[key] for key in groups), tuple(tuple(group) for group in groups.values()))
