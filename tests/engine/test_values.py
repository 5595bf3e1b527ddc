"""Classes of values work as those of `typing.NamedTuple` do."""

import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from engine.values import NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A doc."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        """A method of the class."""
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    """A doc."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        """A method of the class."""
        return f"{self.first}{self.second}"


class Below(Ours):
    """A class below has the same fields."""

    note: str = "a class variable"


class Lowest(Below):
    """So has a class below that."""


class Box(NamedTuple, Generic[T]):
    """With a second base."""

    value: T


class Empty(NamedTuple):
    """Without a field."""


def parts_by_match(value: Any) -> object:
    """The first two fields, by position in a pattern."""
    match value:
        case Ours(first, second) | Theirs(first, second):
            return first, second
    return None


USES: tuple[Callable[[Any], Any], ...] = (
    lambda kind: tuple(kind(1)), lambda kind: tuple(kind(1, "c", third=(2,))),
    lambda kind: tuple(kind(second="c", first=1)),
    lambda kind: kind(1) == (1, "b", ()) and hash(kind(1)) == hash((1, "b", ())),
    lambda kind: kind(1) < kind(2),
    lambda kind: (kind(1).first, kind(1).second, kind(1).both),
    lambda kind: tuple(kind(1)._replace(second="x")),
    lambda kind: tuple(kind._make([1, 2, 3])), lambda kind: kind(1)._asdict(),
    lambda kind: repr(kind(1, "it's")).partition("(")[2],
    lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__),
    lambda kind: parts_by_match(kind(1)),
    lambda kind: tuple(pickle.loads(pickle.dumps(kind(1, "c")))),
    lambda kind: type(pickle.loads(pickle.dumps(kind(1, "c")))) is kind,
    lambda kind: typing.get_type_hints(kind),
)  # fmt: skip
MISUSES: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(), lambda kind: kind(1, first=1), lambda kind: kind(1, "b", (), 4),
    lambda kind: kind(1, unknown=2), lambda kind: kind._make([1]),
    lambda kind: kind(1)._replace(unknown=2),
    lambda kind: setattr(kind(1), "first", 2),
    lambda kind: setattr(kind(1), "unknown", 2),
)  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_both_kinds_answer_alike(use: Callable[[Any], Any]) -> None:
    """The same call gives the same value."""
    assert use(Ours) == use(Theirs)


@pytest.mark.parametrize("misuse", MISUSES)
def test_both_kinds_refuse_alike(misuse: Callable[[Any], Any]) -> None:
    """The same mistake raises an error with the same message."""

    def message(kind: Any) -> str:
        with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
            misuse(kind)
        return str(raised.value).replace("Ours", "Theirs")

    assert message(Ours) == message(Ours) == message(Theirs)


def test_other_kinds_of_classes() -> None:
    """A class below has the constructor of the class above, also with a second base."""
    assert tuple(Below(1)) == (1, "b", ()) and type(Below(1)._replace(first=2)) is Below
    assert Lowest(1)._replace(second="c") == Lowest._make((1, "c", ())) == (1, "c", ())
    assert Below(1).note == "a class variable"
    assert Box("x").value == "x" and Box[int].__origin__ is Box  # type: ignore[attr-defined]
    assert Empty() == () and Empty._make([]) == ()


WRONG_BODIES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"__annotations__": {"a": "int", "b": "int"}, "a": 1}, "a field without a default follows"),
    ({"__annotations__": {"_a": "int"}}, "the field _a begins with an underscore"),
    ({"__annotations__": {"a": "int"}, "__new__": object.__new__}, "__new__ is made for it"),
)


@pytest.mark.parametrize(("body", "message"), WRONG_BODIES)
def test_a_wrong_class_is_refused_where_it_is_made(body: dict[str, Any], message: str) -> None:
    """What no constructor could have, or would replace, is not found at the first call only."""
    make: Any = type(NamedTuple)
    with pytest.raises(TypeError, match=f"Wrong: {message}"):
        make("Wrong", (NamedTuple,), body)
