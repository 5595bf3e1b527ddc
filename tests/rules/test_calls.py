"""Calls: few positional arguments, no literal that is only unpacked, and one way to begin work."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.rules.syntax_trees import FUNCTIONS, parsed, walked
from tests.tables import each

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for top in ("engine", "tui", "tests") for p in (ROOT / top).rglob("*.py"))
MAX_POSITIONAL = 5
Finder = Callable[[ast.Module, frozenset[str]], Iterator[int]]

ANY_NUMBER = {
    "act": "a fixture: the words of a command line",
    "create_subprocess_exec": "asyncio: the words of a command line",
    "execute_command": "redis: the words of a command",
    "on_redis": "a fixture: the words of a command line",
    "pack": "struct: one value for each field of the format",
    "program": "a running Node program: the arguments of one of its functions",
    "spooldeck": "a fixture: the words of a command line",
    "tuples": "hypothesis: one strategy for each field",
    "zip": "one iterable for each column",
}
"""Callables from elsewhere that take any number of arguments by their nature, and why."""

FORWARDING = {"builds", "partial", "submit", "to_thread"}
"""Callables that pass all but the first argument on to it."""


def name_of(function: ast.expr) -> str:
    """The last name of what is called."""
    if isinstance(function, ast.Subscript):
        return name_of(function.value)
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def wide_functions(tree: ast.Module) -> Iterator[str]:
    """The functions and classes of a module that take any number of arguments."""
    for node in walked(tree):
        if isinstance(node, FUNCTIONS) and node.args.vararg:
            yield node.name
        elif isinstance(node, ast.ClassDef):
            inits = [part for part in node.body if getattr(part, "name", "") == "__init__"]
            if any(isinstance(part, FUNCTIONS) and part.args.vararg for part in inits):
                yield node.name


@cache
def trees() -> dict[str, ast.Module]:
    """Each module of the product and the tests, by its path."""
    return {str(path.relative_to(ROOT)): parsed(path) for path in MODULES}


@cache
def wide_names() -> frozenset[str]:
    """Names of the callables that take any number of arguments."""
    return frozenset([*ANY_NUMBER, *(n for tree in trees().values() for n in wide_functions(tree))])


def called(node: ast.Call) -> tuple[str, list[ast.expr]]:
    """The name of what runs in the end, and its positional arguments."""
    name, arguments = name_of(node.func), node.args
    if name in FORWARDING and arguments:
        return name_of(arguments[0]), arguments[1:]
    return name, arguments


def long_calls(tree: ast.Module, wide: frozenset[str]) -> Iterator[int]:
    """The lines of calls with too many positional arguments; one unpacked counts as one."""
    for node in walked(tree):
        if isinstance(node, ast.Call):
            name, arguments = called(node)
            if len(arguments) > MAX_POSITIONAL and name not in wide:
                yield node.lineno


def unpacked_literals(tree: ast.Module, wide: frozenset[str]) -> Iterator[int]:
    """The lines of literals that are only unpacked: in place, or by a name that is used once."""
    for node in walked(tree):
        if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Tuple | ast.List):
                yield node.lineno
        elif isinstance(node, FUNCTIONS):
            yield from _unpacked_names(node, wide)


def _unpacked_names(function: ast.AST, wide: frozenset[str]) -> Iterator[int]:
    inside = [*ast.walk(function)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    uses = Counter(node.id for node in names)
    literals = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List)
        for target in node.targets
        if isinstance(target, ast.Name) and uses[target.id] == 2
    }
    for node in inside:
        if not isinstance(node, ast.Call):
            continue
        name, arguments = called(node)
        for part in arguments:
            unpacked = part.value if isinstance(part, ast.Starred) else None
            if isinstance(unpacked, ast.Name) and unpacked.id in literals and name not in wide:
                yield node.lineno


def test_a_call_has_at_most_five_positional_arguments_and_unpacks_no_literal() -> None:
    """More arguments are named; a literal that is only unpacked is written in place."""
    wide = wide_names()
    for find in (long_calls, unpacked_literals):
        wrong = [f"{path}:{n}" for path, tree in trees().items() for n in find(tree, wide)]
        assert not wrong, "\n".join(wrong)


@each(
    ("find", "source", "lines"),
    [
        (long_calls, "f(1, 2, 3, 4, 5, 6)", [1]),
        (long_calls, "f(1, 2, 3, 4, 5, six=6)", []),
        (long_calls, "partial(f, 1, 2, 3, 4, 5)", []),
        (long_calls, "partial(f, 1, 2, 3, 4, 5, 6)", [1]),
        (long_calls, "def f(*words): ...\nf(1, 2, 3, 4, 5, 6)", []),
        (long_calls, "struct.pack('5I', 1, 2, 3, 4, 5)", []),
        (unpacked_literals, "f(1, *(2, 3))", [1]),
        (unpacked_literals, "x = [1, *[2, 3]]", [1]),
        (unpacked_literals, "def g():\n    x = 1, 2\n    f(*x)", [3]),
        (unpacked_literals, "def g():\n    x = 1, 2\n    f(*x)\n    h(x)", []),
        (unpacked_literals, "def f(*words):\n    x = ['a', 'b']\n    f(*x)", []),
        (unpacked_literals, "f(*words, *(line for line in lines))", []),
    ],
)
def test_a_wrong_call_is_found(find: Finder, source: str, lines: list[int]) -> None:
    """A sixth positional argument, unless a function takes any number; a literal where it is
    unpacked, also by a name that has no other use."""
    tree = ast.parse(source)
    assert [*find(tree, frozenset([*ANY_NUMBER, *wide_functions(tree)]))] == lines


def test_a_screen_begins_its_work_in_one_way() -> None:
    """`run_in_background` alone calls the library's `run_worker`, which would also take a coroutine
    that is never awaited when it is cancelled before it starts.
    """
    calls = [
        path
        for path, tree in trees().items()
        if path.startswith("tui/")
        for node in walked(tree)
        if isinstance(node, ast.Attribute) and node.attr == "run_worker"
    ]
    assert calls == ["tui/widgets/background.py"]
