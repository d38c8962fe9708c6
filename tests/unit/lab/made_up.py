"""Experiments of no content, for what lists, prints and shows them."""

from heedful.lab.claims import Case, Claim
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Series

PANEL = Curves("A line", "x", "y", {"": ([1, 2], [0.5, 2.0])})


VERDICTS = (
    Case(**{"verdict": "holds", "if": "verdict == 'holds'"}),
    Case(**{"verdict": "holds with conditions", "if": "verdict == 'holds with conditions'"}),
    Case(verdict="is wrong"),
)
"""The verdict is the value of that name."""


def measure(size, verdict, panels=(PANEL,)):
    values = {
        "verdict": verdict,
        "ratio": Measured("ratio <a & b>", 0.12345678, expected=0.125),
        "tokens": Measured("tokens", 60611.23, "positions"),
        "lost": Measured("lost", float("nan")),
    }
    table = [{"k": 1, "what": "one & only"}, {"k": 2.5, "what": "two", "more": float("inf")}]
    return Series(values, table, panels)


def made_up(name="made-up", expected=("holds", "is wrong"), comes=("holds", "is wrong"), heading="", **more):
    claim = Claim(
        title=f"The title of {name} & more",
        claim='One "thing" <is> another.',
        source="S0, somewhere; A & B 2017",
        items=(7, 11),
        control="The other way about.",
        expected=expected,
        statement="It is <so>.",
        verdicts=VERDICTS,
        **more,
    )
    arguments = {"verdict": comes[0]}, {"verdict": comes[1], "panels": ()}
    return Experiment(name, claim, measure, arguments, heading)
