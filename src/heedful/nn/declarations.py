"""What parts say of themselves, as data: laws that they cannot keep, parameters that do nothing.

A part declares by attributes of its class or object; whoever wants to know (tests of the laws,
validation of recipes, documentation) asks the functions here.

| attribute of a part | meaning |
|---|---|
| a name of `DECLARATIONS` | true where it applies |
| ``without_gradient`` | rows of its parameters that change nothing, wherever the part stands |
| ``adds_constant`` | rows of its parameters whose only effect is to add one vector to all its outputs |
| ``removes_batch_mean`` | (norms) in training, the mean over the tokens of the batch is subtracted |
| ``lifts_tokens`` | rows of its parameters that only add one number to all features of a token |
| ``lifts_from`` | features of its inputs that only add one number to all features of a token |
| ``removes_token_mean`` | (norms) of every token, the mean over its features is subtracted |
| ``eager`` | not compiled: it reads single lengths or ids, a graph would serve one batch; or has no stack |
| ``carries_state`` | a state is carried over many steps, and would wear out in bf16 |

Rows are indices along a parameter's first axis.
"""

from collections.abc import Iterable, Mapping

from torch import nn

from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.residual import PostNorm, PreNorm

Rows = Mapping[str, Iterable[int]]

DECLARATIONS: dict[str, str] = {
    "couples_batch": (
        "In training, statistics over all tokens of the batch are used: what a token becomes depends on "
        "the other sequences and on later tokens, accumulated micro-batches are not one large batch, and "
        "training mode is not evaluation mode. In evaluation, statistics are constants and all laws hold."
    ),
    "draws_noise": (
        "In training, noise is drawn for every token, as dropout does: training mode is not evaluation "
        "mode, and accumulated micro-batches draw other numbers than one large batch. Without the noise, "
        "and in evaluation, all laws hold."
    ),
    "balances_batch": (
        "It adds terms to the loss that are no sums over tokens, but functions of sums over a micro-batch: "
        "for them, accumulated micro-batches are not one large batch. The other terms, and what every token "
        "becomes, do not depend on the batch."
    ),
    "may_idle": ("Parameters that no token of a batch reaches have a gradient of exactly zero there."),
    "reads_ahead": (
        "A token sees what comes after it: the part is not causal, and cannot continue a sequence."
    ),
}


def declared(module: nn.Module) -> set[str]:
    """The names of `DECLARATIONS` that some part of ``module`` claims."""
    return {name for name in DECLARATIONS if claims(module, name)}


def claims(module: nn.Module, name: str) -> bool:
    """Whether some part of ``module`` has a true attribute of that name."""
    return any(getattr(part, name, False) for part in module.modules())


def without_gradient(module: nn.Module) -> dict[str, set[int]]:
    """Rows of parameters whose gradient in training is zero whatever the data, by dotted name.

    They are the rows that a part declares for itself, and those that only add a constant to the output
    of a residual part in a stack that is `blind_to_constants`, or only lift tokens, undropped, in one that
    is `blind_to_lifts`: of the part, or of a norm before it.
    """
    found: dict[str, set[int]] = {}
    for prefix, part in module.named_modules():
        _collect(found, prefix, getattr(part, "without_gradient", {}))
        if not isinstance(part, EncoderStack | DecoderStack):
            continue
        constants, lifts = blind_to_constants(part), blind_to_lifts(part)
        for name, residual in part.named_modules(prefix=prefix):
            if not isinstance(residual, PostNorm | PreNorm):
                continue
            if constants:
                _collect(found, f"{name}.part", getattr(residual.part, "adds_constant", {}))
            if lifts and residual.dropout.p == 0:
                _collect(found, f"{name}.part", getattr(residual.part, "lifts_tokens", {}))
                if isinstance(residual, PreNorm):
                    features = getattr(residual.part, "lifts_from", ())
                    rows = {own: features for own, _ in residual.norm.named_parameters() if features}
                    _collect(found, f"{name}.norm", rows)
    return found


def blind_to_constants(stack: EncoderStack | DecoderStack) -> bool:
    """Whether a vector added to all outputs of a part is lost: every norm subtracts the batch's mean."""
    return _every_norm(stack, "removes_batch_mean")


def blind_to_lifts(stack: EncoderStack | DecoderStack) -> bool:
    """Whether a number added to all features of a token is lost: every norm subtracts their mean."""
    return _every_norm(stack, "removes_token_mean")


def _every_norm(stack: nn.Module, says: str) -> bool:
    norms = [part for part in stack.modules() if hasattr(part, "couples_batch")]
    return bool(norms) and all(getattr(norm, says, False) for norm in norms)


def _collect(found: dict[str, set[int]], prefix: str, rows: Rows) -> None:
    for name, indices in rows.items():
        found.setdefault(f"{prefix}.{name}" if prefix else name, set()).update(indices)
