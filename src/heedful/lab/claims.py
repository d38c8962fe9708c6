"""Claims of the lectures, and the verdicts that rules give on them (`heedful.lab.rules`)."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from heedful.config import Config
from heedful.lab.rules import check, evaluate

Text = Annotated[str, Field(min_length=1)]

Verdict = Literal["holds", "holds with conditions", "is wrong"]

Rule = Annotated[Text, AfterValidator(check)]
"""A condition over measured values."""


class Part(Config):
    """A part of a statement that is only stated if its rule is true."""

    rule: Annotated[Rule, Field(alias="if")]
    text: Text


Statement = Text | tuple[Text | Part, ...]
"""A text in the format of `str.format` over the values, or parts that are joined by spaces."""


class Case(Config):
    """A verdict with its condition.

    Args:
        verdict: the verdict.
        rule: its condition, under the key ``if``; the last case of a claim has none.
        statement: the correct statement in this case; by default that of the claim.
    """

    verdict: Verdict
    rule: Annotated[Rule | None, Field(alias="if")] = None
    statement: Statement | None = None


class Claim(Config):
    """A claim that an experiment tests.

    Args:
        title: one-line title of the experiment.
        claim: the claim as stated in the lectures.
        source: where it is stated: the lecture (S0 to S4), and the paper with its section.
        items: numbers of the lectures' items (`docs/teach/lectures.yaml`) it belongs to.
        control: what the control changes.
        expected: expected verdicts of the experiment and of its control.
        asked: whether the lecture asks a question, so that a wrong claim is not an error of the lecture.
        statement: the correct statement: the claim with its conditions, or what is true instead.
        verdicts: the possible verdicts; the first whose rule is true is the verdict.
    """

    title: Text
    claim: Text
    source: Text
    items: tuple[int, ...]
    control: Text
    expected: tuple[Verdict, Verdict] = ("holds", "is wrong")
    asked: bool = False
    statement: Statement | None = None
    verdicts: tuple[Case, ...]

    @model_validator(mode="after")
    def _decides(self) -> "Claim":
        if [case.rule is None for case in self.verdicts] != [False] * (len(self.verdicts) - 1) + [True]:
            raise ValueError("verdicts: all cases but the last must have a condition `if`, and the last none")
        if any(case.statement is None and self.statement is None for case in self.verdicts):
            raise ValueError("statement is required, for the claim or for each of its verdicts")
        return self

    @property
    def stated(self) -> str:
        """The claim, marked if it is a question."""
        return f"{self.claim} (A question.)" if self.asked else self.claim

    def judge(self, values: Mapping[str, object]) -> tuple[Verdict, str]:
        """Return the verdict on measured values, and the correct statement."""
        decided = next(case for case in self.verdicts if case.rule is None or evaluate(case.rule, values))
        statement = decided.statement or self.statement
        assert statement is not None
        return decided.verdict, _text(statement, values)


def _text(statement: Statement, values: Mapping[str, object]) -> str:
    """Format the parts of a statement whose rules are true."""
    parts = [statement] if isinstance(statement, str) else statement
    texts = [
        part if isinstance(part, str) else part.text
        for part in parts
        if isinstance(part, str) or evaluate(part.rule, values)
    ]
    return " ".join(texts).format_map(values)
