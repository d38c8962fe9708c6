"""Count the parts of recurrent models: cells gate by gate, attention, readouts, bridges."""

from dataclasses import replace

from torch import nn

from heedful.ledger.attention import Compared, score_entries, weighted_sum
from heedful.ledger.lines import Line, Walk, entries, formula, grouped, inside, linear, own
from heedful.nn.attention.recurrent import FixedContext, RecurrentAttention
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention
from heedful.nn.attentive import AttendThenUpdate, AttentiveDecoder, UpdateThenAttend
from heedful.nn.bridges import ProjectedBridge
from heedful.nn.cells import Cell, ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell, StackedCell
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentStack, ResidualRecurrence

# Name, gates, and vectors of width d_h that one step keeps for the backward pass: the state before,
# the activated gates, and the factors of their products.
_CELLS: dict[type[Cell], tuple[str, int, int]] = {
    ElmanCell: ("Elman cell", 1, 1),
    LSTMCell: ("LSTM cell", 4, 7),
    GRUCell: ("GRU cell", 3, 6),
    ResetAfterGRUCell: ("GRU cell, reset after", 3, 6),
}


@entries.register(ElmanCell)
@entries.register(LSTMCell)
@entries.register(GRUCell)
@entries.register(ResetAfterGRUCell)
def _cell(module: Cell, name: str, walk: Walk) -> list[Line]:
    """``gates * (d_h d_x + d_h^2 + d_h)``, plus further vectors of the cell."""
    title, gates, vectors = _CELLS[type(module)]
    parameters = _gate_parameters(module)
    fresh = [parameter for parameter in parameters if walk.first(parameter)]
    whole_gates = len(fresh) == len(parameters)
    how = formula("d_h * d_x + d_h * d_h + d_h", d_h=module.d_hidden, d_x=module.d_in)
    gate = Line(
        "gate" if gates > 1 else "state",
        str(how) if whole_gates else "shares parameters with a cell above",
        own=how.value if whole_gates else 0,
        own_flops=2 * walk.rows * module.d_hidden * (module.d_in + module.d_hidden),
        times=gates,
    )
    apart = Line("not shared", own=0 if whole_gates else sum(p.numel() for p in fresh))
    kept = walk.rows * (module.d_in + vectors * module.d_hidden)
    (whole,) = grouped(title, [gate, apart, *own(module, walk)])
    return [replace(whole, own_kept=kept)]


def _gate_parameters(module: Cell) -> list[nn.Parameter]:
    return [p for part in module.children() for p in part.parameters()]


@entries.register(Recurrence)
@entries.register(ResidualRecurrence)
@entries.register(Bidirectional)
@entries.register(StackedCell)
def _transparent(module: nn.Module, name: str, walk: Walk) -> list[Line]:
    """Return the lines of the cells, without a line for the container."""
    return inside(module, walk)


@entries.register
def _stack(module: RecurrentStack, name: str, walk: Walk) -> list[Line]:
    return grouped(name, inside(module, walk))


@entries.register
def _attend_then_update(module: AttendThenUpdate, name: str, walk: Walk) -> list[Line]:
    context = linear("context to the gates", module.context, walk, ("d_context", "gates"))
    return [*inside(module, walk, skip={"context"}), context]


@entries.register
def _update_then_attend(module: UpdateThenAttend, name: str, walk: Walk) -> list[Line]:
    return inside(module, walk)


@entries.register
def _attention(module: RecurrentAttention, name: str, walk: Walk) -> list[Line]:
    """One query per target token, over all source tokens; annotations are keys and values."""
    d = module.d_context
    d_q = _query_width(module, d)
    compared = Compared(1, 1, walk.rows, walk.source, d_q, d)
    lines = [*score_entries(module.score, compared, walk), weighted_sum(compared, d)]
    # Annotations and prepared keys are kept once per sentence, weights per pair.
    (whole,) = grouped("attention", lines)
    return [replace(whole, own_kept=walk.source * 2 * d + compared.pairs)]


