"""The syntax tree of each module, parsed and walked once for all rules."""

import ast
from functools import cache
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module."""
    return ast.parse(path.read_text())


@cache
def walked(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as `ast.walk` gives them."""
    return tuple(ast.walk(tree))
