"""Jinja for chat templates: set up as transformers does, and locked up more tightly.

In: a template's source. Out: a compiled template, and text. As in transformers: an immutable
sandbox, `trim_blocks` and `lstrip_blocks`, `break` and `continue`, `tojson` without HTML
escapes, `raise_exception`, `strftime_now`, the `generation` tag (which only marks text), and no
private names on a namespace. Beyond it: time and memory are bounded (`template_budget.py`), and
`lipsum` is left out.

All that a template does passes one of these doors, where the budget is asked: calls (`call`),
operators (`call_binop`), filters and tests (wrapped below), and, by a change to the parsed
template (`_Doors`), the steps of a loop, `~`, comparisons, slices and literals; output goes
through `finalize` and `concat`. What isn't covered: a template may still spend the whole
second, and one operation on the caller's own input takes as long as the input is large.
"""

# ruff: noqa: N802  (Jinja finds its visitors by the names of its node classes)
from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.environment import Template
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from glassgear.text.template_budget import CHECKS, TooExpensive, begin, current_budget

__all__ = ["Refusal", "compile_template", "string_literals"]

LONGEST_SOURCE = 100_000  # characters; the longest published templates have about 30,000


class Refusal(TemplateError):
    """What a template says through `raise_exception`."""


def compile_template(source: str) -> Template:
    """Compile a template.

    Raises:
        jinja2.TemplateError, and whatever else a hostile source provokes: `chat.py` catches all.
    """
    if len(source) > LONGEST_SOURCE:
        raise TooExpensive(
            f"the template is {len(source):,} characters long; {LONGEST_SOURCE:,} are the most"
        )
    begin(len(source))
    return _environment().from_string(source)


def string_literals(source: str) -> frozenset[str]:
    """Every string of two characters or more that a template compares with, splits at, or writes."""
    found = _environment().parse(source).find_all(nodes.Const)
    return frozenset(node.value for node in found if isinstance(node.value, str) and len(node.value) > 1)


@lru_cache(maxsize=1)
def _environment() -> _Environment:
    made = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.finalize = _finalize
    made.filters["tojson"] = _tojson
    for table in (made.filters, made.tests):
        for name, function in list(table.items()):
            table[name] = _guarded(name, function)
    made.filters |= {"_steps": _steps, "_concat": _concat, "_look": _look, "_made": _made}
    made.globals = {
        "range": made.globals["range"],
        "cycler": made.globals["cycler"],
        "joiner": made.globals["joiner"],
        "dict": _Dict(),
        "namespace": _Namespace,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    return made


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = Parser(self, source, name, filename).parse()
        return _Doors().visit(tree)  # type: ignore[no-any-return]

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        budget.tick()
        for value in (*args, *(kwargs[name] for name in kwargs if name[0] != "_")):  # those are Jinja's
            budget.measure(value)
        inner = getattr(called, "__wrapped__", called)  # `format` comes wrapped
        owner = getattr(inner, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            budget.measure(owner)
            check = CHECKS.get(getattr(inner, "__name__", ""))
            if check:
                check(budget, owner, *args, **kwargs)
        return budget.charge(super().call(context, called, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current_budget()
        budget.tick()
        sizes = budget.measure(left), budget.measure(right)
        if operator == "%" and isinstance(left, str):
            CHECKS["format"](budget, left, right)
        elif isinstance(left, int) and isinstance(right, int):
            bits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * right}
            budget.bits(bits.get(operator, 0))
        elif operator == "*" and (isinstance(left, int) or isinstance(right, int)):
            budget.require(left * sizes[1] if isinstance(left, int) else right * sizes[0])
        return budget.charge(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up `obj[argument]`."""
        current_budget().measure(argument)
        return super().getitem(obj, argument)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of the template, or of a block of it."""
        budget = current_budget()
        kept, total = [], 0
        for piece in pieces:
            total += len(piece)
            budget.require(total)
            kept.append(piece)
        budget.tick()
        return budget.charge("".join(kept))  # type: ignore[no-any-return]


class _Code(CodeGenerator):
    """Looks at the clock while it writes a template's code."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        current_budget().tick()
        return super().visit(node, *args, **kwargs)


_Environment.code_generator_class = _Code


class _Doors(NodeTransformer):
    """Puts a filter of ours wherever a template would act without passing a door."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _through("_steps", node.iter)  # type: ignore[arg-type]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _through("_concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _through("_look", node.expr)
        for operand in node.ops:
            operand.expr = _through("_look", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _through("_made", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _through("_made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        for pair in node.items:
            pair.key = _through("_look", pair.key)
        return _through("_made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _through("_made", node) if node.ctx == "load" else node


def _through(name: str, node: nodes.Expr) -> nodes.Expr:
    if isinstance(node, nodes.Const):
        return node
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _steps(items: Iterable[Any]) -> Iterator[Any]:
    budget = current_budget()
    for item in items:
        budget.tick()
        yield item


def _concat(values: list[Any]) -> str:
    budget = current_budget()
    budget.require(budget.measure(values))
    return budget.charge("".join(map(str, values)))  # type: ignore[no-any-return]


def _look(value: Any) -> Any:
    current_budget().measure(value)
    return value


def _made(value: Any) -> Any:
    return current_budget().charge(value)


def _finalize(value: Any) -> Any:
    if isinstance(value, str):
        return value
    budget = current_budget()
    budget.require(budget.measure(value))
    return budget.charge(str(value))


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test behind a door."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0
    check = CHECKS.get(name)

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        budget.tick()
        if name == "join":
            first, value, *rest = args
            args = (first, list(value), *rest)
            separator = rest[0] if rest else kwargs.get("d", "")
            CHECKS["join"](budget, str(separator), args[1])
        for value in (*args[skipped:], *kwargs.values()):
            budget.measure(value)
        if check and name != "join":
            check(budget, *args[skipped:], **kwargs)
        return budget.charge(function(*args, **kwargs))

    return guarded


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(line)

    def _unchanged(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict(...)` without the class behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """As `dict.fromkeys`."""
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """A namespace that stores no private names."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        found = dict(*rest, **kwargs)
        for name in found:
            _check_name(name)
        Namespace.__init__(self, found)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace can't hold the private name {name!r}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise Refusal(str(message))


def _strftime_now(format: str) -> str:
    if re.search(r"%[^a-zA-Z%]*\d{3,}", format):
        raise TooExpensive("strftime_now is asked for a width that is too big")
    return datetime.now().strftime(format)
