"""Lines of a model summary: the tree of a model's modules, with parameters and measured FLOPs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from math import prod

from torch import Tensor, nn

from heedful.model_summary.measuring import Operations, Product
from heedful.model_summary.parts import (
    LEAVES,
    attention_note,
    attention_title,
    block_title,
    part_of,
)
from heedful.nn.attention.compressed import Compression
from heedful.nn.attention.heads import MultiHead
from heedful.nn.blocks import DecoderBlock, EncoderBlock
from heedful.nn.cells import Cell
from heedful.nn.convolutional import StandardisedConvolution
from heedful.nn.dropout import Dropout
from heedful.nn.experts import Gate, MixtureOfExperts
from heedful.nn.feedforward import GatedFeedForward

Axes = tuple[tuple[str, int], ...]
"""Symbols and lengths of the axes of a parameter."""


@dataclass(frozen=True)
class Line:
    """A line of a summary: a part, its formula, and the number of equal parts.

    Args:
        name: the name of the part.
        formula: the formula of ``each``, or a description.
        own_parameters: parameters of one part, if the line has no sub-parts.
        own_flops: FLOPs of one part, forward, for a pair of sentences.
        own_layers: layers in the lecture's sense (attentions, and layers of hidden units).
        times: number of equal parts.
        parts: the lines that are summed.
        note: a comment, for example if a lecture or paper prints another number.
    """

    name: str
    formula: str = ""
    own_parameters: int = 0
    own_flops: int = 0
    own_layers: int = 0
    times: int = 1
    parts: tuple["Line", ...] = ()
    note: str = ""

    @property
    def each(self) -> int:
        """Parameters of one part."""
        return self.own_parameters + sum(part.parameters for part in self.parts)

    @property
    def parameters(self) -> int:
        """Parameters of all equal parts."""
        return self.times * self.each

    @property
    def flops(self) -> int:
        """FLOPs of all equal parts, forward, for a pair of sentences."""
        return self.times * (self.own_flops + sum(part.flops for part in self.parts))

    @property
    def layers(self) -> int:
        """Attentions and layers of hidden units of all equal parts."""
        return self.times * (self.own_layers + sum(part.layers for part in self.parts))


def formula(terms: Sequence[Axes]) -> str:
    """Return a sum of products of symbols and its value: ``d * n + n = 512 * 8 + 8``; equal terms once."""
    distinct = list(dict.fromkeys(terms))
    factors = [f"{n} * " if (n := terms.count(term)) > 1 else "" for term in distinct]

    def sum_of_products(index: int) -> str:
        products = (" * ".join(str(axis[index]) for axis in term) for term in distinct)
        return " + ".join(factor + product for factor, product in zip(factors, products, strict=True))

    return f"{sum_of_products(0)} = {sum_of_products(1)}"


def total_line(model: nn.Module, operations: Operations) -> Line:
    """Return the line of a whole model."""
    lines = _Lines(operations)
    parts = [*lines.parameters(model, {}), *lines.children(model, {}, lines.pop_products(model))]
    remaining = [line for name, p in model.named_parameters() for line in lines.plain(name, p)]
    (total,) = grouped("total", [*parts, *remaining]) or [Line("total")]
    return replace(total, times=1)


def grouped(name: str, lines: Iterable[Line], layers: int = 0) -> list[Line]:
    """Return one line that is the sum of others, equal lines merged; an empty list if they count nothing."""
    counts: dict[Line, int] = {}
    for line in lines:
        if line.parameters or line.flops or line.formula.startswith("tied"):
            single = replace(line, times=1)
            counts[single] = counts.pop(single, 0) + line.times
    parts = tuple(replace(single, times=times) for single, times in counts.items())
    return [Line(name, own_layers=layers, parts=parts)] if parts else []


class _Lines:
    """Walk through the modules of a model and take their parameters and products, each once.

    Args:
        operations: the measured products.
    """

    def __init__(self, operations: Operations) -> None:
        self.products = dict(operations.products)
        self.tokens, self.shapes = operations.tokens, operations.shapes
        self.counted_ids: set[int] = set()

    def mark_counted(self, parameter: Tensor | None) -> bool:
        """Mark a parameter as counted; return whether it exists and was not counted before."""
        if parameter is None or id(parameter) in self.counted_ids:
            return False
        self.counted_ids.add(id(parameter))
        return True

    def pop_products(self, module: nn.Module | None) -> list[Product]:
        """Remove and return the products of a module itself; a module in a second place has none left."""
        return self.products.pop(module, []) if module is not None else []

    def flops(self, module: nn.Module | None) -> int:
        """Return the FLOPs of a module itself."""
        return sum(product.flops for product in self.pop_products(module))

    # Any module

    @singledispatchmethod
    def lines_of(self, module: nn.Module, name: str) -> list[Line]:
        """Return the lines of a module, whose attribute is called ``name``."""
        for cls, (title, *symbols) in LEAVES.items():
            if isinstance(module, cls):
                return self.leaf(module, title or name, symbols)
        part = part_of(module)
        parameters = self.parameters(module, part.names, name)
        owner = name if part.title is None else ""
        lines = [
            *parameters,
            *self.children(module, part.names, self.pop_products(module), part.products, owner),
        ]
        return lines if part.title is None else grouped(part.title or name, lines, part.layers)

    def parameters(
        self, module: nn.Module, names: Mapping[str, tuple[str, ...]], name: str = ""
    ) -> list[Line]:
        """Return a line for each parameter of the module itself."""
        lines = []
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if key not in names:
                lines += self.plain(key, parameter)
                continue
            title, *symbols = names[key]
            sizes = [size for size in parameter.shape if size != 1] or [1]
            text = formula([tuple(zip(symbols, sizes, strict=False))])
            is_new = self.mark_counted(parameter)
            lines.append(
                Line(title or name, text if is_new else "tied to a matrix above", parameter.numel() * is_new)
            )
        return lines

    def plain(self, name: str, parameter: Tensor) -> list[Line]:
        """Return a line with the shape of a parameter that was not counted yet."""
        text = " * ".join(map(str, parameter.shape))
        return [Line(name, text, own_parameters=parameter.numel())] if self.mark_counted(parameter) else []

    def children(
        self,
        module: nn.Module,
        names: Mapping[str, tuple[str, ...]],
        products: list[Product],
        titles: Sequence[str] = (),
        name: str = "",
    ) -> list[Line]:
        """Return the lines of a module's parts, and add the module's own products to lines by their names."""
        lines: list[Line] = []
        for key, part in module._modules.items():
            if part is None:
                continue
            if key in names:
                lines += self.leaf(part, names[key][0], names[key][1:])
            elif name and key == "positions":
                inner = self.lines_of(part, key)
                title = key if name == key else f"{key} of the {name}"
                lines += [replace(line, name=title) for line in inner if line.parameters]
            else:
                lines += self.lines_of(part, key.replace("_", " "))
        return self.with_products(module, lines, products, titles or ("products",))

    def with_products(
        self, module: nn.Module, lines: list[Line], products: list[Product], titles: Sequence[str]
    ) -> list[Line]:
        """Add products to the lines of these names, in turn; lines that do not exist are new."""
        by_title: dict[str, list[Product]] = defaultdict(list)
        for i, product in enumerate(products):
            by_title[titles[i % len(titles)]].append(product)
        for title, products_of_line in by_title.items():
            flops = sum(product.flops for product in products_of_line)
            places = [i for i, line in enumerate(lines) if line.name == title]
            if places:
                index = places[0]
                lines[index] = replace(lines[index], own_flops=lines[index].own_flops + flops)
            else:
                lines.append(
                    Line(title, self.product_formula(module, title, products_of_line[0]), own_flops=flops)
                )
        return lines

    def product_formula(self, module: nn.Module, title: str, product: Product) -> str:
        """Return the formula of products without a parameter."""
        heads = ("n_heads", getattr(module, "n_heads", 1))
        match title:
            case "scores":
                return f"2 FLOPs * {formula([(('keys', product.last), heads, ('d_k', product.inner))])}"
            case "weighted sum":
                return f"2 FLOPs * {formula([(('keys', product.inner), heads, ('d_v', product.last))])}"
            case "Fourier transform":
                sizes = (("positions", product.inner), ("d_model", product.last))
                return f"5 FLOPs * N * log2 N, N = {formula([sizes])}"
        return ""

    def leaf(self, module: nn.Module, name: str, symbols: Sequence[str], flops: int = 0) -> list[Line]:
        """Return the line of a module with a ``weight`` and perhaps a ``bias``, and no parts."""
        flops += self.flops(module)
        if isinstance(module, StandardisedConvolution) and module in self.shapes:
            name += " to {} x {}".format(*self.shapes[module][-2:])
        terms: list[Axes] = []
        n_parameters, tied = 0, ""
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if not self.mark_counted(parameter):
                tied = "tied to a matrix above" if key == "weight" else tied
                continue
            sizes = list(parameter.shape)
            if isinstance(module, nn.Linear | nn.Conv1d | StandardisedConvolution):
                sizes = sizes[::-1]  # stored as outputs x inputs
            if len(sizes) > len(symbols):
                sizes = [size for size in sizes if size != 1]
            terms.append(tuple(zip(symbols[-len(sizes) :], sizes, strict=False)))
            n_parameters += parameter.numel()
        texts = (tied, formula(terms) if terms else "")
        parts = self.children(module, {}, []) if module._modules else []
        layers = int(isinstance(module, StandardisedConvolution) and not name.startswith("shortcut"))
        return [Line(name, "; ".join(filter(None, texts)), n_parameters, flops, layers), *parts]

    # Containers

    @lines_of.register
    def _(self, module: Dropout, name: str) -> list[Line]:
        return []

    @lines_of.register
    def _(self, module: nn.ModuleList, name: str) -> list[Line]:
        """Name every part alike, so that equal ones are merged; parallel convolutions by their width."""
        lines = []
        for part in module:
            width = f"width {part.kernel_size[0]}" if isinstance(part, nn.Conv1d) else "layer"
            lines += self.lines_of(part, width)
        return lines

    @lines_of.register
    def _(self, module: nn.ModuleDict, name: str) -> list[Line]:
        """Name heads by what they predict."""
        lines = []
        for key, head in module.items():
            title = "output layer" if key == "token" else f"head {key}"
            match [*head.children()] or [head]:
                case [nn.Linear() as layer]:
                    lines += self.leaf(layer, title, ("d_model", "V"))
                case [Dropout(), nn.Linear() as layer]:
                    lines += self.leaf(layer, title, ("d_model", "n"))
                case _:
                    lines += self.lines_of(head, title)
        return lines

    @lines_of.register(EncoderBlock)
    @lines_of.register(DecoderBlock)
    def _(self, module: EncoderBlock | DecoderBlock, name: str) -> list[Line]:
        return grouped(block_title(module), self.children(module, {}, self.pop_products(module)))

    # Fused matrices

    def slices(
        self, layer: nn.Module, parts: Sequence[tuple[str, str, int, int]], d: str = "d_model"
    ) -> list[Line]:
        """Return lines for the slices of a fused linear layer, with their shares of its FLOPs.

        Args:
            layer: the layer.
            parts: name, symbol of the width, width, and number of equal slices.
            d: symbol of the input's width.
        """
        weight, bias = layer.get_parameter("weight"), getattr(layer, "bias", None)
        with_weight, with_bias = self.mark_counted(weight), self.mark_counted(bias)
        rows, d_in, flops, lines = len(weight), weight.shape[1], self.flops(layer), []
        for name, symbol, width, times in parts:
            terms: list[Axes] = [((d, d_in), (symbol, width))] * with_weight + [
                ((symbol, width),)
            ] * with_bias
            n_parameters = width * (d_in * with_weight + with_bias)
            text = formula(terms) if terms else "shared"
            lines.append(
                Line(name, text, own_parameters=n_parameters, own_flops=flops * width // rows, times=times)
            )
        return lines

    @lines_of.register
    def _(self, module: GatedFeedForward, name: str) -> list[Line]:
        part, d_ff = part_of(module), module.down.in_features
        halves = self.slices(module.gate_up, [("W_gate", "d_ff", d_ff, 1), ("W_up", "d_ff", d_ff, 1)])
        down = self.leaf(module.down, "W_down", ("d_ff", "d_model"))
        return grouped(str(part.title), [*halves, *down], part.layers)

    @lines_of.register
    def _(self, module: MultiHead, name: str) -> list[Line]:
        """Return projections by head, the lines of the score, the weighted sum and W_O."""
        tokens = self.tokens.get(module, 0)
        query = ("W_Q", "d_k", module.d_k, module.n_heads)
        keys = ("W_K", "d_k", module.d_k, module.n_kv_heads)
        values = ("W_V", "d_v", module.d_v, module.n_kv_heads)
        fused = {"qkv": [query, keys, values], "q": [query], "kv": [keys, values]}
        lines: list[Line] = []
        scoring: list[Line] = []
        for key, part in module._modules.items():
            if key == "score" and part is not None:
                scoring = self.lines_of(part, key)
            elif key in fused and part is not None:
                lines += self.slices(part, fused[key])
            elif isinstance(part, Compression):
                lines += self.compression(part, "keys" if key == "compress_keys" else "values")
            elif part is not None and key != "out":
                lines += self.lines_of(part, key)
        lines += self.parameters(module, {})
        explicit = any(line.name in {"scores", "v of the score"} and line.flops for line in scoring)
        products = self.pop_products(module)
        titles = ("weighted sum",) if explicit else ("scores", "weighted sum")
        scoring = self.with_products(module, scoring, products, titles)
        lines += [self.with_keys(module, line, tokens) for line in scoring]
        out = self.leaf(module.out, "W_O", ("n_heads * d_v", "d_model"))
        sizes = f"{module.n_heads} * {module.d_v}"
        lines += [
            replace(out[0], formula=out[0].formula.replace(f"= {module.out.in_features} ", f"= {sizes} "))
        ]
        return grouped(attention_title(module), lines, 1)

    def with_keys(self, module: MultiHead, line: Line, tokens: int) -> Line:
        """Return the line of scores or of the weighted sum with a note on hidden keys."""
        if line.name not in {"scores", "weighted sum"} or not line.formula:
            return line
        text, _, values = line.formula.partition(" = ")
        keys, _, width = values.split(" * ")
        product_text = f"{text} = {keys} * {module.n_heads} * {width}"
        return replace(line, formula=product_text, note=attention_note(module, tokens, int(keys)))

    def compression(self, module: Compression, role: str) -> list[Line]:
        """Return the line of the convolution of keys or values, for one head."""
        heads, _, width = module.weight.shape
        d = "d_k" if role == "keys" else "d_v"
        terms: list[Axes] = []
        if self.mark_counted(module.weight):
            terms.append((("factor", module.factor), (d, width), (d, width)))
        if self.mark_counted(module.bias):
            terms.append(((d, width),))
        n_parameters = sum(prod(size for _, size in term) for term in terms)
        flops = self.flops(module) // heads
        name = f"C of the {role}"
        return [Line(name, formula(terms) if terms else "shared", n_parameters, own_flops=flops, times=heads)]

    # Cells and experts

    @lines_of.register
    def _(self, module: Cell, name: str) -> list[Line]:
        """Return ``gates * (d_h d_x + d_h^2 + d_h)``, and further vectors of the cell."""
        gates = module.d_projected // module.d_hidden
        flops = self.flops(module) + sum(self.flops(part) for part in module.children())
        matrices = [p for part in module.children() for p in part.parameters()]
        uncounted = [p for p in matrices if self.mark_counted(p)]
        d_h, d_x, is_complete = (
            ("d_h", module.d_hidden),
            ("d_x", module.d_in),
            len(uncounted) == len(matrices),
        )
        gate = Line(
            "gate" if gates > 1 else "state",
            formula([(d_h, d_x), (d_h, d_h), (d_h,)])
            if is_complete
            else "shares parameters with a cell above",
            own_parameters=sum(p.numel() for p in uncounted) // gates if is_complete else 0,
            own_flops=flops // gates,
            times=gates,
        )
        rest = Line("not shared", own_parameters=0 if is_complete else sum(p.numel() for p in uncounted))
        return grouped(part_of(module).title or name, [gate, rest, *self.parameters(module, {})])

    @lines_of.register
    def _(self, module: Gate, name: str) -> list[Line]:
        rows = len(module.weight)
        noisy = rows > module.n_experts
        (line,) = self.leaf(
            module, "W_g and W_noise" if noisy else "W_g", ("2 * n" if noisy else "n", "d_model")
        )[:1]
        sizes = f"2 * {module.n_experts}" if noisy else str(rows)
        return [replace(line, formula=line.formula.replace(f"= {rows} ", f"= {sizes} "))]

    @lines_of.register
    def _(self, module: MixtureOfExperts, name: str) -> list[Line]:
        """All experts have parameters; each token uses k of them: their work is one line."""
        experts = [line for expert in module.experts for line in self.lines_of(expert, "expert")]
        weights = [_without_flops(replace(line, name="expert")) for line in experts]
        work = replace(_sum_of_work(experts), name=f"work of the {module.gate.k} experts of each token")
        return grouped("mixture of experts", [*self.lines_of(module.gate, "gate"), *weights, work])


def _without_flops(line: Line) -> Line:
    """Return the line with its parameters only."""
    parts = tuple(map(_without_flops, line.parts))
    return replace(line, own_flops=0, own_layers=0, parts=parts)


def _sum_of_work(lines: Sequence[Line]) -> Line:
    """Return one line with the FLOPs of several lines of equal structure, without their parameters."""
    parts = tuple(map(_sum_of_work, zip(*(line.parts for line in lines), strict=True)))
    first, flops = lines[0], sum(line.own_flops for line in lines)
    return replace(
        first,
        own_parameters=0,
        own_flops=flops,
        formula="" if first.own_parameters else first.formula,
        parts=parts,
    )


# Notes on numbers that a lecture or a paper prints differently, or rounded.
# Only lines with exactly the sizes of the lecture or paper have one.

_SLIP = "lecture S0 prints 32,178, which is wrong"
_ENCODER_LAYER = "lecture S0: about 3 million"
_ENCODER = "lecture S0: 6 x 3 million, about 18 million"
_DECODER_LAYER = "lecture S0: about 4 million"
_TABLE = "lecture S0 (W_D): about 19 of 65 million"
_ONE_MILLION = "lecture S0: about 1 million"

# By the name of a line, and its formula or, for a sum of parts, the parameters of one. For the matrices of
# one head, lecture S0 counts those of the encoder.
_NOTES: dict[tuple[str, str | int], str] = {
    ("W_Q", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_K", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_V", "d_model * d_v = 512 * 64"): _SLIP,
    ("self-attention", 1_048_576): "4 d_model^2 for any number of split heads",
    ("causal self-attention", 1_048_576): _ONE_MILLION,
    ("cross-attention", 1_048_576): _ONE_MILLION,
    ("feed-forward", 2_099_712): "lecture S0: about 2 million",
    ("encoder layer", 3_150_336): _ENCODER_LAYER,
    ("encoder layer", 3_152_384): f"{_ENCODER_LAYER}; 3,150,336 without biases",
    ("encoder", 18_902_016): _ENCODER,
    ("encoder", 18_914_304): _ENCODER,
    ("decoder layer", 4_199_936): _DECODER_LAYER,
    ("decoder layer", 4_204_032): f"{_DECODER_LAYER}; 4,199,936 without biases",
    ("source embedding", "V * d_model = 37000 * 512"): _TABLE,
    ("output layer", "d_model * V = 512 * 37000"): _TABLE,
    ("total", 63_045_632): "lecture S0 and the paper: 65 million",
    ("total", 214_171_648): "the paper: 213 million",
}
_MATRICES = {"W_Q", "W_K", "W_V"}


def with_notes(line: Line, above: str = "") -> Line:
    """Return the line and its parts with the notes for their numbers."""
    parts = tuple(with_notes(part, line.name) for part in line.parts)
    note = _NOTES.get((line.name, line.each if line.parts else line.formula), "")
    if line.name in _MATRICES and above != "self-attention":
        note = ""
    return replace(line, parts=parts, note="; ".join(text for text in (line.note, note) if text))
