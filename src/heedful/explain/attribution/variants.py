"""Variants of an input in which words are left out or replaced, or patches overwritten; several in a batch.

A variant is made of the ids that the model reads, not of text: what is left out are the tokens of a word, and
the words around it keep theirs. Positions close up, as if the word had not been written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.data.batch import Batch
from heedful.explain.attribution.features import Features
from heedful.models.base import Model
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.tasks.model_input import INPUT, ModelInput, PredictionTargets

Content = Sequence[int] | Float[Tensor, "C h w"]
"""What a feature is replaced by: token ids, none if it is left out; or the pixels of a patch."""

Edit = Mapping[int, Content]
"""The features that a variant changes, by their index."""

GONE = -1
"""The new position of a token that was left out."""


@dataclass(frozen=True, eq=False)
class Variants:
    """Variants of one input as a batch; each row of logits is a target of a variant.

    Args:
        batch: what the model reads.
        n: number of variants.
        variant: of each row, the index of its variant.
        target: of each row, the index of its target.
        answer: of each row, the index of its answer; `GONE` if the variant does not have it.
    """

    batch: Batch
    n: int
    variant: Tensor
    target: Tensor
    answer: Tensor


def make_variants(prepared: ModelInput, features: Features, edits: Sequence[Edit]) -> Variants:
    """Return a variant for each edit."""
    batch, targets = prepared.batch, prepared.targets
    side = batch.inputs if features.axis == INPUT else batch.source
    if isinstance(side, Images):
        edited: Tokens | Images = _edited_images(side, prepared, features, edits)
        moves = [[*range(len(prepared.axes[features.axis].tokens))]] * len(edits)
    else:
        assert isinstance(side, Tokens)
        edited, moves = _edited_tokens(side, features, edits)
    if features.axis == INPUT:
        inputs, source = edited, None
    else:
        inputs, source, moves = _repeated(batch.inputs, len(edits)), edited, []
    rows, *labels = _rows(batch, targets, inputs.layout, moves, len(edits))
    device = inputs.layout.device
    variant, target, answer = (torch.tensor(column, dtype=torch.int64, device=device) for column in labels)
    row_tensor = None if rows is None else torch.tensor(rows, dtype=torch.int64, device=device)
    new = Batch(inputs, answer, source, rows=row_tensor)
    return Variants(new, len(edits), variant, target, answer)


def _repeated(side: Tokens | Images, n: int) -> Tokens | Images:
    layout = Layout.of(side.layout.lengths * n, device=side.layout.device)
    if isinstance(side, Images):
        return Images(side.pixels.repeat(n, 1, 1, 1), layout)
    return Tokens(side.ids.repeat(n), layout, None if side.segments is None else side.segments.repeat(n))


def _edited_tokens(side: Tokens, features: Features, edits: Sequence[Edit]) -> tuple[Tokens, list[list[int]]]:
    """Return the variants of a text, and for each the new position of every token."""
    ids, device = side.ids.tolist(), side.ids.device
    segments = [0] * len(ids) if side.segments is None else side.segments.tolist()
    owner = {token: index for index, tokens in enumerate(features.tokens) for token in tokens}
    all_ids: list[list[int]] = []
    all_segments: list[int] = []
    moves = []
    for edit in edits:
        new_ids: list[int] = []
        move = []
        for position, (token, segment) in enumerate(zip(ids, segments, strict=True)):
            content = edit.get(owner.get(position, GONE))
            if content is None:
                move.append(len(new_ids))
                new_ids.append(token)
                all_segments.append(segment)
                continue
            tokens = features.tokens[owner[position]]
            if position == tokens[0]:
                first = len(new_ids)
                new_ids += content
                all_segments += [segment] * len(content)
            place = len(content) - 1 if position == tokens[-1] else tokens.index(position)
            move.append(first + min(place, len(content) - 1) if len(content) else GONE)
        all_ids.append(new_ids)
        moves.append(move)
    edited = Tokens.of(all_ids, device=device)
    if side.segments is not None:
        edited = replace(edited, segments=torch.tensor(all_segments, dtype=torch.int64, device=device))
    return edited, moves


def _edited_images(side: Images, prepared: ModelInput, features: Features, edits: Sequence[Edit]) -> Images:
    """Return the variants of an image; a patch that is left out gets the mean of the training data, 0."""
    grid = prepared.axes[features.axis].grid
    assert grid is not None
    repeated = _repeated(side, len(edits))
    assert isinstance(repeated, Images)
    pixels = repeated.pixels.clone()
    for image, edit in zip(pixels, edits, strict=True):
        for index, content in edit.items():
            patch = image[(slice(None), *patch_slices(index, grid, image.shape[1:]))]
            patch[...] = content if isinstance(content, Tensor) else 0.0
    return Images(pixels, repeated.layout)


def patch_slices(index: int, grid: tuple[int, int], size: Sequence[int]) -> tuple[slice, slice]:
    """Return the rows and columns of pixels of a patch, given its index in row-major order.

    Patch i of n covers the pixels from ``floor(i H / n)`` up to ``floor((i + 1) H / n)``.
    """
    down, across = divmod(index, grid[1])
    return (
        slice(down * size[0] // grid[0], (down + 1) * size[0] // grid[0]),
        slice(across * size[1] // grid[1], (across + 1) * size[1] // grid[1]),
    )


def _rows(
    batch: Batch, targets: PredictionTargets, layout: Layout, moves: Sequence[Sequence[int]], n: int
) -> tuple[list[int] | None, list[int], list[int], list[int]]:
    """Return the hidden states that have a target (None: all), and variant, target and answer of each.

    Args:
        batch: that of the input itself.
        targets: its targets.
        layout: that of the variants.
        moves: the new position of every token of the axis of the targets; empty: all unchanged.
        n: number of variants.
    """
    answers, old_rows = targets.answers.tolist(), None if batch.rows is None else batch.rows.tolist()
    starts = [0, *accumulate(layout.lengths)]
    rows: list[int] = []
    variant, target, answer = [], [], []
    for i in range(n):
        move = moves[i] if moves else range(starts[i + 1] - starts[i])
        for j, index in enumerate(answers):
            if old_rows and targets.positions:
                # A token is predicted at itself (a tag), or at the token before it (the next token).
                before = targets.positions[j] - old_rows[j]
                new = move[targets.positions[j]]
                if new == GONE or new < before:
                    continue
                rows.append(starts[i] + new - before)
            variant.append(i)
            target.append(j)
            answer.append(move[index] if targets.are_positions else index)
    return (None if old_rows is None else rows), variant, target, answer


def target_values(
    model: Model, targets: PredictionTargets, variants: Variants, *, as_log_odds: bool
) -> Float[Tensor, "n m"]:
    """Return what is measured (see `heedful.explain.attribution.features`) of each target; NaN if it is gone.

        log-odds of class a:    log p_a / (1 - p_a) = z_a - log sum_{c != a} exp z_c

    Args:
        model: the model, in evaluation mode.
        targets: the targets of the input.
        variants: of the input.
        as_log_odds: return log-odds instead of log-probabilities; numbers are unchanged.
    """
    batch = variants.batch
    hidden = model(batch.inputs, batch.source)
    if targets.numbers is not None:
        return targets.numbers(hidden, batch).view(variants.n, -1)
    values, start = [], 0
    for chunk in targets.logits(hidden, batch):
        logits, answer = chunk.float(), variants.answer[start : start + len(chunk), None]
        start += len(chunk)
        chosen = logits.gather(1, answer.clamp(min=0))
        others = logits.scatter(1, answer.clamp(min=0), float("-inf")) if as_log_odds else logits
        values.append((chosen - others.logsumexp(1, keepdim=True)).masked_fill(answer == GONE, float("nan")))
    found = torch.full((variants.n, len(targets)), float("nan"), device=hidden.device)
    return found.index_put((variants.variant, variants.target), torch.cat(values)[:, 0])
