"""Named tuples whose classes are made fast: they behave as those of the standard library."""

from __future__ import annotations

import pickle
import re
import typing
from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest

from engine import values

ROOT = Path(values.__file__).parents[1]


class Ours(values.NamedTuple):
    """A value with defaults and a property."""

    name: str
    size: int = 1
    words: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        """Computed from a field."""
        return 2 * self.size


class Standard(typing.NamedTuple):
    """The same by the standard library."""

    name: str
    size: int = 1
    words: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        """Computed from a field."""
        return 2 * self.size


class Below(Ours):
    """A class below, whose first value may be made before one of the class above."""


USES: tuple[Callable[[typing.Any], object], ...] = (
    *(lambda kind: kind("a"), lambda kind: kind("a", words=("b",)), lambda kind: kind("a").double),
    *(lambda kind: kind("a")._replace(size=3), lambda kind: kind._make(["a", 2, ()])),
    *(lambda kind: kind("a")._asdict(), lambda kind: kind._fields, lambda kind: kind.__doc__ != ""),
    *(lambda kind: kind._field_defaults, lambda kind: kind.__match_args__, type),
    *(lambda kind: kind("a") == ("a", 1, ()), lambda kind: hash(kind("a"))),
    *(lambda kind: pickle.loads(pickle.dumps(kind("a"))), lambda kind: copy(kind("a"))),
    *(lambda kind: hasattr(kind("a"), "__dict__"), lambda kind: kind.__mro__[1:]),
    *(lambda kind: kind(), lambda kind: kind("a", weight=2), lambda kind: kind("a", 1, (), 4)),
    *(lambda kind: kind("a")._replace(weight=2), lambda kind: kind._make(["a"])),
)


def result(use: Callable[[typing.Any], object], kind: type) -> str:
    """The result or the error as text, with the class's name as `K`."""
    try:
        text = repr(use(kind))
    except (TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
    return re.sub(rf"\b{kind.__name__}\b|0x\w+", "K", text)


@pytest.mark.parametrize("use", USES)
def test_a_class_made_fast_behaves_as_one_of_the_standard_library(
    use: Callable[[typing.Any], object],
) -> None:
    """Values, copies, class attributes and the messages of errors are the same."""
    assert result(use, Ours) == result(use, Standard)


def test_the_first_value_may_be_of_a_class_below() -> None:
    """It has its own type, and the class above makes its own values after that."""
    assert type(Below("a")) is type(Below("a")._replace(size=2)) is Below
    assert type(Ours("a")) is Ours


def test_every_start_makes_its_classes_fast() -> None:
    """Only the ground package, which may import no other, uses the standard library's."""
    slow = [
        path
        for folder in ("engine", "tui")
        for path in Path(ROOT, folder).rglob("*.py")
        if re.search(r"^from typing import (\([^)]*|.*)\bNamedTuple\b", path.read_text(), re.M)
    ]
    assert {path.parent.name for path in slow if path.name != "values.py"} <= {"text"}
