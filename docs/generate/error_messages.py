"""Collect the messages of all errors that heedful raises, from its source code.

A message is a template: the text of the `raise` statement with a word in braces for each value. Helpers that
return an error (``raise missing_run(path)``) are followed, constants and variables with one value are filled
in, and text that depends on a condition is in brackets. Errors that only pass on the text of another have no
message of their own. `error_pages` writes the messages as pages.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import heedful

PACKAGE = Path(heedful.__file__).parent

# Functions whose result stands for their first argument in a message.
_SHOWS = {
    "str", "repr", "sorted", "min", "max", "sum", "list", "set", "tuple", "map", "path", "dumps", "show",
    "quote", "dotted", "describe", "short", "form_of", "format_value", "format_bytes",
    "gibibytes", "by", "first_labels", "as_options",
}  # fmt: skip
_NAMES = {
    "error": "reason",
    "strerror": "reason",
    "msg": "reason",
    "len": "n",
    "__name__": "type",
    "type_name": "type",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Message:
    """A message that heedful's errors can have.

    Args:
        text: the template.
        error: name of the class of the error.
        module: file of the statement, below the package.
    """

    text: str
    error: str
    module: str

    @property
    def anchor(self) -> str:
        """Return the name by which pages link to the message; it depends on the template alone."""
        words = re.sub(r"[^a-z0-9]+", "-", self.text.lower()).strip("-")
        short = words if len(words) <= 60 else words[:60].rpartition("-")[0]
        return f"{short}-{hashlib.sha256(self.text.encode()).hexdigest()[:4]}"


@dataclass
class Module:
    """The parts of a module that messages refer to.

    Args:
        name: its file, below the package.
        tree: its syntax tree.
        constants: texts that it defines, and None for each other value.
        imports: file and name of what it imports from modules of the package.
        functions: its functions and methods, by name.
    """

    name: str
    tree: ast.Module
    constants: dict[str, str | None] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[str, list[Function]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = _constant(node.value)
        for each in ast.walk(self.tree):
            if isinstance(each, Function):
                self.functions.setdefault(each.name, []).append(each)
            elif isinstance(each, ast.ImportFrom):
                file = f"{str(each.module).removeprefix('heedful.').replace('.', '/')}.py"
                self.imports |= {alias.asname or alias.name: (file, alias.name) for alias in each.names}


@dataclass(frozen=True)
class Scope:
    """What names mean at a statement: its module, its function, and the arguments of a followed helper."""

    package: "Package"
    module: Module
    function: Function | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)

    def value_of(self, name: str) -> ast.expr | str | None:
        """Return the text of a name, or the only expression that is assigned to it; else None."""
        if name in self.arguments:
            return self.arguments[name]
        assigned = [
            node.value
            for node in ast.walk(self.function or ast.Module([], []))
            if isinstance(node, ast.Assign)
            and _is_name(node.targets[0], name)
            and name not in names_in(node.value)  # a parameter that it replaces
        ]
        if len(assigned) == 1 and isinstance(assigned[0], ast.Constant | ast.JoinedStr | ast.IfExp):
            return assigned[0]
        if name in self.module.constants:
            return self.module.constants[name]
        file, original = self.module.imports.get(name, ("", ""))
        return next((m.constants.get(original) for m in self.package.modules if m.name == file), None)


def names_in(node: ast.expr) -> set[str]:
    """Return the names that an expression refers to."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class Package:
    """All modules of the package."""

    def __init__(self, root: Path = PACKAGE) -> None:
        paths = sorted(root.rglob("*.py"))
        self.modules = [
            Module(path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
            for path in paths
        ]

    def messages(self) -> list[Message]:
        """Return every message once for each module that raises it, in the order of the source."""
        found: dict[Message, None] = {}
        for module in self.modules:
            for raised, function in raises(module.tree):
                found |= dict.fromkeys(self.messages_of(raised, Scope(self, module, function)))
        return list(found)

    def messages_of(self, raised: ast.expr, scope: Scope) -> Iterator[Message]:
        """Yield the messages of an error that is raised."""
        if not isinstance(raised, ast.Call):
            return
        name = _last_name(raised.func)
        if name.endswith(("Error", "Errors")) and not self.functions(name, scope.module):
            for text in _whole_text(raised.args[0], scope) if raised.args else ():
                if re.search(r"[a-z]{3}", re.sub(r"\{[^}]*\}", "", text)):
                    yield Message(" ".join(text.split()), name, scope.module.name)
        elif name == "type" or not name:  # the class of a caught error, with words before its text
            yield from self.messages_of(ast.Call(ast.Name("HeedfulError"), raised.args, []), scope)
        else:
            for module, function in self.functions(name, scope.module):
                yield from self._of_helper(module, function, raised, scope)

    def functions(self, name: str, module: Module) -> list[tuple[Module, Function]]:
        """Return the functions of a name, with their modules: those of one module, or else of all others."""
        own = [(module, function) for function in module.functions.get(name, ())]
        return own or [(each, f) for each in self.modules for f in each.functions.get(name, ())]

    def _of_helper(
        self, module: Module, function: Function, call: ast.Call, scope: Scope
    ) -> Iterator[Message]:
        """Yield the messages of the errors that a helper returns for the arguments of a call."""
        inner = _inside(module, function, call, scope)
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                for message in self.messages_of(node.value, inner):
                    yield Message(message.text, message.error, scope.module.name)


def raises(tree: ast.AST, function: Function | None = None) -> Iterator[tuple[ast.expr, Function | None]]:
    """Yield what is raised below a node, with the function around each statement.

    A block ``with memory_errors_as(message)`` raises an error with this message.
    """
    for node in ast.iter_child_nodes(tree):
        inner = node if isinstance(node, Function) else function
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.exc, inner
        elif isinstance(node, ast.Call) and _last_name(node.func) == "memory_errors_as":
            yield ast.copy_location(ast.Call(ast.Name("RequestError"), node.args, []), node), inner
        yield from raises(node, inner)


def _inside(module: Module, function: Function, call: ast.Call, scope: Scope) -> Scope:
    """Return the scope of a function that is called with arguments of another scope."""
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    arguments = {name: _text(value, scope) for name, value in zip(names, call.args, strict=False)}
    return Scope(scope.package, module, function, arguments)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="type")):
            return "type"
        case _:
            return ""


