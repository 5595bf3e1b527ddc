"""JSON, numbers and texts of small state files, read within stated limits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text import decode
from engine.text.decode import Malformed
from tests.examples import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@examples(30)
@given(JSON)
def test_what_python_writes_is_read_back(value: object) -> None:
    """A document within the limits is read as it was written."""
    assert decode.load_json(json.dumps(value)) == value


def test_a_document_beyond_a_limit_is_malformed() -> None:
    """The message says which limit; the largest allowed documents are read."""
    for data, why in (
        (b"1" + b"0" * 400, "401 characters, expected at most 19"),
        (b"1" * 5000, "5,000 characters"),
        (b"NaN", "NaN, expected a number"),
        (b"[-Infinity]", "-Infinity, expected a number"),
        (b"1e999", "1e999 is out of range"),
        (b"[" * 33 + b"]" * 33, "more than 32 levels"),
        (b"[" * 30_000 + b"]" * 30_000, "nested"),  # Python 3.14 reads it, others do not
        (b'{"a":' * 33 + b"1" + b"}" * 33, "more than 32 levels"),
        (b'"' + b"x" * 65_536 + b'"', "65,538 bytes, expected at most 65,536"),
        *((data, "not JSON") for data in (b"\xff", b"", b"{")),
    ):
        with pytest.raises(Malformed, match=why):
            decode.load_json(data)
    assert decode.load_json("[" * 32 + "]" * 32)
    assert decode.load_json(json.dumps("[" * 60_000)) == "[" * 60_000
    assert decode.load_json("9" * 19) == 10**19 - 1


@examples(60)
@given(JSON | st.just(True) | st.just(float("nan")) | st.just(10**400) | st.just(1e300))
def test_a_field_is_of_its_type_and_range_or_malformed(value: object) -> None:
    """For any field, a check returns a value of its kind and range or raises Malformed."""
    for check, right in (
        (decode.check_epoch, lambda found: 0 <= found < decode.YEAR_10000),
        (decode.check_count, lambda found: 0 <= found <= decode.MAX_COUNT),
        (decode.check_text, lambda found: len(found) <= 4096),
        (decode.check_object, lambda found: isinstance(found, dict)),
    ):
        try:
            assert right(check(value, "field"))
        except Malformed as error:
            assert str(error).startswith("field: ")


def test_digits_are_ascii_and_few() -> None:
    """A whole number is ASCII digits within a range; anything else is no number."""
    numbers: dict[bytes | str, int] = {b"17": 17, "007": 7, "9007199254740991": 9007199254740991}
    assert {data: decode.parse_digits(data) for data in numbers} == numbers
    for data in ("9007199254740992", "1" * 5000, "", "-1", "1 ", "\u00b2", "\u0661", "1.0", "1e3"):
        assert decode.parse_digits(data) is None, data
    assert decode.parse_digits(b"\xb2") is None
