"""What Kannader writes, read and written again byte for byte."""

import tarfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.formats.kannader import mail_format, sidecar
from engine.formats.kannader.enqueue import wire_chunks
from engine.formats.kannader.mail_format import (
    NANOSECONDS_PER_SECOND,
    LinkTarget,
    MailSchedule,
    parse_schedule,
    render_json,
    render_metadata,
)
from engine.system.files import Refused
from tests.engine.sample_mails import unwired
from tests.store_contents import naming

SAMPLES = Path(__file__).parents[3] / "golden" / "kannader" / "samples.tar.xz"
MAIL = "11111111-1111-4111-8111-111111111111"
DEST = "aaaaaaaa-0000-4000-8000-000000000001"
AT = 1_795_167_419_058_373_202
"""2026-11-20T09:36:59.058373202Z in nanoseconds."""


def test_files_of_kannader_are_written_as_they_were() -> None:
    """Envelopes and schedules of the samples come back byte for byte; a new one is like theirs."""
    files: dict[str, list[bytes]] = {"metadata": [], "schedule": []}
    with tarfile.open(SAMPLES) as samples:
        for member in samples:
            name = member.name.rpartition("/")[2]
            if "/good-" in member.name and name in files and (file := samples.extractfile(member)):
                files[name].append(file.read())
    envelopes, schedules = files.values()
    assert [render_json(mail_format.parse_json(data)) for data in envelopes] == envelopes
    assert render_metadata("foo@sender.example.org", "bar@example.net") in envelopes
    parsed = [parse_schedule(data) for data in schedules]
    assert [mail_format.render_schedule(one) for one in parsed] == schedules
    assert MailSchedule(AT) in parsed


FIRST, LAST = -62_135_596_800, 253_402_300_800
"""Seconds of the first and after the last year of a calendar."""


@given(st.integers(FIRST * NANOSECONDS_PER_SECOND, LAST * NANOSECONDS_PER_SECOND - 1))
def test_a_time_comes_back_to_the_nanosecond(instant: int) -> None:
    """Any time that is written is read as the same."""
    assert mail_format.parse_time(mail_format.format_time(instant)) == instant


