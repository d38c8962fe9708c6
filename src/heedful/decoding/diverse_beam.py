"""Diverse beam search.

Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes".

The beam is divided into groups of equal size. Each group is a beam search of its own, but at every step the
groups choose one after another, and a token that hypotheses of earlier groups have just chosen is less
preferred: with Hamming diversity, a continuation by token y is ranked by

    log P(y_1 … y_t | X) - diversity * |{hypotheses of earlier groups that continue with y at step t}|

The term concerns the choice at one step and is not summed over the steps. The end token has none: all texts
have to end. Scores of hypotheses are those of the model, without it.

Axes as in `heedful.decoding.beam`, of which this is the search, with a list of hypotheses for each group;
G groups of a sentence, B active sentences.
"""

from itertools import zip_longest
from typing import Literal

import numpy as np
import torch
from pydantic import model_validator

from heedful.decoding.allocation import NEVER, Candidates
from heedful.decoding.beam import BeamSettings, Search, SearchResult, candidates_in
from heedful.decoding.probabilities import ranked
from heedful.decoding.protocol import Hypothesis, Request, Width
from heedful.decoding.scoring import NotNegative


class DiverseBeamConfig(BeamSettings):
    """Beam search with groups that differ (`heedful.decoding.diverse_beam.diverse_beam_search`).

    Args:
        groups: number of groups; it divides ``beam``. null: a group for each hypothesis, the most diverse.
        diversity: how much a token is less preferred for each hypothesis of earlier groups that chose it at
            the same step, in nats; 0: all groups find the same.
    """

    kind: Literal["diverse-beam"] = "diverse-beam"
    groups: Width | None = None
    diversity: NotNegative = 0.5

    @model_validator(mode="after")
    def _groups_are_equal(self) -> "DiverseBeamConfig":
        if self.beam % self.n_groups:
            raise ValueError(f"groups must divide beam ({self.beam}), got {self.groups}")
        return self

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return self.beam if self.groups is None else self.groups


@torch.no_grad()
def diverse_beam_search(request: Request, config: DiverseBeamConfig) -> list[list[Hypothesis]]:
    """Search with groups of hypotheses that avoid each other's tokens; see the module docstring.

    Within a group, everything is as in `heedful.decoding.beam.beam_search`, which this equals with one group.
    A group continues, and is avoided by later ones, until all groups of its sentence are done, so the result
    does not depend on ``n_best``; a group of one hypothesis ends with it. Required phrases are not searched
    for: outputs without them cannot end.

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses: the best of each group by descending
        score, then the second of each, and so on; with ``unfinished="drop"``, all finished ones come first,
        and always those that hold their constraints. One that several groups found is returned once. Scores
        have no diversity term.

    Raises:
        WorkError, RequestError: as in `heedful.decoding.beam.beam_search`.
    """
    n = config.n_groups
    results = Search(request, config, _diverse_continuations, n).results()
    return [_merged(results[start : start + n], config) for start in range(0, len(results), n)]


def _diverse_continuations(search: Search) -> Candidates:
    """Return the best ``2 * width`` continuations of each group, after those of the groups before it."""
    assert isinstance(search.config, DiverseBeamConfig)
    (logits, blocked), request = search.restricted(), search.request
    # Less than a beam of tokens are penalised, so the best are among these.
    n = 2 * search.config.beam
    log_probs, ids = ranked(logits, request.banned, n, search.position, blocked)
    totals = (search.sums.reshape(-1, 1) + log_probs).reshape(len(search.sums), -1)
    by_group = (len(search.sentences), search.n_lists, totals.shape[1])
    group_totals, tokens = totals.reshape(by_group), ids.reshape(by_group)
    chosen, orders = np.full((by_group[0], 0), -1), []
    for group in range(search.n_lists):
        n_chosen = (tokens[:, group, :, None] == chosen[:, None, :]).sum(axis=2)
        preferred = group_totals[:, group] - search.config.diversity * n_chosen
        order = (-preferred).argsort(axis=1, kind="stable")[:, : 2 * search.width]
        orders.append(order)
        picked = np.take_along_axis(tokens[:, group], order, axis=1)
        is_live = np.take_along_axis(group_totals[:, group], order, axis=1) > NEVER
        continues = (picked != request.end) & is_live
        continues &= continues.cumsum(axis=1) <= search.width
        if search.width == 1:  # It ends, or goes on with its best token.
            continues[:, 1:] = False
        chosen = np.concatenate([chosen, np.where(continues, picked, -1)], axis=1)
    order = np.stack(orders, axis=1).reshape(len(totals), -1)
    return candidates_in(order, totals, log_probs, ids)


def _merged(results: list[SearchResult], config: DiverseBeamConfig) -> list[Hypothesis]:
    """Return the hypotheses of all groups of a sentence in the order described above."""
    rounds = zip_longest(*(result.hypotheses() for result in results))
    ranks: dict[tuple[tuple[int, ...], bool], tuple[tuple[bool, int, int, float], Hypothesis]] = {}
    for number, hypotheses in enumerate(rounds):
        for hypothesis in filter(None, hypotheses):
            is_dropped = config.unfinished == "drop" and not hypothesis.finished
            rank = (is_dropped, len(hypothesis.violated), number, -hypothesis.score)
            key = (hypothesis.ids, hypothesis.finished)
            ranks[key] = min(ranks.get(key, (rank, hypothesis)), (rank, hypothesis), key=lambda pair: pair[0])
    return [hypothesis for _, hypothesis in sorted(ranks.values(), key=lambda pair: pair[0])][: config.n_best]
