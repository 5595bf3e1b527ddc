"""YAML is read within limits on its bytes, its depth and its values."""

import re
from collections.abc import Callable

import pytest

from engine.config import yaml_file
from engine.config.yaml_file import BadYaml

Reader = Callable[[bytes], object]


def composed(data: bytes) -> object:
    """By the parser that keeps line numbers, as the configuration is read."""
    node, loader = yaml_file.parse_nodes(data)
    return None if node is None else yaml_file.build_value(node, loader)


BOMB = b"a0: &a0 [x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
)


@pytest.fixture(params=[composed, yaml_file.load_yaml], ids=["compose", "load"])
def read(request: pytest.FixtureRequest) -> Reader:
    """Either way to read."""
    reader: Reader = request.param
    return reader


@pytest.mark.parametrize(("text", "why"), [
    ("010", '010 is 8 in YAML (octal): write 10, or "010" for the text'),
    ("-08", '-08 is text in YAML: write -8, or "-08" for the text'),
    ("0_7", '0_7 is 7 in YAML (octal): write 7, or "0_7" for the text'),
    ("1:30", '1:30 is 90 in YAML (base 60): write "1:30" for the text'),
    ("1:30.5", '1:30.5 is 90.5 in YAML (base 60): write "1:30.5" for the text'),
])  # fmt: skip
def test_a_setting_with_two_readings_is_refused(text: str, why: str) -> None:
    """The line names what YAML makes of it and what to write; quoted it is a text."""
    with pytest.raises(BadYaml, match=re.escape(f"line 2: {why}")):
        composed(f"a: 1\nb: [{text}]\n".encode())
    assert composed(f"'{text}': \"{text}\"".encode()) == {text: text}
    plain = b"[0, 10, -5, 0.5, 0x1f, 1_000, 2026-11-28, 10.05, '::1', a:b]"
    assert composed(plain) != [] and composed(b"[0, 10, 0.5, 1_000]") == [0, 10, 0.5, 1000]


def test_yaml_within_the_limits_is_read(read: Reader) -> None:
    """Anchors, merge keys, depth and length up to the limits make the values they name."""
    merged = b"base: &b {x: 1}\nmine: {<<: *b, y: 2}\n"
    assert read(b"") is None
    assert read(b"a: 1\n") == {"a": 1}
    assert read(merged) == {"base": {"x": 1}, "mine": {"x": 1, "y": 2}}
    assert read(b"[" * 32 + b"]" * 32)
    assert read(b"a: 1" + b"0" * 63) == {"a": 10**63}
    assert read(b"a: '1" + b":1" * 40 + b"'") == {"a": "1" + ":1" * 40}
    assert read(b"a: 1" + b":1" * 40 + b" x") == {"a": "1" + ":1" * 40 + " x"}


@pytest.mark.deep
def test_the_number_of_values_is_limited(read: Reader) -> None:
    """Of 20,000 values each is read; more are refused, with the line of the first one too many."""
    assert read(b"- x\n" * 19_000) == ["x"] * 19_000
    with pytest.raises(BadYaml, match="line 20000: more than 20,000 values"):
        read(b"- x\n" * 21_000)


BEYOND = {
    BOMB: r"line 5: more than 20,000 values, aliases expanded",
    b"[" * 50_000: "line 1: nested more than 32 levels deep",
    b"a: " + b"{a: " * 50_000: "line 1: nested more than 32 levels deep",
    b"- " * 40 + b"x\n": "line 1: nested more than 32 levels deep",
    b"a: &a [*a]\n": r"line 1: the alias \*a contains itself",
    b"#" * (yaml_file.MAX_BYTES + 1): "expected at most 1,048,576 bytes",
    b"a: 1" + b"0" * 64: "line 1: expected at most 64 characters in a number or a time",
    b"\na: -1" + b":1" * 32: "line 2: expected at most 64 characters in a number",
    b"a: 1" + b":1" * 32 + b".5": "line 1: expected at most 64 characters in a number",
    b"a: 2026-01-01 00:00:00." + b"0" * 64: "line 1: expected at most 64 characters in",
    b"a: !!int '1" + b":1" * 32 + b"'": "line 1: expected at most 64 characters in",
    b"a: 2026-99-99\n": r"expected YAML: month must be in 1..12",
    b"a: [\n": "line 2: expected YAML: ", b"\xff": "expected YAML: ", b"a: *b\n": "expected YAML: ",
    b"a: !!python/object:os.system {}\n": "expected YAML: ",
}  # fmt: skip


def test_yaml_beyond_a_limit_is_one_line(read: Reader) -> None:
    """A file beyond a limit, or no YAML, is refused in one line before values are made of it."""
    for data, why in BEYOND.items():
        with pytest.raises(BadYaml) as caught:
            read(data)
        assert re.search(why, str(caught.value)), data[:20]
        assert "\n" not in str(caught.value)
