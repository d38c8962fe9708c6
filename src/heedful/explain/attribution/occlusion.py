"""Occlusion: by how much the answer falls if a word or patch is left out, or replaced.

    a_w = v(x) - 1/n sum_i v(x with w replaced by r_i)

v is the measured number (`heedful.explain.attribution.features`). If a_w is positive, v is lower without
w: w supports the answer. Source: Zeiler and Fergus 2014, section 4.2 (patches); Li et al. 2016,
"Understanding neural networks through representation erasure", equation 1 (words).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from heedful.explain.attribution.features import Features
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.replacements import Replacements
from heedful.explain.attribution.variants import Edit

DRAWS = 20
"""Words that replace each word."""


def occlusion(
    measured: Measured, replacements: Replacements | None = None, *, draws: int = DRAWS, seed: int = 0
) -> Float[Tensor, "features answers"]:
    """Return the effect of each feature on each answer.

    Args:
        measured: the input.
        replacements: what replaces a feature; None: it is left out.
        draws: number of replacements of each feature, whose mean is taken.
        seed: of the draws.

    Returns:
        The effects; NaN where the answer is gone without the feature (the tag of a word that is left out).
    """
    singles = [[index] for index in range(len(measured.features))]
    return effects(measured, singles, replacements, draws=draws, seed=seed)


def effects(
    measured: Measured,
    sets: Sequence[Sequence[int]],
    replacements: Replacements | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    as_probability: bool = False,
) -> Float[Tensor, "sets answers"]:
    """Return the effect of several features together on each answer, for each set of features.

    Args:
        measured: the input.
        sets: the indices of the features of each set.
        replacements: as of `occlusion`.
        draws: as of `occlusion`.
        seed: as of `occlusion`.
        as_probability: measure probabilities, not log-odds; numbers are unchanged.
    """
    draws = 1 if replacements is None else draws
    edits: list[Edit] = [{}]
    for chosen in sets:
        edits += [edit_of(measured.features, chosen, replacements, (seed, draw)) for draw in range(draws)]
    values = measured.values(edits, as_probability=as_probability)
    if as_probability and measured.prepared.targets.numbers is None:
        values = values.exp()
    return values[0] - values[1:].unflatten(0, (len(sets), draws)).mean(1)


def edit_of(
    features: Features,
    chosen: Iterable[int],
    replacements: Replacements | None,
    seed: int | tuple[int, ...],
) -> Edit:
    """Return the edit that removes features.

    Args:
        features: those of the input.
        chosen: the indices of those that are removed.
        replacements: as of `occlusion`.
        seed: of the draw. The same words replace each feature, so that effects differ by the feature, not by
            the draw.
    """
    if replacements is None:
        return dict.fromkeys(chosen, ())
    generator = np.random.default_rng(seed)
    return {index: replacements.draw(generator, features, index) for index in chosen}
