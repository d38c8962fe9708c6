"""How the parts of models of pictures are counted; one token of a picture may be its class token."""

from heedful.nn.patches import PatchEmbedding
from heedful.runs.ledger.lines import MASK, Line, Walk, entries, formula, grouped, inside


@entries.register
def _patch_embedding(module: PatchEmbedding, name: str, walk: Walk) -> list[Line]:
    """Every token but the class token is a square of pixels, projected; the squares are kept."""
    projection, lines = module.patches.projection, []
    d_model, pixels = len(projection.weight), projection.weight[0].numel()
    if module.class_token is not None:
        how = formula("d_model", d_model=d_model)
        lines.append(Line("class token", str(how), own=how.value * walk.first(module.class_token)))
    squares = walk.rows - len(lines)
    how = formula("numbers * d_model + d_model", numbers=pixels, d_model=d_model)
    both = [walk.first(parameter) for parameter in (projection.weight, projection.bias)]
    product = 2 * squares * pixels * d_model
    kept = squares * pixels + MASK * walk.rows * d_model * (module.dropout.p > 0)
    lines.append(Line("squares", str(how), own=how.value * all(both), own_flops=product, own_kept=kept))
    return grouped(name, [*lines, *inside(module, walk, skip={"patches", "dropout"})])
