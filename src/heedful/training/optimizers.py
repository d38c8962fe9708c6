"""Optimizers, gradient norm and gradient clipping.

The schedule sets the learning rate before every update; optimizers are built here with a rate of 0.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Literal, TypedDict, Unpack

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor, nn

from heedful.config import Config
from heedful.errors import RequestError, nearest
from heedful.typing import JsonObject

Decay = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a running mean or sum."""


class _AdamConfig(Config):
    """Settings of Adam and its relatives.

    Args:
        beta1: decay of the running mean of the gradient.
        beta2: decay of the running mean of its square.
        eps: added to the denominator, the root of the mean square.
    """

    kind: str
    beta1: Decay = 0.9
    beta2: Decay
    eps: PositiveFloat


class AdamConfig(_AdamConfig):
    """Adam (Kingma and Ba 2015) with the values of Vaswani et al. 2017, section 5.3.

    Lecture S0 lists a library's defaults instead (beta2 0.999, rate 0.001); S2 has the paper's values.
    """

    kind: Literal["adam"] = "adam"
    beta2: Decay = 0.98
    eps: PositiveFloat = 1e-9


class AdamWConfig(_AdamConfig):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Weight decay applies to matrices only (two axes or more: projections, embeddings, kernels), not to biases
    and gains.

    Args:
        weight_decay: each update subtracts this share of a matrix, times the learning rate.
    """

    kind: Literal["adamw"] = "adamw"
    beta2: Decay = 0.999
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.01


class MuonConfig(Config):
    """Muon for the matrices between embeddings and heads, AdamW for the rest (`heedful.training.optimizers`).

    The schedule sets Muon's learning rate, usually 0.02 or more; AdamW uses ``adam_share`` times that.

    Args:
        momentum: decay of the sum of past gradients.
        adam_share: ratio of AdamW's learning rate to Muon's.
        beta1, beta2, eps: parameters of AdamW.
        weight_decay: each update subtracts this share of Muon's matrices, times the learning rate.
    """

    kind: Literal["muon"] = "muon"
    momentum: Decay = 0.95
    adam_share: PositiveFloat = 0.2
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.01


class SGDConfig(Config):
    """Stochastic gradient descent, optionally with momentum.

    Args:
        momentum: decay of the sum of past gradients; 0: no momentum.
        nesterov: whether to use Nesterov momentum; needs a momentum above 0.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Decay = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "SGDConfig":
        if self.nesterov and not self.momentum:
            raise ValueError("momentum must be above 0 if nesterov is true")
        return self


OptimizerConfig = Annotated[AdamConfig | AdamWConfig | MuonConfig | SGDConfig, Field(discriminator="kind")]