def test_a_time_has_the_fewest_digits() -> None:
    """A fraction has 0, 3, 6 or 9 digits, as few as are exact; a time of no calendar is refused."""
    for instant, text in (
        (0, "1970-01-01T00:00:00Z"),
        (500_000_000, "1970-01-01T00:00:00.500Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (AT, "2026-11-20T09:36:59.058373202Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
    ):
        assert mail_format.format_time(instant) == text
    leap, after = map(mail_format.parse_time, ("2026-12-31T23:59:60Z", "2027-01-01T00:00:00Z"))
    assert leap == after
    for seconds in (float("nan"), float("inf"), 1e18, -1e18):
        with naming(seconds), pytest.raises(Refused):
            mail_format.to_nanoseconds(seconds)


def test_a_schedule_is_read_as_kannader_reads_it() -> None:
    """Missing and unknown fields, offsets, more digits, blanks and the form of an array."""
    for text in (
        '{"last_attempt":null,"at":"2026-11-20T09:36:59.058373202Z"}',
        '{"at":"2026-11-20T09:36:59.058373202Z"}',
        '{"at":"2026-11-20T09:36:59.058373202Z","more":[1]}',
        '{"at":"2026-11-20T11:36:59.058373202+02:00"}',
        '{"at":"2026-11-20T04:06:59.058373202-0530"}',
        '{"at":"2026-11-20 09:36:59.0583732029 UTC"}',
        '\n {"at":"2026-11-20T09:36:59.058373202Z"} \n',
        '["2026-11-20T09:36:59.058373202Z",null]',
    ):
        assert parse_schedule(text.encode()) == MailSchedule(AT)


def test_what_kannader_cannot_read_is_refused() -> None:
    """Each is refused with a reason, however deeply it is nested."""
    values = ("", " ", "{}", "[]", "null", "1", '"x"', "{", "[" * 60_000)
    times = ["2026-11-20T09:36:59", "2026-11-20t09:36:59Z", "2026-02-30T09:36:59Z"]
    times += ["2026-13-01T09:36:59Z", "0000-01-01T00:00:00Z"]
    more = ['"at":"2026-11-20T09:36:59Z"', '"last_attempt":1', '"more":NaN', '"more":"\\ud800"']
    more += ['"more":' + "9" * 5000]
    for text in (
        *values,
        '["2026-11-20T09:36:59Z"]',
        '{"at":1}',
        '{"at":"2026-11-20T09:36:59Z"} more',
        *(f'{{"at":"{time}"}}' for time in times),
        *(f'{{"at":"2026-11-20T09:36:59Z",{field}}}' for field in more),
    ):
        with naming(text), pytest.raises(Refused):
            parse_schedule(text.encode())


ADDRESSES = {
    "bar@example.net": (
        '{"localpart":{"Ascii":{"raw":"bar"}},"hostname":{"AsciiDomain":{"raw":"example.net"}}}'
    ),
    '"q uo\\"te"@[192.0.2.7]': (
        r'{"localpart":{"QuotedAscii":{"raw":"\"q uo\\\"te\""}},'
        r'"hostname":{"Ipv4":{"raw":"[192.0.2.7]","ip":"192.0.2.7"}}}'
    ),
    "x@[IPv6:2001:db8::1]": (
        '{"localpart":{"Ascii":{"raw":"x"}},'
        '"hostname":{"Ipv6":{"raw":"[IPv6:2001:db8::1]","ip":"2001:db8::1"}}}'
    ),
    "üser@élégance.fr": (
        '{"localpart":{"Utf8":{"raw":"üser"}},'
        '"hostname":{"Utf8Domain":{"raw":"élégance.fr","punycode":"xn--lgance-9uab.fr"}}}'
    ),
    '"é"@x.org': (
        r'{"localpart":{"QuotedUtf8":{"raw":"\"é\""}},"hostname":{"AsciiDomain":{"raw":"x.org"}}}'
    ),
    "postmaster": '{"localpart":{"Ascii":{"raw":"postmaster"}},"hostname":null}',
    "a@1.2.3.4": (
        '{"localpart":{"Ascii":{"raw":"a"}},"hostname":{"AsciiDomain":{"raw":"1.2.3.4"}}}'
    ),
}
"""Kannader spool, section 2: addresses and their JSON."""


def test_an_address_is_written_as_kannader_does() -> None:
    """Each kind of address has its form, and is read back as it was."""
    for address in ADDRESSES:
        data = render_metadata("", address)
        assert data == b'{"from":null,"to":%s,"metadata":null}' % ADDRESSES[address].encode()
        assert mail_format.parse_metadata(data)[:2] == ("<>", address)


def test_what_is_no_address_is_refused() -> None:
    """Nothing that would end a command or a line is written; half a character is refused."""
    parts = ("", "@", "a@", "@b", "a b@c", "a@b c", "a\n@b", "a@b\r", '"a@b', "<a@b>")
    for address in (*parts, *(f"a@{host}" for host in ("[1.2.3]", "[x]", "b\uff20c.org"))):
        with naming(address), pytest.raises(Refused):
            render_metadata("", address)
    data = render_metadata("", "x@example.org").replace(b'"x"', b'"\\ud800"')
    with pytest.raises(Refused, match="lone surrogate"):
        mail_format.parse_metadata(data)
    assert mail_format.parse_metadata(data.replace(b"ud800", b"u00fc")).recipient == "ü@example.org"


def test_a_new_recipient_leaves_the_rest_of_an_envelope() -> None:
    """Only the recipient changes; an address in an unknown form is shown as its JSON and stays."""
    data = render_metadata("a@example.org", "b@example.org").replace(b"null", b'{"k":[1]}')
    assert mail_format.replace_recipient(data, "c@example.org") == data.replace(b'"b"', b'"c"')
    address = '{"localpart":{"New":{"x":1}},"hostname":null}'
    data = b'{"from":null,"to":%s,"metadata":null}' % address.encode()
    assert mail_format.parse_metadata(data).recipient == address
    with pytest.raises(Refused, match="unknown format"):
        mail_format.replace_recipient(data, "a@example.org")


def test_a_link_has_exactly_one_form() -> None:
    """It is `../data/<uuid>/<uuid>`, with random UUIDs; any other target is refused."""
    target = mail_format.parse_link_target(f"../data/{MAIL}/{DEST}")
    assert (target, len(target.text)) == (LinkTarget(MAIL, DEST), 81)
    forms = "; x; ../data/M; ../data/M/D/; ../data/M/D\n; /data/M/D; ../data/../M/D; ../data/M/../D"
    for form in (*forms.split("; "), "../../data/M/D", f"../data/{MAIL.upper()}/{DEST.upper()}"):
        text = form.replace("M", MAIL).replace("D", DEST)
        with naming(text), pytest.raises(Refused):
            mail_format.parse_link_target(text)
    one, other = mail_format.new_uuid(), mail_format.new_uuid()
    assert mail_format.is_uuid(one) and one != other
    assert one[14] == "4" and one[19] in "89ab"


def test_the_wire_form_of_a_mail() -> None:
    """Lines end in CRLF, leading dots are doubled, a dot ends it; no other byte changes."""
    for text, wire in (
        (b"a\nb\r\n", b"a\r\nb\r\n.\r\n"),
        (b".\n..\n.a", b"..\r\n...\r\n..a\r\n.\r\n"),
        (b"\xff\x00\x80\r", b"\xff\x00\x80\r\r\n.\r\n"),
    ):
        assert mail_format.encode_wire(text) == wire


@given(st.binary(max_size=40).map(lambda b: b.replace(b"\r", b"")), st.integers(1, 7))
def test_a_mail_comes_back_from_the_wire(text: bytes, size: int) -> None:
    """What was put on the wire, in pieces of any size, is what was given, but for the line ends."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert b"".join(wire_chunks(pieces)) == mail_format.encode_wire(text)
    whole = text if not text or text.endswith(b"\n") else text + b"\n"
    assert unwired(mail_format.encode_wire(text)) == whole.replace(b"\n", b"\r\n")


def test_a_note_is_read_as_it_was_written() -> None:
    """Each field of a note comes back; a torn note, or one of another program, is refused."""
    texts = {"description": "a note", "start": "inflight"}
    full = sidecar.AttemptNote(3, "no\u2028way", "job", since=5, **texts)
    assert sidecar.parse_note(sidecar.render_note(full)) == full
    assert sidecar.parse_note(sidecar.render_note(sidecar.EMPTY_NOTE)) == sidecar.EMPTY_NOTE
    counts = (b'"1"', b"true", b"-1", b"4294967296", b"1" + b"0" * 4000)
    notes = [b'{"attempts":%s}' % count for count in counts]
    for data in (b"", b"[]", b"{", b'{"error":1}', *notes):
        with naming(data), pytest.raises(Refused):
            sidecar.parse_note(data)
