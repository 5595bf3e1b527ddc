"""What a reader meets: the lines of each package, and the methods, bases and shared attributes of a
class.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from tests.rules.syntax_trees import FUNCTIONS, walked
from tests.rules.test_layers import MODULES, package_of, tree

MAX_METHODS, MAX_BASES = 60, 4


class Class(NamedTuple):
    """A class of the project, as its text defines it."""

    bases: list[str]
    methods: frozenset[str]
    stores: frozenset[str]
    """Private attributes that it sets."""
    uses: frozenset[str]


def _name_of(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _read(node: ast.ClassDef) -> Class:
    methods = frozenset(part.name for part in node.body if isinstance(part, FUNCTIONS))
    private = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and (part.value.id, part.attr[:1]) == ("self", "_")
        and part.attr[:2] != "__"
    ]
    targets = [
        target
        for part in node.body
        if isinstance(part, ast.Assign | ast.AnnAssign)
        for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
    ]
    stored = {part.attr for part in private if isinstance(part.ctx, ast.Store)}
    stored |= {each.id for each in targets if isinstance(each, ast.Name) and each.id[:1] == "_"}
    return Class(
        [_name_of(base) for base in node.bases],
        methods,
        frozenset(stored) - methods,
        frozenset(part.attr for part in private) - methods,
    )


@cache
def classes() -> Mapping[str, Class]:
    """The classes of the project by name."""
    return {
        node.name: _read(node)
        for name in MODULES
        for node in walked(tree(name))
        if isinstance(node, ast.ClassDef)
    }


@cache
def chain(name: str) -> tuple[str, ...]:
    """A class and its bases in the project."""
    above = [each for base in classes()[name].bases if base in classes() for each in chain(base)]
    return tuple(dict.fromkeys((name, *above)))


def _lowest() -> list[str]:
    parents = {base for each in classes().values() for base in each.bases}
    return [name for name in classes() if name not in parents]


STEP = 50

LINES = {
    "engine.places": 1500,
    "engine.programs": 2700,
    "engine": 1950,
    "engine.config": 2850,
    "engine.delivery": 1200,
    "engine.demo": 500,
    "engine.destinations": 1300,
    "engine.doctor": 250,
    "engine.formats": 400,
    "engine.formats.base": 2400,
    "engine.formats.bullmq": 9250,
    "engine.formats.exim": 2550,
    "engine.formats.kannader": 4450,
    "engine.formats.nftban": 6100,
    "engine.formats.postfix": 3150,
    "engine.formats.zgb": 5900,
    "engine.formats.zmailer": 14850,
    "engine.index": 3400,
    "engine.live": 2200,
    "engine.locks": 2000,
    "engine.logs": 3300,
    "engine.mail": 950,
    "engine.mail.message": 850,
    "engine.mail.send": 2900,
    "engine.mail.transports": 750,
    "engine.monitor": 4800,
    "engine.operations": 3550,
    "engine.replay": 1750,
    "engine.system": 3500,
    "engine.text": 1600,
    "engine.values": 100,
    "engine.work": 2100,
    "themes": 50,
    "tui": 1050,
    "tui.cli": 2550,
    "tui.cli.formats": 50,
    "tui.cli.formats.bullmq": 750,
    "tui.cli.formats.kannader": 400,
    "tui.cli.formats.nftban": 3800,
    "tui.cli.formats.zgb": 500,
    "tui.cli.formats.zmailer": 700,
    "tui.cli.mta": 500,
    "tui.cli.plans": 2000,
    "tui.cli.print": 1400,
    "tui.cli.queue": 950,
    "tui.cli.setup": 1100,
    "tui.confirm": 800,
    "tui.groups": 1300,
    "tui.locks": 1850,
    "tui.log": 1850,
    "tui.operations": 4500,
    "tui.overview": 4250,
    "tui.packaging": 800,
    "tui.plan": 2750,
    "tui.queue": 3150,
    "tui.screens": 2500,
    "tui.session": 2400,
    "tui.task": 2000,
    "tui.terminal": 2000,
    "tui.text": 2550,
    "tui.transports": 2350,
    "tui.widgets": 1800,
}
"""Lines of each package, rounded up to a whole `STEP`: a number may only get smaller. A new feature
raises its row in the commit that brings it, and the commit says why it needs the lines.
"""


def package_lines() -> Mapping[str, int]:
    """Lines of the modules of each package; a format is one package in `engine` and in `tui.cli`,
    and so is a package that has no row of its own below one that has.
    """
    numbers: Counter[str] = Counter()
    for name, path in MODULES.items():
        package = package_of(name)
        while package.count(".") > (3 if package.startswith("tui.cli.formats.") else 2):
            package = package.rpartition(".")[0]
        numbers[package] += len(path.read_text().splitlines())
    return numbers


def test_a_package_has_no_more_lines_than_its_row() -> None:
    """The row is lowered with the code."""
    rows = {name: -(-n // STEP) * STEP for name, n in package_lines().items()}
    wrong = {name: rows.get(name) for name in {*rows, *LINES} if rows.get(name) != LINES.get(name)}
    assert not wrong, "these rows are due: lower them, or raise them and say why in the commit"


def test_a_class_has_at_most_60_methods_and_4_bases() -> None:
    """Methods with those of its bases: a larger one does several things, it has parts."""
    numbers = {n: len(set().union(*(classes()[c].methods for c in chain(n)))) for n in _lowest()}
    assert not {name: n for name, n in numbers.items() if n > MAX_METHODS}
    assert not [name for name in _lowest() if len(chain(name)) - 1 > MAX_BASES]


def test_private_attributes_stay_in_their_class() -> None:
    """What one class sets, no base or subclass uses: classes that share are one object cut up."""
    numbers = {}
    for name in _lowest():
        each = [(one, classes()[one]) for one in chain(name)]
        numbers[name] = len(
            {
                attribute
                for one, owner in each
                for attribute in owner.stores
                if any(attribute in user.uses for other, user in each if other != one)
            }
        )
    assert not {name: n for name, n in numbers.items() if n}
