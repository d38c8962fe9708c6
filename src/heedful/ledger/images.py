"""Count the parts of image models; one token of an image may be its class token."""

from dataclasses import replace
from math import prod

from torch import nn

from heedful.ledger.lines import MASK, Line, Walk, entries, formula, grouped, inside, parts
from heedful.models.resnet import ResNet
from heedful.nn.convolutional import Bottleneck, GroupNorm, StandardisedConvolution
from heedful.nn.patches import PatchEmbedding

Shape = tuple[int, int, int]
"""Channels, rows and columns of an image or of the output of a convolution."""


@entries.register
def _patch_embedding(module: PatchEmbedding, name: str, walk: Walk) -> list[Line]:
    """Every token except the class token is a projected patch of pixels; the patches are kept."""
    projection, lines = module.patches.projection, []
    d_model, pixels = len(projection.weight), projection.weight[0].numel()
    if module.class_token is not None:
        how = formula("d_model", d_model=d_model)
        lines.append(Line("class token", str(how), own=how.value * walk.first(module.class_token)))
    patches = walk.rows - len(lines)
    how = formula("numbers * d_model + d_model", numbers=pixels, d_model=d_model)
    both = [walk.first(parameter) for parameter in (projection.weight, projection.bias)]
    product = 2 * patches * pixels * d_model
    kept = patches * pixels + MASK * walk.rows * d_model * (module.dropout.p > 0)
    lines.append(Line("patches", str(how), own=how.value * all(both), own_flops=product, own_kept=kept))
    return grouped(name, [*lines, *inside(module, walk, skip={"patches", "dropout"})])


@parts.register
def _resnet(module: ResNet, walk: Walk) -> list[Line]:
    """Count root, blocks and the last norm; the image size determines their grids.

    Inputs of convolutions and norms are kept. Standardised filters are kept once per batch, whatever its
    size, and not counted.
    """
    shape: Shape = (0, *module.size)
    root, blocks = [], []
    for part in module.root:
        lines, shape = _of_root(part, shape, walk)
        root += lines
    for block in module.blocks:
        assert isinstance(block, Bottleneck)
        lines, shape = _bottleneck(block, shape, walk)
        blocks += lines
    norm = _group_norm(module.norm, shape, walk)
    norm = replace(norm, own_kept=2 * norm.own_kept)  # also the output of ReLU, which the heads read
    heads = inside(module, walk, skip={"root", "blocks", "norm"})
    return [*grouped("root", root), *grouped("blocks", blocks), norm, *heads]


def _of_root(part: nn.Module, shape: Shape, walk: Walk) -> tuple[list[Line], Shape]:
    channels, rows, columns = shape
    match part:
        case StandardisedConvolution():
            line, made = _filters(part, shape, walk)
            return [line], made
        case nn.ConstantPad2d(padding=(left, right, top, bottom)):
            return [], (channels, rows + top + bottom, columns + left + right)
        case nn.MaxPool2d(kernel_size=int(kernel), stride=int(stride)):
            made = (channels, (rows - kernel) // stride + 1, (columns - kernel) // stride + 1)
            # The input is kept, and the index of each maximum (8 bytes each).
            kept = prod(shape) + 2 * prod(made)
            return [Line("pooling", f"the greatest of {kernel} * {kernel}", own_kept=kept)], made
    raise TypeError(f"unexpected part of a residual network's root: {type(part).__name__}")


def _bottleneck(module: Bottleneck, shape: Shape, walk: Walk) -> tuple[list[Line], Shape]:
    """Norms keep their input; convolutions keep the output of ReLU after the norm."""
    lines, inner = [], shape
    for norm, convolution in zip(module.norms, module.convolutions, strict=True):
        assert isinstance(norm, GroupNorm)
        assert isinstance(convolution, StandardisedConvolution)
        lines.append(_group_norm(norm, inner, walk))
        line, inner = _filters(convolution, inner, walk)
        lines.append(line)
    if module.shortcut is not None:
        line, _ = _filters(module.shortcut, shape, walk)
        # The shortcut has the input of the first convolution and is parallel to the three.
        lines.append(replace(line, name=f"shortcut, {line.name}", own_kept=0, own_layers=0))
    return grouped("bottleneck", lines), inner


def _filters(module: StandardisedConvolution, shape: Shape, walk: Walk) -> tuple[Line, Shape]:
    """The image is zero-padded: only the stride reduces its size, rounded up."""
    d_out, d_in = module.weight.shape[:2]
    rows, columns = (-(-side // module.stride) for side in shape[1:])
    how = formula("kernel * kernel * d_in * d_out", kernel=module.kernel, d_in=d_in, d_out=d_out)
    first = walk.first(module.weight)
    line = Line(
        f"convolution to {rows} x {columns}",
        str(how) if first else "shared",
        own=how.value * first,
        own_flops=2 * rows * columns * how.value,
        own_kept=d_in * shape[1] * shape[2],
        own_layers=1,
    )
    return line, (d_out, rows, columns)


def _group_norm(module: GroupNorm, shape: Shape, walk: Walk) -> Line:
    both = [walk.first(parameter) for parameter in (module.weight, module.bias)]
    how = formula("2 * channels", channels=module.num_channels)
    return Line("norm", str(how), own=how.value * all(both), own_kept=prod(shape))
