"""Parts of convolutional networks for pictures ``[B, C, H, W]``, whose norms look at one picture at a time.

Batch normalisation couples the pictures of a batch, and fails where few of them fit on a device. BiT
normalises the features of each picture in groups, and the weights besides (Kolesnikov et al. 2020).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.taps import Tap


class StandardisedConvolution(nn.Module):
    """A convolution whose filters have mean 0 and variance 1: ``Ŵ_c = (W_c - μ_c) / √(σ_c² + ε)``.

    μ_c and σ_c² (biased) are those of the C k² numbers of the filter that makes output channel c. They are
    computed anew at every step, in fp32 where W has fewer bits, and gradients go through them.

    (k - 1) / 2 zeros surround the picture, so that its size is kept, or divided by the stride and rounded up.
    There is no bias: the norm that follows would remove it, or has its own.

    Source: Qiao et al. 2019, section 3; ε = 1e-10 within the root is that of BiT's released code.

    Args:
        d_in, d_out: channels.
        kernel: k; odd.
        stride: pixels from one output to the next.
    """

    epsilon = 1e-10

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"a kernel of width {kernel} has no middle: take an odd width")
        self.kernel, self.stride = kernel, stride
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel, kernel))
        # What is drawn decides the size of the first steps, since the scale of W divides its gradient.
        nn.init.normal_(self.weight, std=(d_in * kernel**2) ** -0.5)

    def standardised(self) -> Float[Tensor, "d_out d_in k k"]:
        """Ŵ."""
        wide = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        variance, mean = torch.var_mean(wide, dim=(1, 2, 3), correction=0, keepdim=True)
        return ((wide - mean) * torch.rsqrt(variance + self.epsilon)).to(self.weight.dtype)

    def forward(self, x: Float[Tensor, "B d_in H W"]) -> Float[Tensor, "B d_out rows columns"]:
        """Filter the pictures.

        Along an axis with one output place, filters are cut to the pixels that they meet. Of weights that
        meet zeros alone, oneDNN does not compute the bf16 gradient: it returns what was in memory before.
        """
        weight, padding = self.standardised(), [self.kernel // 2] * 2
        for axis, size in enumerate(x.shape[2:]):
            if size <= self.stride:
                met = min(size, self.kernel - self.kernel // 2)
                weight = weight.narrow(axis + 2, self.kernel // 2, met)
                x, padding[axis] = x.narrow(axis + 2, 0, met), 0
        return functional.conv2d(x, weight, stride=self.stride, padding=padding)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        d_out, d_in = self.weight.shape[:2]
        return f"{d_in}, {d_out}, kernel={self.kernel}, stride={self.stride}"


class GroupNorm(nn.GroupNorm):
    """Each group of neighbouring channels of a picture is normalised over its channels and pixels.

    y = γ (x - μ) / √(σ² + ε) + β; γ and β are in R^d, 1 and 0 at the start.

    Source: Wu and He 2018, section 3.1.

    Args:
        d: channels.
        n_groups: groups of them; it divides d.
        eps: ε.
    """

    def __init__(self, d: int, n_groups: int, eps: float = 1e-5) -> None:
        if n_groups < 1 or d % n_groups:
            raise ValueError(f"{d} channels cannot be cut into {n_groups} equal groups")
        super().__init__(n_groups, d, eps=eps)

    def forward(self, input: Float[Tensor, "B d H W"]) -> Float[Tensor, "B d H W"]:
        """Normalise every picture."""
        return super().forward(input)


class Bottleneck(nn.Module):
    """A pre-activation residual block of three convolutions, the middle one narrow.

        a = relu(norm_1(x))
        y = S(x) + conv_3(relu(norm_3(conv_2(relu(norm_2(conv_1(a)))))))

    conv_1 and conv_3 look at one pixel, conv_2 at 3 x 3 of them, at every ``stride``-th. S is x itself where
    sizes agree, else a convolution of one pixel on a: nothing is normalised or cut off on the way from the
    first block to the last.

    Source: He et al. 2016b, figures 1(b) and 4(e), with the stride in conv_2 and the projection after the
    first activation, as in BiT's released code.

    The tap ``output`` sees y.

    Args:
        d_in, d_hidden, d_out: channels before, between and after the convolutions.
        stride: of conv_2 and S.
        n_groups: of the norms.
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
        same = stride == 1 and d_in == d_out
        self.shortcut = None if same else StandardisedConvolution(d_in, d_out, 1, stride)
        self.output = Tap("the residual stream after the block: channels, rows, columns")

    def forward(self, x: Float[Tensor, "B d_in H W"]) -> Float[Tensor, "B d_out rows columns"]:
        """One block."""
        first, *rest = zip(self.norms, self.convolutions, strict=True)
        norm, convolution = first
        activated = functional.relu(norm(x))
        y = convolution(activated)
        for norm, convolution in rest:
            y = convolution(functional.relu(norm(y)))
        return self.output(y + (x if self.shortcut is None else self.shortcut(activated)))
