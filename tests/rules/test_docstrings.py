"""A name in backticks in a docstring exists; words of other programs are in double quotes."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from tests.rules.test_layers import FUNCTIONS, MODULES, tree


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
    """The identifiers in backticks that can be nothing else, and the errors below `Raises:`."""
    for name in re.findall(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`", text):
        last = name.rpartition(".")[2]
        if "_" in last:
            yield last
    for names in re.findall(r"^\s+([A-Z]\w+(?:, [A-Z]\w+)*): ", text.partition("Raises:")[2], re.M):
        yield from names.split(", ")


def test_what_a_docstring_names_exists() -> None:
    """A renamed function, parameter or error is renamed in the docstrings too."""
    known = {
        *dir(builtins),
        *(part for name in MODULES for part in name.split(".")),
    }
    texts = list[tuple[str, str]]()
    for module in MODULES:
        for node in ast.walk(tree(module)):
            known.update(names_of(node))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                texts.append((f"{module}:{node.lineno}", str(node.value.value)))

    wrong = [(where, name) for where, text in texts for name in named_in(text) if name not in known]

    assert not wrong