def _query_width(module: RecurrentAttention, d: int) -> int:
    """Return the width of a query: from a matrix of the score, otherwise the width of the annotations."""
    key = getattr(module.score, "key", None)
    return key.out_features if isinstance(key, nn.Linear) else d


@entries.register
def _attention_heads(module: MultiHeadAdditiveAttention, name: str, walk: Walk) -> list[Line]:
    """One query per target token and head, over all source tokens; their keys are projected once."""
    heads, d_k, d_v = module.n_heads, module.d_k, module.d_v
    pairs = heads * walk.rows * walk.source
    source = walk.over(walk.source)
    first = walk.first(module.vector)
    how = formula("n_heads * d_k", n_heads=heads, d_k=d_k)
    compared = Compared(heads, heads, walk.rows, walk.source, d_k, d_k)
    lines = [
        linear("W_q and b", module.query, walk, ("d_q", "n_heads_d_k"), keeps=False),
        linear("W_k", module.key, source, ("d_annotation", "n_heads_d_k")),
        linear("W_v", module.value, source, ("d_annotation", "n_heads_d_v"), keeps=False),
        *([] if module.location is None else entries(module.location, "location", walk)),
        Line("g", str(how) if first else "shared", own=how.value * first, own_flops=2 * pairs * d_k),
        weighted_sum(compared, d_v),
        linear("W_o", module.out, walk, ("n_heads_d_v", "d_annotation")),
    ]
    (whole,) = grouped("attention with heads", lines)
    kept = walk.rows * module.query.in_features + walk.source * heads * d_v + pairs * (d_k + 1)
    return [replace(whole, own_kept=kept)]


@entries.register
def _location(module: LocationFeatures, name: str, walk: Walk) -> list[Line]:
    """At every step, the last alignment of every head is convolved and projected to the width of a key."""
    heads, channels, d_k = module.weight.shape
    places = walk.rows * walk.source
    lines = []
    for part in module.filters:
        weight = next(part.parameters())
        width = weight.shape[-1]
        how = formula("channels * width", channels=channels, width=width)
        first = walk.first(weight)
        lines.append(
            Line(
                "F, the filters of a head",
                str(how) if first else "shared",
                own=how.value * first,
                own_flops=2 * places * channels * width,
                own_kept=places,
            )
        )
    how, first = formula("channels * d_k", channels=channels, d_k=d_k), walk.first(module.weight)
    flops, kept = 2 * places * channels * d_k, places * channels
    told = str(how) if first else "shared"
    lines.append(
        Line("U, of a head", told, own=how.value * first, own_flops=flops, own_kept=kept, times=heads)
    )
    return lines


@entries.register
def _fixed(module: FixedContext, name: str, walk: Walk) -> list[Line]:
    return []


@entries.register
def _decoder(module: AttentiveDecoder, name: str, walk: Walk) -> list[Line]:
    feed = []
    if module.feed is not None:
        feed = [linear("input feeding to the gates", module.feed, walk, ("d_readout", "gates"))]
    return grouped(name, [*feed, *inside(module, walk, skip={"feed"})])


@entries.register
def _bridge(module: ProjectedBridge, name: str, walk: Walk) -> list[Line]:
    """Runs once per sentence."""
    return [linear("bridge", module.linear, walk.over(1), ("d_h", "states"))]


@entries.register(MaxoutReadout)
@entries.register(TanhReadout)
def _readout(module: MaxoutReadout | TanhReadout, name: str, walk: Walk) -> list[Line]:
    names = {"state": "d_state", "token": "d_embedding", "context": "d_context"}
    lines = [
        linear(f"W for the {part}", layer, walk, (names[part], "d_readout"))
        for part, layer in module.named_children()
        if isinstance(layer, nn.Linear)
    ]
    (whole,) = grouped("readout", lines)
    widest = module.state.out_features if isinstance(module, MaxoutReadout) else 0
    return [replace(whole, own_kept=walk.rows * (widest + module.d_out))]
