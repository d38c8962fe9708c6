"""Activation patching: which activations carry the difference between two inputs.

    r = (v(patched) - v(corrupted)) / (v(clean) - v(corrupted))

v is the measured number (`heedful.explain.attribution.features`) of the answer to the clean input. v(patched)
is that of the corrupted input if one of its activations is replaced by that of the clean input. r is 0 if the
patch changes nothing, and 1 if it restores the value of the clean input.

The corrupted input differs in some tokens and has as many; its tokens take the place of the clean ones in the
batch of the clean input, with the same answer, so that positions and targets are the same.

Sources: Vig et al. 2020 (causal mediation analysis of heads); Meng et al. 2022, section 2 (hidden states by
layer and token); Zhang and Nanda 2024 (corruption by another input; what to measure).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.errors import RequestError
from heedful.explain.attribution.features import is_continuation
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.variants import make_variants, target_values
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import capture, intervene
from heedful.tasks.model_input import INPUT, INSERTED, SOURCE, ModelInput
from heedful.tasks.prediction import BATCH_TOKENS

REMEDY = "replace words by words with as many tokens (heedful explain RUN TEXT --tokens shows them)"


@dataclass(frozen=True, eq=False)
class Patching:
    """A clean and a corrupted input, with the activations of both.

    Args:
        clean: the clean input.
        corrupted: the corrupted input, with the answer to the clean one.
        values: what is measured of each part of the answer, of the clean and of the corrupted input.
        activations: by tap, of both: ``[units, ...]``. Units are tokens ``[T, d]``, or heads ``[H, T, d_v]``.
    """

    clean: Measured
    corrupted: Measured
    values: tuple[Float[Tensor, " answers"], Float[Tensor, " answers"]]
    activations: Mapping[str, tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, model: Model, clean: ModelInput, corrupted: ModelInput, taps: Iterable[str]) -> "Patching":
        """Run a model on both inputs.

        Args:
            model: the model, in evaluation mode.
            clean: the clean input and its answer.
            corrupted: the corrupted input; its answer is not used.
            taps: names of taps of the residual stream (``….output``) or of heads (``….mixed``).

        Raises:
            RequestError: the inputs have different numbers of tokens, or the answer is empty.
        """
        measured = Measured.of(model, clean)
        both = (measured, replace(measured, prepared=with_tokens_of(clean, corrupted)))
        names, values, seen = [*taps], [], []
        for each in both:
            with capture(model, dict.fromkeys(names)) as captured:
                values.append(each.values([{}])[0])
            seen.append({name: _without_batch(captured[name][-1]) for name in names})
        activations = {name: (seen[0][name], seen[1][name]) for name in names}
        return cls(*both, (values[0], values[1]), activations)

    def changed(self, tap: str) -> list[int]:
        """Return the units whose activations differ between the inputs."""
        clean, corrupted = self.activations[tap]
        return (clean != corrupted).flatten(1).any(1).nonzero().flatten().tolist()

    @torch.no_grad()
    def patched(
        self, tap: str, units: Sequence[Iterable[int]], *, budget: int = BATCH_TOKENS
    ) -> Float[Tensor, "n answers"]:
        """Return what is measured if units of the clean input replace those of the corrupted one.

        Args:
            tap: the tap.
            units: those that are replaced together, for each patch.
            budget: maximum number of tokens of a batch.
        """
        changed = {*self.changed(tap)}
        patches = [changed.intersection(each) for each in units]
        found = self.values[1].repeat(len(patches), 1)
        rows = [row for row, patch in enumerate(patches) if patch]
        size = max(1, budget // self.corrupted.length)
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            found[batch] = self._measured(tap, [sorted(patches[row]) for row in batch])
        return found

    def _measured(self, tap: str, patches: Sequence[Sequence[int]]) -> Float[Tensor, "n answers"]:
        """Run the corrupted input once for each patch, in one batch."""
        measured, clean = self.corrupted, self.activations[tap][0]
        rows = [row for row, patch in enumerate(patches) for _ in patch]
        units = [unit for patch in patches for unit in patch]

        def put(activations: Tensor) -> Tensor:
            # All rows of the batch have the same length, so that it has no padding.
            new = activations.reshape(len(patches), *clean.shape).clone()
            new[rows, units] = clean[units]
            return new.reshape(activations.shape)

        variants = make_variants(measured.prepared, measured.features, [{}] * len(patches))
        targets, as_log_odds = measured.prepared.targets, measured.is_of_classes
        with intervene(measured.model, {tap: put}):
            values = target_values(measured.model, targets, variants, as_log_odds=as_log_odds)
        return measured.answers.sums(values.double())


def _without_batch(activations: Tensor) -> Tensor:
    """Return ``[T, d]`` unchanged, and ``[H, T, d_v]`` of ``[1, H, T, d_v]``."""
    return activations[0] if activations.dim() == 4 else activations


def n_patched(prepared: ModelInput) -> int:
    """Return the number of tokens of an input, without an answer that follows it in the same text."""
    targets = prepared.targets
    if is_continuation(prepared):
        return targets.positions[targets.n_given]
    return len(prepared.axes[side_of(prepared)].tokens)


def side_of(prepared: ModelInput) -> str:
    """Return the name of the axis of an input, that of the encoder if there is one."""
    return INPUT if prepared.batch.source is None else SOURCE


def with_tokens_of(clean: ModelInput, corrupted: ModelInput) -> ModelInput:
    """Return the clean input with the tokens of the corrupted one, and the answer to the clean one.

    Raises:
        RequestError: the numbers of tokens, or the positions of special tokens or answers, are different.
    """
    old, new = (each.batch.source or each.batch.inputs for each in (clean, corrupted))
    if isinstance(new, Images):
        return _with_side(clean, new)
    assert isinstance(old, Tokens)
    n, n_corrupted = n_patched(clean), n_patched(corrupted)
    if n != n_corrupted:
        raise RequestError(
            f"activation patching needs inputs with equal numbers of tokens, got {n} and {n_corrupted}; "
            f"{REMEDY}"
        )
    ids = torch.cat((new.ids[:n], old.ids[n:]))
    if _specials(ids) != _specials(old.ids) or not _predict_alike(clean, corrupted):
        raise RequestError(
            "activation patching needs inputs whose separators, masks and tagged words are at the same "
            f"positions; {REMEDY}"
        )
    return _with_side(clean, replace(old, ids=ids))


def _with_side(prepared: ModelInput, side: Tokens | Images) -> ModelInput:
    """Return the input with other tokens or another image for the encoder, or the model if it has none."""
    batch = prepared.batch
    new = replace(batch, inputs=side) if batch.source is None else replace(batch, source=side)
    return replace(prepared, batch=new)


def _specials(ids: Tensor) -> list[tuple[int, int]]:
    """Return the special tokens of a text, with their positions."""
    return [(position, token) for position, token in enumerate(ids.tolist()) if token in INSERTED]


def _predict_alike(clean: ModelInput, corrupted: ModelInput) -> bool:
    """Whether the targets, if they belong to tokens of the input, are at the same positions."""
    targets = clean.targets
    if targets.are_tokens or targets.are_positions or targets.axis != side_of(clean):
        return True
    return targets.positions == corrupted.targets.positions
