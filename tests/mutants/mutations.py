"""Small changes of a source file, each of which its tests should notice.

A mutation changes one place inside a function: functions that are loaded already get other code, so what is evaluated
at import (constants of a module, fields of a class, default arguments) is not mutated. What only informs people is not
mutated either: logging and a condition that decides nothing else, the text of an error, `assert`, `__repr__`,
`__str__`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_SUM: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
OTHER_END = {"min": "max", "max": "min"}
UNSEEN_FUNCTIONS = {"__repr__", "__str__"}
LOGGERS = {"log", "_log", "logger"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file."""

    path: Path
    line: int
    source: str
    """The text of that line, without the white space around it."""
    change: str
    """In words: `< becomes <=`. With a number if the line has several places for it: `< becomes <= (2)`."""
    function: str
    """The qualified name of the outermost function around it."""
    function_line: int
    place: int
    """Which of all mutations of the file it is."""


@dataclass(slots=True)
class _Site:
    node: ast.AST
    change: str
    apply: Callable[[], None]
    """Changes the tree that the site was found in."""


def mutations_of(path: Path) -> list[Mutation]:
    """All of a file, in the order of its text."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found: list[Mutation] = []
    seen: dict[tuple[int, str], int] = {}
    for place, (function, name, site) in enumerate(_sites(ast.parse(text))):
        line = site.node.lineno  # type: ignore[attr-defined]
        times = seen[line, site.change] = seen.get((line, site.change), 0) + 1
        change = site.change if times == 1 else f"{site.change} ({times})"
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        found.append(Mutation(path, line, lines[line - 1].strip(), change, name, first, place))
    return found


def mutated(mutation: Mutation) -> ast.Module:
    """The tree of the changed file."""
    tree = ast.parse(mutation.path.read_text(encoding="utf-8"))
    for place, (_, _, site) in enumerate(_sites(tree)):
        if place == mutation.place:
            site.apply()
            return ast.fix_missing_locations(tree)
    raise LookupError(f"{mutation.path} has no mutation {mutation.place}: it was changed meanwhile")


def _sites(tree: ast.Module) -> Iterator[tuple[Function, str, _Site]]:
    for function, name in _functions(tree, ""):
        last = set(_last_statements(function.body))
        for statement in function.body:
            for site in _sites_in(statement, function, "body"):
                if not (site.node in last and isinstance(site.node, ast.Return | ast.Continue)):
                    yield function, name, site


def _last_statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The `return`s without a value behind which nothing comes: without them the function ends just so. The same of
    `continue` at the end of a loop's body.
    """
    for statement in block:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.For | ast.While | ast.AsyncFor) and inner.body:
                yield from _ends(inner.body[-1], ast.Continue)
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _ends(inner.body[-1], ast.Return)
    if block:
        yield from _ends(block[-1], ast.Return)


def _ends(statement: ast.stmt, kind: type[ast.stmt]) -> Iterator[ast.stmt]:
    if isinstance(statement, kind):
        value = getattr(statement, "value", None)
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            yield statement
    elif isinstance(statement, ast.If | ast.With | ast.AsyncWith):
        yield from _ends(statement.body[-1], kind)
        if isinstance(statement, ast.If) and statement.orelse:
            yield from _ends(statement.orelse[-1], kind)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    """The outermost functions of a module and of its classes, each with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            if child.name not in UNSEEN_FUNCTIONS:
                yield child, prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _sites_in(node: ast.AST, parent: ast.AST, field: str) -> Iterator[_Site]:
    """Those of a node and of everything inside it. They may be applied at most one for each tree."""
    if isinstance(node, ast.Assert) or _only_informs(node):
        return
    if isinstance(node, ast.Raise):
        yield from _statement(node, parent, field)
        yield from _sites_of_error(node)
        return
    yield from _sites_at(node, parent, field)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites_in(child, node, name)


def _sites_of_error(node: ast.Raise) -> Iterator[_Site]:
    """Those that choose between errors."""
    for child in ast.walk(node):
        if isinstance(child, ast.IfExp):
            yield from (site for site in _sites_at(child, node, "") if site.node is child.test)


def _only_informs(node: ast.AST) -> bool:
    """A docstring, a call of a logger, or an `if` around nothing else."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_only_informs, node.body))
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    called = node.value.func if isinstance(node.value, ast.Call) else None
    while isinstance(called, ast.Attribute):
        if called.attr in LOGGERS:
            return True
        called = called.value
    return isinstance(called, ast.Name) and called.id in LOGGERS


def _sites_at(node: ast.AST, parent: ast.AST, field: str) -> Iterator[_Site]:
    if isinstance(node, ast.stmt):
        yield from _statement(node, parent, field)
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                other = OTHER_COMPARISON[type(operator)]()
                change = f"{_operator(operator)} becomes {_operator(other)}"
                yield _Site(node, change, _setting_item(node.ops, place, other))
        case ast.BoolOp():
            is_and = isinstance(node.op, ast.And)
            change = "and becomes or" if is_and else "or becomes and"
            yield _Site(node, change, _setting(node, "op", ast.Or() if is_and else ast.And()))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OTHER_SUM:
            change = "+ becomes -" if isinstance(node.op, ast.Add) else "- becomes +"
            yield _Site(node, change, _setting(node, "op", OTHER_SUM[type(node.op)]()))
        case ast.Constant(value=bool()):
            yield _Site(node, f"{node.value} becomes {not node.value}", _setting(node, "value", not node.value))
        case ast.Constant(value=int() as number):
            for other_number in (number + 1, number - 1):
                yield _Site(node, f"{number} becomes {other_number}", _setting(node, "value", other_number))
        case ast.If() | ast.IfExp():
            negated = ast.UnaryOp(ast.Not(), copy.copy(node.test))
            yield _Site(node.test, "the condition is negated", _setting(node, "test", negated))
        case ast.comprehension():
            for place, test in enumerate(node.ifs):
                negated = ast.UnaryOp(ast.Not(), copy.copy(test))
                yield _Site(test, "the condition is negated", _setting_item(node.ifs, place, negated))
        case ast.Call(func=ast.Name(id=name) as function) if name in OTHER_END:
            yield _Site(node, f"{name} becomes {OTHER_END[name]}", _setting(function, "id", OTHER_END[name]))


def _statement(node: ast.stmt, parent: ast.AST, field: str) -> Iterator[_Site]:
    """Its removal, where the code without it still makes sense."""
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Break() | ast.Continue() | ast.Return():
            removable = True
        case ast.Assign(targets=targets):
            removable = not all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
        case ast.AnnAssign(target=target):
            removable = not isinstance(target, ast.Name) and node.value is not None
        case _:
            removable = False
    block = getattr(parent, field, None)
    if removable and isinstance(block, list):
        place = next(place for place, each in enumerate(block) if each is node)
        yield _Site(node, "the statement is dropped", _setting_item(block, place, ast.copy_location(ast.Pass(), node)))


def _setting(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _setting_item(items: list[ast.AST], place: int, value: ast.AST) -> Callable[[], None]:  # type: ignore[type-arg]
    return lambda: items.__setitem__(place, value)


def _operator(operator: ast.cmpop) -> str:
    whole = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))
    return whole.removeprefix("a ").removesuffix(" b")
