"""Optimizers, gradient norm and gradient clipping.

The schedule sets the learning rate before every update; optimizers are built here with a rate of 0.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor, nn

from heedful.config import Config
from heedful.errors import RequestError, nearest
from heedful.training.muon import Muon, hidden_matrices
from heedful.typing import JsonObject


class AdamConfig(Config):
    """Adam (Kingma and Ba 2015) with the values of Vaswani et al. 2017, section 5.3.

    Lecture S0 lists a library's defaults instead (beta2 0.999, rate 0.001); S2 has the paper's values.

    Args:
        beta1: decay of the running mean of the gradient.
        beta2: decay of the running mean of its square.
        eps: added to the denominator, the root of the mean square.
    """

    kind: Literal["adam"] = "adam"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.98, ge=0, lt=1)
    eps: PositiveFloat = 1e-9


class AdamWConfig(Config):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Weight decay applies to matrices only (two axes or more: projections, embeddings, kernels), not to biases
    and gains.

    Args:
        beta1: decay of the running mean of the gradient.
        beta2: decay of the running mean of its square.
        eps: added to the denominator, the root of the mean square.
        weight_decay: each update subtracts this share of a matrix, times the learning rate.
    """

    kind: Literal["adamw"] = "adamw"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.01


class MuonConfig(Config):
    """Muon for the matrices between embeddings and heads, AdamW for the rest (`heedful.training.muon`).

    The schedule sets Muon's learning rate, usually 0.02 or more; AdamW uses ``adam_share`` times that.

    Args:
        momentum: decay of the sum of past gradients.
        adam_share: ratio of AdamW's learning rate to Muon's.
        beta1, beta2, eps: parameters of AdamW.
        weight_decay: each update subtracts this share of Muon's matrices, times the learning rate.
    """

    kind: Literal["muon"] = "muon"
    momentum: float = Field(default=0.95, ge=0, lt=1)
    adam_share: PositiveFloat = 0.2
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.01


class SGDConfig(Config):
    """Stochastic gradient descent, optionally with momentum.

    Args:
        momentum: decay of the sum of past gradients; 0: no momentum.
        nesterov: whether to use Nesterov momentum; needs a momentum above 0.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.0, ge=0, lt=1)
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
    late: Collection[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """Build the optimizer over the parameters of ``model`` that require a gradient.

    The fused implementation is used if every parameter is a floating-point tensor on the CPU or on CUDA.

    Args:
        config: the optimizer and its settings.
        model: the model to train.
        shares: factors of the learning rate, for parameters whose factor is not 1.
        late: parameters that are trained only after some updates. They get their own parameter groups, since
            torch's fused SGD needs the momenta of all parameters of a group, or of none.

    Raises:
        RequestError: the model has no trainable parameter, or the optimizer does not support the request.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise RequestError("the model has no trainable parameters")
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters) or None
    match config:
        case AdamConfig():
            betas = (config.beta1, config.beta2)
            groups = _groups(parameters, 0.0, shares or {}, late)
            return torch.optim.Adam(groups, lr=0.0, betas=betas, eps=config.eps, fused=fused)
        case AdamWConfig():
            betas = (config.beta1, config.beta2)
            groups = _groups(parameters, config.weight_decay, shares or {}, late)
            return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.eps, fused=fused)
        case MuonConfig():
            if shares:
                raise RequestError(
                    "start.layer_share is not supported by muon (one rate for all blocks); use adamw"
                )
            return _muon(config, model, parameters, fused)
        case SGDConfig():
            return torch.optim.SGD(
                _groups(parameters, 0.0, shares or {}, late),
                lr=0.0,
                momentum=config.momentum,
                nesterov=config.nesterov,
                fused=fused,
            )


def fewest_states(config: OptimizerConfig) -> int:
    """Return the minimum number of state values per trained parameter (Muon keeps more for some)."""
    match config:
        case AdamConfig() | AdamWConfig():
            return 2
        case MuonConfig():
            return 1
        case SGDConfig():
            return 1 if config.momentum else 0


def _muon(config: MuonConfig, model: nn.Module, parameters: list[nn.Parameter], fused: bool | None) -> Muon:
    slices = dict(hidden_matrices(model))
    if not slices:
        raise RequestError("optimizer.kind: muon needs linear layers between embeddings and heads; use adamw")
    rest = [p for p in parameters if p not in slices]
    groups = [
        {"params": list(slices), "orthogonal": True, "weight_decay": config.weight_decay},
        *({**group, "orthogonal": False, "share": config.adam_share} for group in _groups(rest, 0.0, {})),
    ]
    betas = (config.beta1, config.beta2)
    return Muon(
        groups, slices=slices, momentum=config.momentum, lr=0.0, betas=betas, eps=config.eps, fused=fused
    )


def _groups(
    parameters: list[nn.Parameter],
    weight_decay: float,
    shares: Mapping[nn.Parameter, float],
    late: Collection[nn.Parameter] = (),
) -> list[JsonObject]:
    """Group parameters by learning rate and weight decay; only matrices decay."""
    late_set = set(late)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for parameter in sorted(parameters, key=lambda p: p.dim() < 2):
        decay = weight_decay if parameter.dim() >= 2 else 0.0
        groups.setdefault((shares.get(parameter, 1.0), decay, parameter in late_set), []).append(parameter)
    return [
        {"params": members, "weight_decay": decay, "share": share}
        for (share, decay, _), members in groups.items()
    ]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group, times the group's share."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)


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
        RequestError: a tensor has no parameter in the model, or its shape differs.
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
        by_name.setdefault(name, {})[entry] = tensor
    names = {parameter: name for name, parameter in parameters.items()}
    ordered = [names[p] for group in optimizer.param_groups for p in group["params"]]
    state = {i: by_name[name] for i, name in enumerate(ordered) if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
