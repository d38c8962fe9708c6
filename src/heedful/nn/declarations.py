"""Declarations of modules: invariants that they break, and parameters without effect.

Modules declare by attributes of the class or instance; tests of the invariants, recipe validation and
documentation read them with the functions below.

| attribute of a module | meaning |
|---|---|
| a name of `DECLARATIONS` | true if it applies |
| ``without_gradient`` | rows of its parameters that have no effect in any model |
| ``adds_constant`` | rows of its parameters that only add the same vector to all its outputs |
| ``removes_batch_mean`` | (norms) in training, subtracts the mean over the tokens of the batch |
| ``shifts_features`` | rows of its parameters that only add one number to all features of a token |
| ``features_that_shift`` | features of its inputs that only add one number to all features of a token |
| ``removes_token_mean`` | (norms) subtracts the mean over the features of each token |
| ``not_compilable`` | not compiled: reads individual lengths or ids (one graph per batch), or has no stack |
| ``carries_state`` | carries a state over many steps, which would lose precision in bf16 |
| ``needs_wide_weights`` | standardises its weights, whose differences would be lost in bf16 |

Rows are indices along the first axis of a parameter.
"""

from collections.abc import Iterable, Mapping

from torch import nn

from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.residual import PostNorm, PreNorm

Rows = Mapping[str, Iterable[int]]

DECLARATIONS: dict[str, str] = {
    "couples_batch": (
        "Training uses statistics over all tokens of the batch: the output of a token depends on other "
        "sequences and on later tokens, accumulated micro-batches differ from one large batch, and training "
        "mode differs from evaluation mode. In evaluation, statistics are constant and all invariants hold."
    ),
    "draws_noise": (
        "Training draws noise for every token, like dropout: training mode differs from evaluation mode, "
        "and accumulated micro-batches draw other numbers than one large batch. Without noise, and in "
        "evaluation, all invariants hold."
    ),
    "balances_batch": (
        "Adds loss terms that are not sums over tokens but functions of sums over a micro-batch: for these "
        "terms, accumulated micro-batches differ from one large batch. The other terms, and the output of "
        "each token, do not depend on the batch."
    ),
    "may_idle": ("Parameters that no token of a batch uses have a gradient of exactly zero."),
    "non_causal": ("A token sees later tokens: the module is not causal and cannot continue a sequence."),
}


def declared(module: nn.Module) -> set[str]:
    """Return the names of `DECLARATIONS` that any submodule of ``module`` declares."""
    return {name for name in DECLARATIONS if claims(module, name)}


def claims(module: nn.Module, name: str) -> bool:
    """Return whether any submodule of ``module`` has a true attribute of that name."""
    return any(getattr(part, name, False) for part in module.modules())


def without_gradient(module: nn.Module) -> dict[str, set[int]]:
    """Return the rows of parameters whose gradient is zero for any data, by dotted name.

    These are the rows that a module declares, and rows of a residual sublayer (or of the norm before it)
    whose effect the norms of the stack remove: those that only add a constant to the output if the stack is
    `ignores_constants`, and those that only shift features, without dropout, if it is `ignores_shifts`.
    """
    rows: dict[str, set[int]] = {}
    for prefix, part in module.named_modules():
        _collect(rows, prefix, getattr(part, "without_gradient", {}))
        if not isinstance(part, EncoderStack | DecoderStack):
            continue
        constants, shifts = ignores_constants(part), ignores_shifts(part)
        for name, residual in part.named_modules(prefix=prefix):
            if not isinstance(residual, PostNorm | PreNorm):
                continue
            if constants:
                _collect(rows, f"{name}.part", getattr(residual.part, "adds_constant", {}))
            if shifts and residual.dropout.p == 0:
                _collect(rows, f"{name}.part", getattr(residual.part, "shifts_features", {}))
                if isinstance(residual, PreNorm):
                    features = getattr(residual.part, "features_that_shift", ())
                    parameters = dict(residual.norm.named_parameters()) if features else {}
                    _collect(rows, f"{name}.norm", dict.fromkeys(parameters, features))
    return rows


def ignores_constants(stack: EncoderStack | DecoderStack) -> bool:
    """Return whether adding a vector to all outputs has no effect: every norm subtracts the batch mean."""
    return _every_norm(stack, "removes_batch_mean")


def ignores_shifts(stack: EncoderStack | DecoderStack) -> bool:
    """Return whether adding a number to all features of a token has no effect: every norm subtracts it."""
    return _every_norm(stack, "removes_token_mean")


def _every_norm(stack: nn.Module, attribute: str) -> bool:
    norms = [part for part in stack.modules() if hasattr(part, "couples_batch")]
    return bool(norms) and all(getattr(norm, attribute, False) for norm in norms)


def _collect(collected: dict[str, set[int]], prefix: str, rows: Rows) -> None:
    for name, indices in rows.items():
        collected.setdefault(f"{prefix}.{name}" if prefix else name, set()).update(indices)
