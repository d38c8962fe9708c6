"""Convolutional network modules for images ``[B, C, H, W]``, with norms over single images.

Batch normalisation couples the images of a batch, and fails if only few fit on a device. BiT instead
normalises the features of each image in groups, and also the weights (Kolesnikov et al. 2020).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.taps import Tap


class StandardisedConvolution(nn.Module):
    """Convolution with standardised filters: ``Ŵ_c = (W_c - μ_c) / √(σ_c² + ε)``.

    μ_c and σ_c² (biased) are the mean and variance of the C k² weights of output channel c. They are
    recomputed at every step, at least in fp32, and gradients flow through them.

    The image is padded with (k - 1) / 2 zeros, so that its size is kept, or divided by the stride and rounded
    up. There is no bias: the next norm removes it or has its own.

    Source: Qiao et al. 2019, section 3; ε = 1e-10 inside the root as in BiT's released code.

    Args:
        d_in, d_out: input and output channels.
        kernel: kernel size, k; odd.
        stride: stride in pixels.
    """

    epsilon = 1e-10

    needs_wide_weights = True  # see `heedful.nn.declarations`

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, got {kernel}")
        self.kernel, self.stride = kernel, stride
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel, kernel))
        # The initial scale determines the size of the first updates: gradients are divided by the scale of W.
        nn.init.normal_(self.weight, std=(d_in * kernel**2) ** -0.5)

    def standardised(self) -> Float[Tensor, "d_out d_in k k"]:
        """Compute Ŵ."""
        wide = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        variance, mean = torch.var_mean(wide, dim=(1, 2, 3), correction=0, keepdim=True)
        return ((wide - mean) * torch.rsqrt(variance + self.epsilon)).to(self.weight.dtype)

    def forward(self, x: Float[Tensor, "B d_in H W"]) -> Float[Tensor, "B d_out rows columns"]:
        """Convolve the images.

        Along an axis with output size 1, filters are cropped to the pixels that they cover: for weights that
        only cover padding, oneDNN does not compute the bf16 gradient and returns uninitialised memory.
        """
        weight, padding = self.standardised(), [self.kernel // 2] * 2
        for axis, size in enumerate(x.shape[2:]):
            if size <= self.stride:
                covered = min(size, self.kernel - self.kernel // 2)
                weight = weight.narrow(axis + 2, self.kernel // 2, covered)
                x, padding[axis] = x.narrow(axis + 2, 0, covered), 0
        return functional.conv2d(x, weight, stride=self.stride, padding=padding)

    def extra_repr(self) -> str:
        """Return the sizes for ``repr``."""
        d_out, d_in = self.weight.shape[:2]
        return f"{d_in}, {d_out}, kernel={self.kernel}, stride={self.stride}"


class GroupNorm(nn.GroupNorm):
    """Normalise each group of adjacent channels of an image over its channels and pixels.

    y = γ (x - μ) / √(σ² + ε) + β; γ and β are in R^d, initialised to 1 and 0.

    Source: Wu and He 2018, section 3.1.

    Args:
        d: number of channels.
        n_groups: number of groups, a divisor of d.
        eps: ε.
    """

    def __init__(self, d: int, n_groups: int, eps: float = 1e-5) -> None:
        if n_groups < 1 or d % n_groups:
            raise ValueError(
                f"n_groups must be positive and divide the number of channels {d}, got {n_groups}"
            )
        super().__init__(n_groups, d, eps=eps)

    def forward(self, input: Float[Tensor, "B d H W"]) -> Float[Tensor, "B d H W"]:
        """Normalise every image."""
        return super().forward(input)


class Bottleneck(nn.Module):
    """Pre-activation residual block of three convolutions with a bottleneck.

        a = relu(norm_1(x))
        y = S(x) + conv_3(relu(norm_3(conv_2(relu(norm_2(conv_1(a)))))))

    conv_1 and conv_3 are 1 x 1, conv_2 is 3 x 3 with ``stride``. S is the identity if the shapes agree,
    otherwise a 1 x 1 convolution of a: the shortcut path has no norm and no activation after the projection.

    Source: He et al. 2016b, figures 1(b) and 4(e), with the stride in conv_2 and the projection after the
    first activation, as in BiT's released code.

    The tap ``output`` sees y.

    Args:
        d_in, d_hidden, d_out: channels before, between and after the convolutions.
        stride: stride of conv_2 and S.
        n_groups: number of groups of the norms.
    """

    def __init__(self, d_in: int, d_hidden: int, d_out: int, *, stride: int, n_groups: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(GroupNorm(d, n_groups) for d in (d_in, d_hidden, d_hidden))
        self.convolutions = nn.ModuleList(
            [
                StandardisedConvolution(d_in, d_hidden, 1),
                StandardisedConvolution(d_hidden, d_hidden, 3, stride),
                StandardisedConvolution(d_hidden, d_out, 1),
            ]
        )
        keeps_shape = stride == 1 and d_in == d_out
        self.shortcut = None if keeps_shape else StandardisedConvolution(d_in, d_out, 1, stride)
        self.output = Tap("residual stream after the block: channels, rows, columns")

    def forward(self, x: Float[Tensor, "B d_in H W"]) -> Float[Tensor, "B d_out rows columns"]:
        """Apply the block."""
        first_layer, *later_layers = zip(self.norms, self.convolutions, strict=True)
        norm, convolution = first_layer
        activated = functional.relu(norm(x))
        y = convolution(activated)
        for norm, convolution in later_layers:
            y = convolution(functional.relu(norm(y)))
        return self.output(y + (x if self.shortcut is None else self.shortcut(activated)))
