"""Experiments of no content, for what lists, prints and shows them."""

from heedful.lab.claims import Case, Claim
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome

PANEL = Curves("A line", "x", "y", {"": ([1, 2], [0.5, 2.0])})


def outcome(verdict, panels=(PANEL,)):
    measured = [
        Measured("ratio <a & b>", 0.12345678, expected=0.125),
        Measured("tokens", 60611.23, "positions"),
        Measured("lost", float("nan")),
    ]
    table = [{"k": 1, "what": "one & only"}, {"k": 2.5, "what": "two", "more": float("inf")}]
    return Outcome(verdict, "It is <so>.", measured, table, panels)


def made_up(name="made-up", expected=("holds", "is wrong"), comes=("holds", "is wrong"), **more):
    claim = Claim(
        title=f"The title of {name} & more",
        claim='One "thing" <is> another.',
        source="S0, somewhere; A & B 2017",
        items=(7, 11),
        control="The other way about.",
        expected=expected,
        verdicts=(Case(verdict="holds", statement="It is <so>."),),
        **more,
    )
    return Experiment(name, claim, lambda size: outcome(comes[0]), lambda size: outcome(comes[1], ()))
