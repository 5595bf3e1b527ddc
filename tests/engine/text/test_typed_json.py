"""Values to JSON and back by their types: what is read, what is refused, and with which path."""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.decode import Malformed, check_count
from engine.text.typed_json import Epoch, from_array, from_json, to_json


class Colour(StrEnum):
    """A few words."""

    RED = "red"
    BLUE = "blue"


class Inner(NamedTuple):
    """A value in another."""

    colour: Colour
    amount: int = 0


class Outer(NamedTuple):
    """A value with a field of each type."""

    name: str
    share: float
    inner: Inner
    more: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    by_name: Mapping[str, int] = {}
    amounts: Mapping[Colour, float | None] = {}
    either: int | str = 0
    flag: bool = False
    when: Epoch | None = None
    small: Annotated[int, partial(check_count, most=9)] = 0
    anything: Any = None


INNERS = st.builds(Inner, st.sampled_from(Colour), st.integers(0, 1 << 40))
OUTERS = st.builds(
    Outer,
    st.text(),
    st.floats(-1e9, 1e9),
    INNERS,
    st.lists(INNERS, max_size=3).map(tuple),
    st.tuples(st.integers(0, 9), st.text()),
    by_name=st.dictionaries(st.text(), st.integers(0, 9), max_size=3),
    amounts=st.dictionaries(st.sampled_from(Colour), st.none() | st.floats(0, 9), max_size=2),
    either=st.integers(0, 9) | st.text(),
    flag=st.booleans(),
    when=st.none() | st.floats(0, 4e9),
    small=st.integers(0, 9),
    anything=st.none() | st.lists(st.integers()),
)


@given(OUTERS)
def test_a_value_comes_back(value: Outer) -> None:
    """By the names of its fields or by their position, through a JSON text."""
    assert from_json(Outer, json.loads(json.dumps(to_json(value))), "it", exact=True) == value
    assert from_array(Outer, json.loads(json.dumps(value)), "it") == value


LEAST: dict[str, Any] = {"name": "n", "share": 1, "inner": {"colour": "red"}}


def test_missing_fields_have_their_defaults() -> None:
    """Unknown fields are ignored unless the type must match exactly."""
    read = from_json(Outer, {**LEAST, "later": 1}, "it")
    assert read == Outer("n", 1.0, Inner(Colour.RED))
    assert isinstance(read.share, float)
    assert from_array(Outer, ["n", 1, ["red"]], "it") == read
    with pytest.raises(Malformed, match=r"^it: unknown field 'later'$"):
        from_json(Outer, {**LEAST, "later": 1}, "it", exact=True)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("name: expected a text", {"name": 5}), ("share: expected a number from", {"share": True}),
    ("share: expected a number from", {"share": "1"}), ("inner: expected an object", {"inner": []}),
    ("inner.colour: missing", {"inner": {}}),
    ("inner.colour: expected one of red, blue", {"inner": {"colour": "green"}}),
    ("inner.colour: expected one of red, blue", {"inner": {"colour": []}}),
    ("inner.amount: expected a whole number", {"inner": {"colour": "red", "amount": -1}}),
    ("more: expected an array", {"more": {}}),
    ("more[1].colour: missing", {"more": [{"colour": "red"}, {}]}),
    ("pair: expected an array of 2 values", {"pair": [1]}),
    ("pair[1]: expected a text", {"pair": [1, 2]}),
    ("by_name.a: expected a whole number", {"by_name": {"a": 1.5}}),
    ("amounts: expected one of red, blue", {"amounts": {"green": 1}}),
    ("either: expected a text", {"either": None}), ("flag: expected true or false", {"flag": 1}),
    ("when: expected epoch seconds", {"when": -1}),
    ("small: expected a whole number from 0 to 9", {"small": 10}),
]  # fmt: skip


class NotJson(NamedTuple):
    """A value that no JSON has."""

    data: bytes


def test_a_wrong_value_is_refused_with_its_path() -> None:
    """One line names field and what was expected; a type that JSON lacks is refused before."""
    for message, change in WRONG:
        with pytest.raises(Malformed, match=f"^it.{re.escape(message)}"):
            from_json(Outer, LEAST | change, "it")
    wrong: list[Any] = [{}, ["n", 1], ["n", 1, ["red"], *[None] * 10]]
    for values in wrong:
        with pytest.raises(Malformed, match=r"^it: expected an array of 3 to 12 values"):
            from_array(Outer, values, "it")
    with pytest.raises(TypeError, match=r"no JSON value is a <class 'bytes'>"):
        from_json(NotJson, {}, "it")