def build_optimizer(
    config: OptimizerConfig,
    model: nn.Module,
    shares: Mapping[nn.Parameter, float] | None = None,
    frozen: Collection[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """Build the optimizer over the parameters of ``model`` that require a gradient.

    The fused implementation is used if every parameter is a floating-point tensor on the CPU or on CUDA.

    Args:
        config: the optimizer and its settings.
        model: the model to train.
        shares: factors of the learning rate, for parameters whose factor is not 1.
        frozen: parameters that are trained only after some updates. They get their own parameter groups, as
            torch's fused SGD needs the momenta of all parameters of a group, or of none.

    Raises:
        RequestError: the model has no trainable parameter, or the optimizer does not support the request.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise RequestError("the model has no trainable parameters")
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters) or None
    if isinstance(config, MuonConfig):
        if shares:
            raise RequestError(
                "start.layer_share is not supported by muon (one rate for all blocks); use adamw"
            )
        return _muon(config, model, parameters, fused)
    groups = _groups(parameters, getattr(config, "weight_decay", 0.0), shares or {}, frozen)
    if isinstance(config, SGDConfig):
        return torch.optim.SGD(
            groups, lr=0.0, momentum=config.momentum, nesterov=config.nesterov, fused=fused
        )
    adam = torch.optim.Adam if isinstance(config, AdamConfig) else torch.optim.AdamW
    return adam(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused)


def fewest_states(config: OptimizerConfig) -> int:
    """Return the minimum number of state values per trained parameter (Muon keeps more for some)."""
    match config:
        case AdamConfig() | AdamWConfig():
            return 2
        case MuonConfig():
            return 1
        case SGDConfig():
            return 1 if config.momentum else 0


def _muon(config: MuonConfig, model: nn.Module, parameters: list[nn.Parameter], fused: bool | None) -> "Muon":
    slices = dict(hidden_matrices(model))
    if not slices:
        raise RequestError(
            "optimizer.kind=muon: the model has no trainable weight matrix between the embedding and the "
            "output layers; set optimizer.kind=adamw"
        )
    adam_parameters = [p for p in parameters if p not in slices]
    groups = [
        {"params": list(slices), "orthogonal": True, "weight_decay": config.weight_decay},
        *(
            {**group, "orthogonal": False, "share": config.adam_share}
            for group in _groups(adam_parameters, 0.0, {})
        ),
    ]
    betas = (config.beta1, config.beta2)
    return Muon(
        groups, slices=slices, momentum=config.momentum, lr=0.0, betas=betas, eps=config.eps, fused=fused
    )


def _groups(
    parameters: list[nn.Parameter],
    weight_decay: float,
    shares: Mapping[nn.Parameter, float],
    frozen: Collection[nn.Parameter] = (),
) -> list[JsonObject]:
    """Group parameters by learning rate and weight decay; only matrices decay."""
    frozen_set = set(frozen)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for parameter in sorted(parameters, key=lambda p: p.dim() < 2):
        decay = weight_decay if parameter.dim() >= 2 else 0.0
        groups.setdefault((shares.get(parameter, 1.0), decay, parameter in frozen_set), []).append(parameter)
    return [
        {"params": params, "weight_decay": decay, "share": share}
        for (share, decay, _), params in groups.items()
    ]


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group, times the group's share."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("share", 1.0)


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the Euclidean norm of all gradients as one vector, a scalar tensor."""
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def clip(parameters: Iterable[nn.Parameter], limit: float, norm: Tensor) -> None:
    """Scale the gradients by ``limit / (norm + 1e-6)`` if ``norm`` exceeds ``limit``, in place.

    ``norm`` is the result of `gradient_norm` (Pascanu et al. 2013, algorithm 1).
    """
    nn.utils.clip_grads_with_norm_(list(parameters), limit, norm)


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimizer state of every parameter, as ``parameter/entry -> tensor``."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{name}/{key}"] = value.detach()
    return tensors


def load_state_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Load the result of `state_tensors` into the optimizer; hyperparameters do not change.

    Raises:
        RequestError: a tensor has no parameter in the model, or its shape or type differs, or one is missing.
    """
    parameters = dict(model.named_parameters())
    by_name: dict[str, JsonObject] = {}
    for key, tensor in tensors.items():
        name, _, entry = key.rpartition("/")
        if name not in parameters:
            raise RequestError(
                f"the optimizer state has {name}, which is not in the model{nearest(name, parameters)}"
            )
        if tensor.dim() and tensor.shape != parameters[name].shape:
            raise RequestError(
                f"the optimizer state {entry} of {name}: expected shape {list(parameters[name].shape)}, "
                f"got {list(tensor.shape)}"
            )
        if not tensor.is_floating_point():
            raise RequestError(
                f"the optimizer state {entry} of {name}: expected real numbers, got {str(tensor.dtype)[6:]}"
            )
        by_name.setdefault(name, {})[entry] = tensor
    names = {parameter: name for name, parameter in parameters.items()}
    for group in optimizer.param_groups:
        _check_complete(optimizer, group, {names[p]: by_name.get(names[p], {}) for p in group["params"]})
    ordered = [names[p] for group in optimizer.param_groups for p in group["params"]]
    state = {i: by_name[name] for i, name in enumerate(ordered) if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_complete(
    optimizer: torch.optim.Optimizer, group: JsonObject, states: Mapping[str, JsonObject]
) -> None:
    """Check that the state of each parameter of a group has all entries, if it has any.

    Raises:
        RequestError: an entry is missing, or unknown.
    """
    is_adam = isinstance(optimizer, torch.optim.Adam) and not group.get("orthogonal", False)
    expected = {"step", "exp_avg", "exp_avg_sq"} if is_adam else {"momentum_buffer"}
    if group.get("orthogonal", False):
        expected.add("step")
    needs_all = isinstance(optimizer, torch.optim.SGD) and any(states.values())  # the fused kernel does
    for name, state in states.items():
        if state.keys() != expected and (state or needs_all):
            raise RequestError(
                f"the optimizer state of {name}: expected {', '.join(sorted(expected))}, "
                f"got {', '.join(sorted(state)) or 'nothing'}"
            )


# Muon -------------------------------------------------------------------------------------------------------

# Five steps of this polynomial map any singular value in (0.002, 1] into [0.68, 1.14].
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
N_STEPS = 5


def orthogonalised(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Bring the singular values of each matrix near 1 by Newton-Schulz iteration.

    X ← a X + (b A + c A²) X with A = X Xᵀ, which maps each singular value s to a s + b s³ + c s⁵.
    On a GPU, in bf16, as in the authors' code.
    """
    x = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    if x.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False):
        x = x.bfloat16()
    a, b, c = COEFFICIENTS
    for _ in range(N_STEPS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return (x if matrices.shape[1] <= matrices.shape[2] else x.mT).to(matrices.dtype)


class AdamOptions(TypedDict):
    """Keyword arguments of `torch.optim.AdamW`."""

    lr: float
    betas: tuple[float, float]
    eps: float
    fused: bool | None


class Muon(torch.optim.AdamW):
    """Muon for parameter groups with ``orthogonal`` set, fused AdamW for the others.

    m ← μ m + g,  W ← (1 - rate·decay) W - rate · √max(1, rows / columns) · orthogonalised(g + μ m)

    Muon is momentum SGD that replaces the update matrix M = U S Vᵀ by approximately U Vᵀ. Gradient updates of
    a weight matrix usually have low rank: a few directions dominate. With Muon all directions are learned at
    the same rate; small language models reach the same loss in a third of the updates that Adam needs
    (`docs/benchmarks/performance.md`). Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in
    neural networks". As there, Adam optimizes the other parameters (embeddings, output layer, biases, gains).

    Args:
        groups: parameter groups with the key ``orthogonal``.
        slices: for parameters of orthogonal groups that stack several matrices (queries, keys, values), the
            number of rows of each; other parameters are one matrix.
        momentum: μ.
        adam_options: arguments of AdamW, for the other groups.
    """

    def __init__(
        self,
        groups: list[JsonObject],
        *,
        slices: Mapping[nn.Parameter, list[int]],
        momentum: float,
        **adam_options: Unpack[AdamOptions],
    ) -> None:
        self.slices, self.momentum = slices, momentum
        super().__init__(groups, **adam_options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameter groups."""
        groups = self.param_groups
        # AdamW.step would process every group in self.param_groups.
        self.param_groups = [group for group in groups if not group["orthogonal"]]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group["orthogonal"]:
                self._orthogonal_step(group)
        return loss

    def _orthogonal_step(self, group: JsonObject) -> None:
        directions = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
                state["step"] = torch.tensor(0.0)  # unused, but AdamW's state loading expects it
            buffer = state["momentum_buffer"].mul_(self.momentum).add_(parameter.grad)
            directions.append((parameter, parameter.grad.add(buffer, alpha=self.momentum)))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        # Batch matrices of the same shape: a few large products instead of many small ones.
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, direction in directions:
            sizes = self.slices.get(parameter, [parameter.shape[0]])
            for rows, change in zip(parameter.split(sizes), direction.split(sizes), strict=True):
                shapes[rows.shape].append((rows, change))
        for shape, pairs in shapes.items():
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            changes = orthogonalised(torch.stack([change for _, change in pairs]))
            for (rows, _), change in zip(pairs, changes, strict=True):
                rows.sub_(change, alpha=group["lr"] * scale)


def hidden_matrices(model: nn.Module) -> Iterator[tuple[nn.Parameter, list[int]]]:
    """Yield the weight of each linear layer between embeddings and heads, and the rows of its matrices."""
    heads = getattr(model, "heads", None)
    head_modules = set() if heads is None else set(heads.modules())
    tables = {p for m in model.modules() if not isinstance(m, nn.Linear) for p in m._parameters.values()}
    yielded = set()
    for parent in model.modules():
        slices = getattr(parent, "slices", {})
        for name, layer in parent.named_children():
            if not isinstance(layer, nn.Linear) or layer in head_modules or layer.weight in tables:
                continue
            if layer.weight.requires_grad and layer.weight not in yielded:
                yielded.add(layer.weight)
                yield layer.weight, slices.get(f"{name}.weight", [layer.weight.shape[0]])
