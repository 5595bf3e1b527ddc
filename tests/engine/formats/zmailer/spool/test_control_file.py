"""Control files of ZMailer: their lines, addresses, tags, names and ids."""

import tarfile
from pathlib import Path

import pytest

from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.control_file import parse_control_file, split_fields
from engine.formats.zmailer.spool.names import parse_quad
from engine.model import State
from engine.system.files import Refused
from tests.store_contents import naming

SAMPLES = Path(__file__).parents[4] / "golden" / "zmailer" / "control-files.tar.xz"
"""Files of the real router, before delivery and during it, in hash folders."""


def sample_files() -> dict[str, bytes]:
    """The samples by their paths."""
    by_name = {}
    with tarfile.open(SAMPLES) as packed:
        for member in packed:
            if (file := packed.extractfile(member)) is not None:
                by_name[member.name] = file.read()
    return by_name


def test_the_lines_of_a_sample_are_all_its_bytes() -> None:
    """Each file of the real router is read without damage, and its lines in order are the file."""
    samples = sample_files()
    assert len(samples) == 52
    for path, data in samples.items():
        runs = list(split_fields(data))
        assert b"".join(field for _, fields in runs for field in fields) == data, path
        assert all(data[offset:].startswith(b"".join(fields)) for offset, fields in runs)
        parsed = parse_control_file(data)
        assert (parsed.name.decode(), parsed.damage) == (path.rpartition("/")[2], ())
        assert parsed.recipients


def test_a_sample_is_where_its_number_hashes_to() -> None:
    """The folder of each sample is one of the three that its number leads to."""
    found = set()
    for path in sample_files():
        tree, *folders, name = path.split("/")
        folder = "".join(f"{one}/" for one in folders)
        level = list(names.hash_folders(int(name))).index(folder)
        found.add((tree, level))
    assert found == {("snap2", 0), ("snap2", 2), ("final-single-hash", 0), ("final-single-hash", 1)}


def test_an_address_is_channel_host_user_privilege() -> None:
    """A host may be a list or quoted, a user have blanks or be missing; other texts are refused."""
    for text, *quad in (
        (
            b"smtp MX.Example bob@b.example 65534",
            b"smtp",
            b"mx.example",
            b"bob@b.example",
            b"65534",
        ),
        (b"local - rayan 7", b"local", b"-", b"rayan", b"7"),
        (b"smtp ((mx1)(mx2 mx3)) b 1", b"smtp", b"((mx1)(mx2 mx3))", b"b", b"1"),
        (b'smtp "a b" two words -2', b"smtp", b'"a b"', b"two words", b"-2"),
        (b"error x  1", b"error", b"x", b"", b"1"),
        (rb"smtp a\ b c 1", b"smtp", rb"a\ b", b"c", b"1"),
    ):
        assert [*parse_quad(text)] == quad
    for text in (b"", b"smtp", b"smtp x", b"smtp ((x) y 1", b'smtp "x y 1', b"a b c"):
        with naming(text), pytest.raises(Refused):
            parse_quad(text)


GOOD = b"@ 0x00000007\ni 12\nr           smtp x a@x 1\nm\nTo: a\n\n"


def test_a_file_that_cannot_be_used_is_refused() -> None:
    """With what is wrong, and where."""
    for data, why in (
        (b"@ 0x0000000f\ni 12\n", "unknown format bits 0x8"),
        (b"@ nothing\ni 12\n", "the format line is no hexadecimal number"),
        (b"@ 0x00000007\nr           smtp x a@x 1\n", "no i line"),
        (b"i 12\nr smtp x", "torn: a line without an end at offset 5"),
        (b"i 12\nm\nTo: a\n", "torn: a block without an end at offset 5"),
    ):
        with naming(data), pytest.raises(Refused, match=why):
            parse_control_file(data)


def test_a_damaged_line_leaves_the_others() -> None:
    """One line that cannot be read is named; the other recipients are read."""
    for more, damage in (
        (b"d 999:1:-1::5\tx\ty\n", "diagnostic of offset 999, no recipient there"),
        (b"d x:1\tx\ty\n", f"diagnostic without an offset at offset {len(GOOD)}"),
        (b"r?          smtp x a@x 1\n", f"recipient with an unknown tag at offset {len(GOOD)}"),
        (b"r           smtp\n", f"no channel, host, user and privilege at offset {len(GOOD)}"),
    ):
        parsed = parse_control_file(GOOD + more)
        assert (parsed.damage, len(parsed.recipients)) == ((damage,), 1)


def test_a_file_without_a_format_line_has_no_slots() -> None:
    """The form of the man page: the PID of a lock is right after the tag."""
    (one,) = parse_control_file(b"i 12\nr~23456 local - rayan 7\n").recipients
    assert (one.slots, marks.lock_pid(one.head), one.quad.user) == (0, 23456, b"rayan")


def test_a_mark_is_written_in_place() -> None:
    """Tag and PID slot get the mark of the new state; length and delay slot stay."""
    for head, state, after in (
        (b"           ", State.HELD, b"+held      "),
        (b"           ", State.TRASH, b"+trash     "),
        (b"-          ", State.TRASH, b"-trash     "),
        (b"-trash     ", State.DEAD, b"-          "),
        (b"+held      ", State.PENDING, b"           "),
        (b"-trash     ", None, b"-gone      "),
        (b"~ 20394    ", State.PENDING, b"           "),
        (b"~1234567   ", State.PENDING, b"           "),
        (b"~1234567", State.DEAD, b"-       "),
        (b"+       1:2", State.PENDING, b"        1:2"),
    ):
        assert marks.marked(head, state) == after
        assert marks.state_of(after) is state


def test_a_spool_id_has_number_and_time() -> None:
    """As the real router gave it to this message."""
    at = 1_795_167_380 * 10**9
    number = names.spool_id_number("S3276785AbmKTJgUJ3cCt")
    assert number == 3276785
    assert names.spool_id(number, at) == "S3276785AbmKTJgU"
    nanoseconds = 9 << 24 | 29 << 18 | 32 << 12 | 2 << 6 | 49
    assert names.spool_id(number, at + nanoseconds) == "S3276785AbmKTJgUJ3cCt"
    assert [names.spool_id_number(text) for text in ("S12", "12", "S12AbmKTJg", "")] == [None] * 4
