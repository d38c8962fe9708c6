"""Loss terms that balance the load of the experts of a mixture.

    Importance(X)_i = sum_x G(x)_i          importance = CV(Importance(X))^2        equations 6 and 7
    Load(X)_i       = sum_x P(x, i)         load       = CV(Load(X))^2              equations 10 and 11

of Shazeer et al. 2017, section 4 and appendix A. CV, the coefficient of variation, is the standard
deviation over the mean, here over the n experts; X are the tokens of a micro-batch.

As terms, they are sums of CV^2 over tokens: each token of X contributes the CV^2 of X. The term of an
update is then the mean over its micro-batches, weighted by their tokens. This differs from the CV^2 of all
tokens of the update, so the gradient depends on the split into micro-batches; gates declare this
(``balances_batch``).
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.nn.experts import Gate, NoisyTopKGate
from heedful.objectives.terms import AuxiliaryLoss, Term

# Avoids division by zero if there are no tokens.
EPSILON = 1e-10


class Balance(AuxiliaryLoss):
    """Balance terms of all gates in a model; none if it has no gates.

    Terms: ``importance``; ``load`` if gates are noisy; and ``max_load`` (reported only): the number of tokens
    of the busiest expert over the mean of all experts. Terms of several layers are added up; ``max_load`` is
    their maximum.
    """

    def __init__(self, model: nn.Module) -> None:
        self.gates = {name: part for name, part in model.named_modules() if isinstance(part, Gate)}
        self.noisy = {name: gate for name, gate in self.gates.items() if isinstance(gate, NoisyTopKGate)}
        self.weights = {
            "importance": {gate.importance for gate in self.gates.values()},
            "load": {gate.load for gate in self.noisy.values()},
        }
        if any(len(shared_weights) > 1 for shared_weights in self.weights.values()):
            raise ValueError("all gates of a model must use the same importance and the same load weight")
        taps = [f"{name}.gates" for name in self.gates] + [f"{name}.chances" for name in self.noisy]
        super().__init__(model, taps)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of all terms: the number of input tokens."""
        names = [name for name, weights in self.weights.items() if weights]
        return dict.fromkeys([*names, *(["max_load"] if self.gates else [])], batch.inputs.layout.n_tokens)

    def terms(self, recorded: Mapping[str, list[Tensor]], batch: Batch) -> list[Term]:
        """Return the terms of all gates."""
        n_tokens = batch.inputs.layout.n_tokens
        gates = [gate for name in self.gates for gate in recorded[f"{name}.gates"]]
        chances = [chance for name in self.noisy for chance in recorded[f"{name}.chances"]]
        terms = []
        for name, values in (("importance", gates), ("load", chances)):
            if values:
                sums = torch.stack([squared_variation(x.sum(0)) for x in values]).sum() * n_tokens
                terms.append(Term(name, sums, n_tokens, *self.weights[name]))
        loads = [(x > 0).sum(0).float() for x in gates]
        peaks = torch.stack([load.max() / load.mean().clamp(min=EPSILON) for load in loads])
        return [*terms, Term("max_load", peaks.max() * n_tokens, n_tokens, weight=0.0)]


def squared_variation(x: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return ``CV(x)^2``: the variance of the n numbers over the square of their mean."""
    return x.var(correction=0) / (x.mean().square() + EPSILON)
