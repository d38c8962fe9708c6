"""Terms of the loss that keep the experts of a mixture equally busy.

    Importance(X)_i = sum_x G(x)_i          importance = CV(Importance(X))^2        equations 6 and 7
    Load(X)_i       = sum_x P(x, i)         load       = CV(Load(X))^2              equations 10 and 11

of Shazeer et al. 2017, section 4 and appendix A. CV, the coefficient of variation, is the standard
deviation over the mean, here over the n experts; X are the tokens of a micro-batch.

As terms, they are sums of CV^2 over tokens: each token of X counts with the CV^2 of X. The term of an
update is then the mean over its micro-batches, weighted by their tokens. That is not the CV^2 of all
tokens of the update, so the same update cut into other micro-batches has another gradient: gates declare
it (``balances_batch``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.experts import Gate, NoisyTopKGate
from heedful.nn.taps import recording
from heedful.objectives.terms import Supervised, Term

# What the mean is kept away from zero by, where there is no token.
EPSILON = 1e-10


class Balance:
    """The terms of all gates in a model, none where it has none.

    Terms: ``importance``, and ``load`` where gates draw noise; and ``max_load``, which is only reported: the
    number of tokens that the busiest expert got, over the mean of all experts. Several layers of experts
    add theirs up; of ``max_load`` the greatest is told.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.gates = {name: part for name, part in model.named_modules() if isinstance(part, Gate)}
        self.noisy = {name: gate for name, gate in self.gates.items() if isinstance(gate, NoisyTopKGate)}
        self.weights = {
            "importance": {gate.importance for gate in self.gates.values()},
            "load": {gate.load for gate in self.noisy.values()},
        }
        if any(len(each) > 1 for each in self.weights.values()):
            raise ValueError("all gates of a model must give a term of the loss one weight")
        self.taps = [f"{name}.gates" for name in self.gates] + [f"{name}.chances" for name in self.noisy]

    def counts(self, batch: Supervised) -> dict[str, int]:
        """All run over the tokens that the model reads."""
        names = [name for name, weights in self.weights.items() if weights]
        return dict.fromkeys([*names, *(["max_load"] if self.gates else [])], batch.inputs.layout.n_tokens)

    @contextmanager
    def attached(self, batch: Supervised) -> Iterator[Callable[[], list[Term]]]:
        """Listen while the model runs once on the batch; what is given then tells the terms."""
        if not self.gates:
            yield list
            return
        with recording(self.model, self.taps) as seen:
            yield lambda: self._terms(seen, batch.inputs.layout.n_tokens)

    def _terms(self, seen: dict[str, list[Tensor]], n_tokens: int) -> list[Term]:
        gates = [gate for name in self.gates for gate in seen[f"{name}.gates"]]
        chances = [chance for name in self.noisy for chance in seen[f"{name}.chances"]]
        found = []
        for name, each in (("importance", gates), ("load", chances)):
            if each:
                sums = torch.stack([squared_variation(x.sum(0)) for x in each]).sum() * n_tokens
                found.append(Term(name, sums, n_tokens, *self.weights[name]))
        loads = [(x > 0).sum(0).float() for x in gates]
        peaks = torch.stack([load.max() / load.mean().clamp(min=EPSILON) for load in loads])
        return [*found, Term("max_load", peaks.max() * n_tokens, n_tokens, weight=0.0)]


def squared_variation(x: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """``CV(x)^2``: the variance of the n numbers over the square of their mean."""
    return x.var(correction=0) / (x.mean().square() + EPSILON)
