"""JSON that an operator edits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.json_text import compact_json, lay_out_json
from tests.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
@examples(100)
def test_what_is_laid_out_has_the_same_values(value: object, is_ascii: bool) -> None:
    """All lines are printable, and the values are those of the text, with any content."""
    try:
        text = json.dumps(value, ensure_ascii=is_ascii, allow_nan=False)
    except ValueError:
        return  # an infinite number
    laid_out = lay_out_json(text)
    assert all(line.isprintable() for line in laid_out.split("\n"))
    assert json.loads(compact_json(laid_out)) == json.loads(text) == value


COMPACT = {
    ' { "a b" : [ 1 , 1.0 , 1e5 ] }\n': '{"a b":[1,1.0,1e5]}', '"\\" \\u0020 x"': '"\\" \\u0020 x"',
    '{"a": 1, "a": 2}': '{"a":1,"a":2}', "12345678901234567890.123 ": "12345678901234567890.123",
    "1e999": "1e999", "9" * 5000: "9" * 5000,
}  # fmt: skip


def test_numbers_and_strings_stay_as_they_are() -> None:
    """Only space between the values goes."""
    assert {text: compact_json(text) for text in COMPACT} == COMPACT
    assert {text: compact_json(lay_out_json(text)) for text in COMPACT} == COMPACT


REFUSED = {
    '{"a": 1,\n "b" 2}': "line 2, column 6", "": "line 1, column 1", "{} {}": "line 1, column 4",
    '"\n"': "line 1, column 2", "[NaN]": "NaN is no JSON", "-Infinity": "-Infinity is no JSON",
    "[" * 200_000: "no JSON",
}  # fmt: skip


def test_what_is_no_json_is_refused_with_its_place() -> None:
    """The message has line and column."""
    for text, message in REFUSED.items():
        with pytest.raises(ValueError, match=message):
            compact_json(text)
