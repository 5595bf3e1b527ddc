"""A name in backticks in a docstring exists; words of other programs are in double quotes."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cache
from types import FunctionType

from typing_extensions import get_protocol_members, is_protocol

from tests.rules.syntax_trees import FUNCTIONS, walked
from tests.rules.test_layers import MODULES, imported, tree
from tui.screens.base import BaseScreen

HOOK = re.compile(r"_|(action|on)_|(compose|paint|lay_out)$")
"""A method that is private, or that Textual or the base of our screens calls by its name."""


def names_of(node: ast.AST) -> Iterator[str]:
    """The names in a node: of a function, class, variable, parameter, attribute or import."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.arg | ast.keyword):
        yield node.arg or ""
    elif isinstance(node, ast.alias):
        yield from (node.asname or node.name).split(".")


def named_in(text: str) -> Iterator[str]:
    """The identifiers in backticks that can be nothing else."""
    for name in re.findall(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`", text):
        last = name.rpartition(".")[2]
        if "_" in last:
            yield last


def errors_in(text: str) -> Iterator[str]:
    """The errors below `Raises:`, and those of a sentence such as "Raises OSError: it is gone"."""
    _, _, lines = text.partition("Raises:")
    for names in re.findall(rf"^\s+({_ERRORS}): ", lines, re.M):
        yield from names.split(", ")
    for names in re.findall(rf"\bRaises ({_ERRORS})[:.]", text.replace("`", "")):
        yield from names.split(", ")


_ERROR = r"(?:\w+\.)*[A-Z]\w+"
_ERRORS = rf"{_ERROR}(?:, {_ERROR})*"


def docstrings() -> Iterator[tuple[str, int, str]]:
    """The module, line and text of each docstring."""
    for module in MODULES:
        for node in walked(tree(module)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield module, node.lineno, str(node.value.value)


@cache
def own_names(module: str) -> frozenset[str]:
    """The names that a module defines or imports."""
    names = set[str]()
    for node in walked(tree(module)):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.update((node.asname or node.name).split("."))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def is_in_scope(module: str, error: str) -> bool:
    """True if a reader of the module finds the error: in it, or in a module that it imports, where
    a called function raises it. Any other error is named with its module.
    """
    where, _, name = error.rpartition(".")
    if where in MODULES:
        return name in own_names(where)
    if where:
        return where in own_names(module) or importlib.util.find_spec(where) is not None
    modules = {module, *(each for each in imported(module) if each in MODULES)}
    return hasattr(builtins, name) or any(name in own_names(each) for each in modules)


def test_what_a_docstring_names_exists() -> None:
    """A renamed function or parameter is renamed in the docstrings too."""
    known = {*dir(builtins), *(part for name in MODULES for part in name.split("."))}
    for module in MODULES:
        for node in walked(tree(module)):
            known.update(names_of(node))
    named = [(m, n, name) for m, n, text in docstrings() for name in named_in(text)]
    assert not [each for each in named if each[2] not in known]


def test_the_errors_of_a_docstring_are_in_scope() -> None:
    """Each error below `Raises:` is in the module or its imports, or has the name of its module."""
    named = [(m, n, name) for m, n, text in docstrings() for name in errors_in(text)]
    assert not [each for each in named if not is_in_scope(each[0], each[2])]


def test_an_error_out_of_scope_is_found() -> None:
    """An error of a module that is not imported is found, and one that its module does not have."""
    assert is_in_scope("engine.verbs", "ValueError")
    assert is_in_scope("engine.verbs", "engine.store.Unavailable")
    assert not is_in_scope("engine.verbs", "Unavailable")
    assert not is_in_scope("engine.verbs", "engine.store.NoSuchError")


def classes_of_the_console() -> list[type]:
    """The public classes of `tui`."""
    names = [name for name in MODULES if name.startswith("tui.") and "__main__" not in name]
    return [
        each
        for name in names
        for each in vars(importlib.import_module(name)).values()
        if isinstance(each, type) and each.__module__ == name and not each.__name__.startswith("_")
    ]


def undocumented(owner: type, protocols: Iterable[type]) -> Iterator[str]:
    """The public methods of a class that neither they nor a base describe, nor a protocol that the
    class has all methods of. A class of Textual cannot name its protocols: the metaclasses differ.
    """
    fulfilled = [
        each
        for each in protocols
        if all(hasattr(owner, n) for n in get_protocol_members(each) if hasattr(each, n))
    ]
    bases = [base for each in (owner, *fulfilled) for base in each.__mro__]
    for name, method in list(vars(owner).items()):
        is_method = isinstance(method, FunctionType | property | classmethod | staticmethod)
        texts = (vars(base)[name].__doc__ for base in bases if name in vars(base))
        is_described = any(texts) or any(name in getattr(b, "__annotations__", {}) for b in bases)
        if is_method and not HOOK.match(name) and not is_described:
            yield f"{owner.__module__}.{owner.__name__}.{name}"


def test_a_public_method_of_the_console_has_a_docstring() -> None:
    """Only a hook of Textual, and what a base class or a protocol describes, may have none."""
    classes = classes_of_the_console()
    protocols = [each for each in classes if is_protocol(each)]
    assert not [name for each in classes for name in undocumented(each, protocols)]


def test_a_method_without_a_docstring_is_found() -> None:
    """A hook and an override need none; any other public method does."""

    class Shown(BaseScreen):
        def on_mount(self) -> None: ...

        def say(self, text: str, style: str = "warn") -> None: ...

        def hide(self) -> None: ...

    assert [name.rpartition(".")[2] for name in undocumented(Shown, ())] == ["hide"]
