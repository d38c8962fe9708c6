"""Rules that decide verdicts: conditions over measured values, written in the lab's YAML files.

A rule is a Python expression such as ``abs(power - 1) < 0.1 and last < first / 10``. It may contain names of
values, numbers, texts, comparisons, arithmetic, ``and``, ``or``, ``not``, ``a if b else c``, subscripts, and
calls of the functions in `FUNCTIONS`. Anything else is refused when the rule is read.
"""

import ast
from collections.abc import Callable, Mapping

FUNCTIONS: dict[str, Callable[..., object]] = {
    function.__name__: function for function in (abs, all, any, len, max, min, round, sum)
}
ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp),
    *(ast.Call, ast.Name, ast.Load, ast.Constant, ast.Subscript),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.Not),
    *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
)


def check(rule: str) -> str:
    """Return the rule unchanged if it contains only what rules may contain.

    Raises:
        ValueError: it is not an expression, or contains something else.
    """
    try:
        tree = ast.parse(rule, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"expected an expression, got {rule!r} ({error.msg})") from None
    for node in ast.walk(tree):
        allowed = isinstance(node, ALLOWED)
        if isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
        if isinstance(node, ast.Constant):
            allowed = isinstance(node.value, int | float | str)
        if not allowed:
            raise ValueError(f"a rule must not contain {ast.unparse(node) or type(node).__name__!r}: {rule}")
    return rule


def evaluate(rule: str, values: Mapping[str, object]) -> object:
    """Evaluate a rule.

    Raises:
        ValueError: the rule is refused by `check`, or names a value that does not exist.
    """
    try:
        return eval(check(rule), {"__builtins__": FUNCTIONS}, dict(values))
    except NameError as error:
        raise ValueError(f"unknown value {error.name!r}; known: {', '.join(values)}") from None
