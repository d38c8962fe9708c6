"""Rules that decide verdicts: conditions over measured values, written in the lab's YAML files.

A rule is a Python expression such as ``abs(power - 1) < 0.1 and last < first / 10``. It may contain names of
values, numbers, texts, comparisons, arithmetic, ``and``, ``or``, ``not``, ``a if b else c``, subscripts, and
calls of the functions in `FUNCTIONS`. Anything else is refused when the rule is read.
"""

import ast
import operator
from collections.abc import Callable, Mapping

FUNCTIONS: dict[str, Callable[..., object]] = {
    function.__name__: function for function in (abs, all, any, len, max, min, round, sum)
}
OPERATORS: dict[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Subscript: operator.getitem,
}
STRUCTURE = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp),
    *(ast.Call, ast.Name, ast.Load, ast.Constant),
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
        allowed = isinstance(node, STRUCTURE) or type(node) in OPERATORS
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
    return _value(ast.parse(check(rule), mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, object]) -> object:
    """Evaluate an expression that `check` has accepted."""

    def evaluate_part(part: ast.expr) -> object:
        return _value(part, values)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id not in values:
                raise ValueError(f"unknown value {node.id!r}; known: {', '.join(values)}")
            return values[node.id]
        case ast.UnaryOp():
            return OPERATORS[type(node.op)](evaluate_part(node.operand))
        case ast.BinOp():
            return OPERATORS[type(node.op)](evaluate_part(node.left), evaluate_part(node.right))
        case ast.BoolOp():
            decide = all if isinstance(node.op, ast.And) else any
            return decide(evaluate_part(operand) for operand in node.values)
        case ast.Compare():
            sides = [node.left, *node.comparators]
            return all(
                OPERATORS[type(operator_node)](evaluate_part(left), evaluate_part(right))
                for left, operator_node, right in zip(sides, node.ops, sides[1:], strict=False)
            )
        case ast.IfExp():
            return evaluate_part(node.body if evaluate_part(node.test) else node.orelse)
        case ast.Subscript():
            return OPERATORS[ast.Subscript](evaluate_part(node.value), evaluate_part(node.slice))
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*map(evaluate_part, node.args))
    raise ValueError(f"a rule must not contain {ast.unparse(node)!r}")
