"""Count blocks, residual connections, norms, embeddings and positions."""

from dataclasses import replace

from torch import nn

from heedful.ledger.lines import MASK, Line, Walk, entries, formula, grouped, inside
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.blocks import DecoderBlock, EncoderBlock
from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm
from heedful.nn.positions import LearnedPositions
from heedful.nn.recurrent import RecurrentLayer
from heedful.nn.residual import PostNorm, PreNorm


@entries.register(PostNorm)
@entries.register(PreNorm)
def _residual(module: PostNorm | PreNorm, name: str, walk: Walk) -> list[Line]:
    """Return the lines of the part and of its norm; the mask of the dropout is counted with the norm."""
    norms = entries(module.norm, "norm", walk)
    weight = getattr(module.norm, "weight", None)
    width = weight.numel() if isinstance(weight, nn.Parameter) else 0
    if norms and module.dropout.p > 0:
        norms[0] = replace(norms[0], own_kept=norms[0].own_kept + MASK * walk.rows * width)
    return [*entries(module.part, name, replace(walk, width=width)), *norms]


@entries.register(LayerNorm)
@entries.register(BatchNorm)
@entries.register(PowerNorm)
def _norm(module: LayerNorm | BatchNorm | PowerNorm, name: str, walk: Walk) -> list[Line]:
    parameters = [p for p in (module.weight, module.bias) if walk.first(p)]
    how = formula(f"{len(parameters)} * d_model", d_model=module.weight.numel())
    return [Line("norm", str(how), own=how.value, own_kept=walk.rows * module.weight.numel())]


@entries.register
def _rms_norm(module: RMSNorm, name: str, walk: Walk) -> list[Line]:
    """Only a gain; the normalised values are kept in addition to the input."""
    d_model = module.weight.numel()
    first = walk.first(module.weight)
    how = str(formula("d_model", d_model=d_model)) if first else "shared"
    return [Line("norm", how, own=d_model * first, own_kept=2 * walk.rows * d_model)]


@entries.register
def _embedding(module: TokenEmbedding, name: str, walk: Walk) -> list[Line]:
    """Count the table; ids (8 bytes each) and the mask are kept here, rows by the modules that read them."""
    how = formula("V * d_model", V=module.weight.shape[0], d_model=module.weight.shape[1])
    first = walk.first(module.weight)
    kept = walk.rows * (2 + MASK * module.weight.shape[1] * (module.dropout.p > 0))
    table = Line(
        name,
        str(how) if first else "tied to a matrix above",
        own=how.value if first else 0,
        own_kept=kept,
    )
    inner = inside(module, walk, skip={"dropout"})
    positions = [replace(line, name=f"positions of the {name}") for line in inner if line.parameters]
    return [table, *positions]


@entries.register
def _segmented_embedding(module: SegmentedEmbedding, name: str, walk: Walk) -> list[Line]:
    """Count the tables of tokens, positions and segments, then the norm."""
    d_model = module.weight.shape[1]
    tokens = formula("V * d_model", V=module.weight.shape[0], d_model=d_model)
    # Ids of tokens and segments (8 bytes each), and the mask are kept here; the norm keeps the sum.
    kept = walk.rows * (2 + 2 * (module.segments is not None) + MASK * d_model * (module.dropout.p > 0))
    lines = [Line("tokens", str(tokens), own=tokens.value * walk.first(module.weight), own_kept=kept)]
    if module.segments is not None:
        how = formula("n_segments * d_model", n_segments=len(module.segments), d_model=d_model)
        lines.append(Line("segments", str(how), own=how.value * walk.first(module.segments)))
    return grouped(name, [*lines, *inside(module, walk, skip={"dropout"})])


@entries.register
def _positions(module: LearnedPositions, name: str, walk: Walk) -> list[Line]:
    first = walk.first(module.weight)
    how = formula("max_length * d", max_length=module.max_length, d=module.d)
    kept = 2 * walk.rows
    return [Line("positions", str(how) if first else "shared", own=how.value * first, own_kept=kept)]


@entries.register
def _encoder_block(module: EncoderBlock, name: str, walk: Walk) -> list[Line]:
    """Stacks without a source consist of the same blocks, with causal mixers."""
    return grouped(_layer(module.mixer.part), inside(module, walk))


def _layer(mixer: nn.Module) -> str:
    """Return the name of a layer with this mixer."""
    if isinstance(mixer, MemoryCompressedAttention):
        return "memory-compressed layer"
    if isinstance(mixer, RecurrentLayer):
        return "recurrent layer"
    if getattr(mixer, "window", None) is not None:
        return "layer with windows"
    if not getattr(mixer, "causal", False):
        return "encoder layer"
    return "causal layer" if getattr(mixer, "block", None) is None else "local layer"


@entries.register
def _decoder_block(module: DecoderBlock, name: str, walk: Walk) -> list[Line]:
    return grouped("decoder layer", inside(module, walk))
