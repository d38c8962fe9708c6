"""Whether a training went on for too long: its validation loss rose again long before the end."""

from collections.abc import Iterable

from heedful.typing import JsonMapping

RISE = 1.1
"""The last validation loss is at least this many times the lowest one if the model overfits."""

SHARE = 0.5
"""The lowest validation loss is in this share of the updates, the first ones, if the model overfits."""


def overfitting_note(events: Iterable[JsonMapping]) -> str | None:
    """Return what to change if the model overfits, given the events of a training; None if it does not.

    Probabilities may get worse while more answers are right: with another ``training.metric`` than the loss,
    a later model is kept.
    """
    validated = [event for event in events if event.get("event") == "validated"]
    losses = {event["update"]: event["metrics"].get("loss") for event in validated}
    known = {update: loss for update, loss in losses.items() if loss is not None}  # null: not finite
    if not known:
        return None
    lowest, last = min(known, key=lambda update: known[update]), max(known)
    if lowest > SHARE * last or known[last] < RISE * known[lowest] or known[lowest] <= 0:
        return None
    return (
        f"the validation loss was lowest at update {lowest:,} ({known[lowest]:.4g}) and rose to "
        f"{known[last]:.4g}, so the model overfits: fewer updates may be better, for example "
        f"training.max_updates={2 * lowest}, or a smaller model (model.d_model, model.n_layers)"
    )