def _whole_text(node: ast.expr, scope: Scope) -> list[str]:
    """Return the texts of a whole message: several if it is chosen among several."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return [*_whole_text(body, scope), *_whole_text(orelse, scope)]
        case ast.Name(id=name):
            values = _assigned(name, scope) if name not in scope.arguments else []
            return [text for value in values for text in _whole_text(value, scope)] or [_text(node, scope)]
        case ast.Call(func=func):
            found = [
                text
                for module, function in scope.package.functions(_last_name(func), scope.module)
                for returned in ast.walk(function)
                if isinstance(returned, ast.Return) and isinstance(returned.value, ast.JoinedStr | ast.IfExp)
                for text in _whole_text(returned.value, _inside(module, function, node, scope))
            ]
            return found or [_text(node, scope)]
        case _:
            return [_text(node, scope)]


def _assigned(name: str, scope: Scope) -> list[ast.expr]:
    """Return the texts that a function assigns to a name."""
    return [
        node.value
        for node in ast.walk(scope.function or ast.Module([], []))
        if isinstance(node, ast.Assign | ast.NamedExpr)
        and _is_name(node.targets[0] if isinstance(node, ast.Assign) else node.target, name)
        and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.IfExp)
    ]


def _text(node: ast.expr, scope: Scope) -> str:
    """Return the text of an expression, with a word in braces for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value, scope) for value in values)
        case ast.FormattedValue(value=value):
            return _text(value, scope)
        case ast.Name(id=name):
            return _text_of_name(name, scope)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _has_text(left) or _has_text(right):
            return _text(left, scope) + _text(right, scope)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mult()):
            return f"[{text}]"
        case ast.BinOp(left=left):
            return _text(left, scope)
        case ast.IfExp(body=body, orelse=orelse):
            parts = [part for part in (_text(body, scope), _text(orelse, scope)) if part]
            return parts[0] if len({*parts}) == 1 and len(parts) == 2 else f"[{' / '.join(parts)}]"
        case ast.BoolOp(values=values):
            parts = [part for part in (_text(value, scope) for value in values) if part]
            return parts[0] if len({*parts}) == 1 else f"[{' / '.join(parts)}]"
        case ast.Call():
            return _text_of_call(node, scope)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return " ".join(_text(element, scope) for element in elements)
        case (
            ast.Starred(value=value)
            | ast.Subscript(value=value, slice=ast.Constant(value=int()) | ast.Slice())
        ):
            return _text(value, scope)
        case _:
            return f"{{{_placeholder(node)}}}"


def _constant(node: ast.AST) -> str | None:
    """Return the text that a node is, if it is one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _has_text(node: ast.expr) -> bool:
    return any(_constant(each) is not None for each in ast.walk(node))


def _text_of_name(name: str, scope: Scope) -> str:
    value = scope.value_of(name)
    if isinstance(value, str):
        return value
    return f"{{{_placeholder(ast.Name(name))}}}" if value is None else _text(value, scope)


def _text_of_call(node: ast.Call, scope: Scope) -> str:
    name = _last_name(node.func).strip("_").lower()
    if name == "nearest":  # "(did you mean …?)" or nothing
        return ""
    is_join = name == "join" and bool(node.args)
    if is_join and isinstance(node.func, ast.Attribute) and isinstance(node.args[0], ast.List | ast.Tuple):
        separator = _constant(node.func.value) or " "
        return separator.join(_text(element, scope) for element in node.args[0].elts)
    if is_join or (name in _SHOWS and node.args):
        return _text(node.args[0], scope)
    return f"{{{_placeholder(node)}}}"


def _placeholder(node: ast.AST) -> str:
    """Return the word for a value."""
    match node:
        case ast.Name(id=name):
            return _NAMES.get(name, name.strip("_").lower() or "value")
        case ast.Attribute(value=ast.Name(id=base), attr="name") if base != "self":
            return base.strip("_")
        case ast.Attribute(attr=name):
            return _NAMES.get(name, name.strip("_").lower())
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(target=value):
            return _placeholder(value)
        case ast.BinOp(left=left):
            return _placeholder(left)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return key
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _SHOWS:
            return _placeholder(first)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _SHOWS:
            return _placeholder(value)
        case ast.Call(func=func):
            name = _last_name(func).strip("_")
            return _NAMES.get(name, name or "value")
        case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
            return _placeholder(element)
        case ast.JoinedStr(values=values):
            shown = [value.value for value in values if isinstance(value, ast.FormattedValue)]
            return _placeholder(shown[0]) if shown else "value"
        case _:
            return "value"
