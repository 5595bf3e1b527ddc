"""Parse message control files: lines with a field letter, a tag byte and data; byte offsets.

The router writes a file once. After that, scheduler and transport agents only overwrite tags and
PID slots in place, and append diagnostics, so each offset is valid as long as the file exists. The
lines of a file in their order are all its bytes.

`parse_layout` finds where the fields are in one pass; a recipient is parsed when it is asked for,
so that of a large file only its bytes and four bytes for each recipient are in memory.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, compress
from typing import NamedTuple

from engine.system.files import Refused

PID_SLOTS = 1
DELAY_SLOTS = 2
MIME_BLOCKS = 4
KNOWN_FORMAT = PID_SLOTS | DELAY_SLOTS | MIME_BLOCKS
"""Bits of the format line: recipient lines have a PID slot, a delay slot; M blocks may occur."""
PID_SLOT_BYTES = 6
DELAY_SLOT_BYTES = 4

TRIGGER = b"T"
"""Field of a file that only asks for the delivery of a host (ETRN); it is the only line there."""

RUN_BYTES = 1 << 20
"""Lines are split in runs of about so many bytes, so that few are in memory at a time."""

_BLOCKS = b"mM"
_find_block = re.compile(rb"\n[mM]").search
_TAGS = frozenset((b" ", b"~", b"+", b"-"))
_ALTERNATIVE = ord("X")
_LF = b"\n"
_IS_RECIPIENT = bytes(letter in b"rX" for letter in range(256))
_find_fields = re.compile(rb"[@ilesxmd]|(?<![rX])N").finditer
"""Letters with a meaning here, besides recipients and the N lines right after them."""
_DIAGNOSTIC, _NOTIFY, _HEADERS = b"dNm"
_is_thread = re.compile(rb'[^ "()\\]+ [^ "()\\]+').fullmatch
_has_groups = re.compile(rb'["()\\]').search


class Quad(NamedTuple):
    """An address: channel, host, user and privilege."""

    channel: bytes
    host: bytes
    user: bytes
    privilege: bytes


class Diagnostic(NamedTuple):
    """A diagnostic of a recipient."""

    time: float
    """Epoch seconds UTC; 0 if unknown."""
    notary: tuple[bytes, ...]
    """Final address, action, status, report of the remote host, its name, the agent."""
    message: bytes
    """May have CR between its lines."""


class RecipientLine(NamedTuple):
    """A recipient line."""

    offset: int
    head: bytes
    """The tag and the two slots, as far as the format has them."""
    address: bytes
    """Channel, host, user and privilege as they are written."""
    slots: int
    """Bytes of the PID slot and the delay slot; 0 if the format has no PID slot."""
    alternative: bytes = b""
    """Class of mutually exclusive recipients (X lines); empty for all others."""
    dsn: bytes = b""
    """Parameters of its delivery status notification (N line)."""
    subject: bytes = b""
    """Subject in the headers of its group."""

    @property
    def quad(self) -> Quad:
        """Its address, parsed.

        Raises:
            Refused: it is damaged.
        """
        return parse_quad(self.address)


class ControlFile(NamedTuple):
    """A parsed control file."""

    name: bytes
    log_id: bytes
    """Message-id with brackets; empty if there is none."""
    sender: bytes
    """Address for errors; empty for a report."""
    recipients: tuple[RecipientLine, ...]
    diagnostics: dict[int, Diagnostic]
    """The last diagnostic of each recipient, by the offset of its line."""
    obsoletes: tuple[bytes, ...] = ()
    """Spool ids or message-ids of messages that this one replaces."""
    damage: tuple[str, ...] = ()
    """What is wrong with single lines; the others can be used."""


class FileLayout(NamedTuple):
    """Where the fields of a control file are. Tags and PIDs are not in it, so it stays valid when
    one changes."""

    name: bytes
    log_id: bytes
    sender: bytes
    obsoletes: tuple[bytes, ...]
    slots: int | None
    """Bytes of the PID slot and the delay slot; None without a format line."""
    recipients: Sequence[int]
    """The offsets of all recipient lines, ascending."""
    subjects: tuple[tuple[int, bytes], ...]
    """The offset and the subject of each block of headers, which is that of the recipients between
    the block before and this one."""
    notify_lines: Mapping[int, int]
    """The offset of the N line of a recipient, if that is not the line after the recipient's."""
    diagnostics: Mapping[int, int]
    """The offset of the last diagnostic of each recipient that has one."""
    damage: tuple[str, ...]
    size: int
    """Bytes of the file."""

    def has_recipient(self, offset: int) -> bool:
        """True if there is a recipient line at an offset."""
        at = bisect_left(self.recipients, offset)
        return at < len(self.recipients) and self.recipients[at] == offset

    def subject_of(self, offset: int) -> bytes:
        """The subject of the recipient at an offset."""
        at = bisect_left(self.subjects, (offset,))
        return self.subjects[at][1] if at < len(self.subjects) else b""


def split_fields(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yield runs of fields in their order: the offset of the first, and all of them: lines with
    their LF, or one block of headers with the empty line that ends it. Together they are all bytes
    of the file.

    Raises:
        Refused: the file is torn: the last line has no LF, or a block has no end.
    """
    for start, end in _runs(data):
        if data[start] in _BLOCKS:
            yield start, [data[start:end]]
        elif data.find(b"\r", start, end) < 0:
            yield start, data[start:end].splitlines(keepends=True)
        else:  # a CR ends no line here
            yield start, [raw + _LF for raw in data[start : end - 1].split(_LF)]


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each block, and of runs of single lines between them.

    Raises:
        Refused: see `split_fields`.
    """
    at, size = 0, len(data)
    block = -1
    while at < size:
        if data[at] in _BLOCKS:
            end = data.find(b"\n", at)
            # A block of no headers is its own line and the empty one.
            end = data.find(b"\n\n", end) + 2 if end >= 0 else 1
            if end == 1:
                raise Refused(f"torn: a block without an end at offset {at}")
        else:
            if block < at:
                found = _find_block(data, at)
                block = size if found is None else found.end() - 1
            end = block
            if end - at > RUN_BYTES:
                end = data.rfind(b"\n", at, at + RUN_BYTES) + 1 or data.find(b"\n", at) + 1
            if end == 0 or data[end - 1] != _LF[0]:
                raise Refused(f"torn: a line without an end at offset {data.rfind(_LF, at) + 1}")
        yield at, end
        at = end


def parse_control_file(data: bytes) -> ControlFile:
    """Parse a control file with all its recipients and diagnostics.

    Raises:
        Refused: it cannot be used: torn, no name, an unknown format.
    """
    layout, lines = parse_layout(data), partial(line_in, data)
    recipients, damage = list[RecipientLine](), list(layout.damage)
    for offset in layout.recipients:
        try:
            one = parse_recipient(layout, offset, lines)
            parse_quad(one.address)
            recipients.append(one)
        except Refused as refusal:
            damage.append(f"{refusal} at offset {offset}")
    found = {
        one.offset: parse_diagnostic(lines(layout.diagnostics[one.offset]))
        for one in recipients
        if one.offset in layout.diagnostics
    }
    facts = layout[:3]
    return ControlFile(*facts, tuple(recipients), found, layout.obsoletes, tuple(damage))


def line_in(data: bytes, offset: int) -> bytes:
    """The line at an offset, without its LF."""
    return data[offset : data.find(b"\n", offset)]


def parse_layout(data: bytes) -> FileLayout:
    """Find the fields of a control file.

    Raises:
        Refused: it cannot be used: torn, no name, an unknown format.
    """
    recipients = array("I")
    notify_lines: dict[int, int] = {}
    diagnostics: dict[int, int] = {}
    others: dict[int, list[bytes]] = {}
    subjects: list[tuple[int, bytes]] = []
    damage: list[str] = []
    for start, fields in split_fields(data):
        letters = bytes([raw[0] for raw in fields])
        offsets = [*accumulate(map(len, fields), initial=start)]
        recipients.extend(compress(offsets, letters.translate(_IS_RECIPIENT)))
        for found in _find_fields(letters):
            at = found.start()
            letter, offset, raw = letters[at], offsets[at], fields[at]
            if letter == _DIAGNOSTIC:
                number = _diagnosed(raw)
                if number is None:
                    damage.append(f"diagnostic without an offset at offset {offset}")
                else:
                    diagnostics[number] = offset
            elif letter == _NOTIFY:
                if before := bisect_left(recipients, offset):
                    notify_lines[recipients[before - 1]] = offset
            elif letter == _HEADERS:
                subjects.append((offset, _find_subject(raw)))
            else:
                others.setdefault(letter, []).append(raw[2:-1])

    def last(letter: bytes) -> bytes:
        return others[letter[0]][-1] if letter[0] in others else b""

    if not (name := last(b"i").strip()):
        raise Refused("no i line with the name of the message file")
    is_report = any(one.split(b" ")[0] == b"error" for one in others.get(ord("s"), ()))
    layout = FileLayout(
        name,
        last(b"l"),
        b"" if is_report else last(b"e"),
        tuple(others.get(ord("x"), ())),
        _parse_format(last(b"@")) if ord("@") in others else None,
        recipients,
        tuple(subjects),
        notify_lines,
        diagnostics,
        tuple(damage),
        len(data),
    )
    if not diagnostics:
        return layout
    strange = sorted(at for at in diagnostics if not layout.has_recipient(at))
    more = (f"diagnostic of offset {at}, no recipient there" for at in strange)
    return layout._replace(damage=(*damage, *more))


def _find_subject(block: bytes) -> bytes:
    """The subject in a block of headers."""
    at = block.lower().find(b"\nsubject:")
    if at < 0:
        return b""
    return block[at + len(b"\nsubject:") : block.find(b"\n", at + 1)].strip()


def _parse_format(text: bytes) -> int:
    """The bytes of the slots of a format line.

    Raises:
        Refused: it is no number, or has unknown bits.
    """
    try:
        bits = int(text, 16)
    except ValueError:
        raise Refused("the format line is no hexadecimal number") from None
    if bits & ~KNOWN_FORMAT:
        raise Refused(f"unknown format bits {bits & ~KNOWN_FORMAT:#x}")
    return PID_SLOT_BYTES + DELAY_SLOT_BYTES * bool(bits & DELAY_SLOTS) if bits & PID_SLOTS else 0


def parse_recipient(
    layout: FileLayout, offset: int, line_at: Callable[[int], bytes]
) -> RecipientLine:
    """Parse the recipient at an offset. `line_at` returns the line at an offset, without its LF,
    and no bytes at the end of the file.

    Raises:
        Refused: it has an unknown tag, or no address.
    """
    raw = line_at(offset)
    if raw[1:2] not in _TAGS:
        raise Refused("recipient with an unknown tag")
    slots, alternative = layout.slots, b""
    if raw[0] == _ALTERNATIVE:
        # Its class takes the place of the slots.
        alternative, _, rest = raw[2:].lstrip(b" ").partition(b" ")
        slots, head = 0, raw[1:2]
    elif slots is not None:
        head, rest = raw[1 : 2 + slots], raw[2 + slots :]
    else:
        # The form of the man page: an optional PID right after the tag.
        rest = raw[2:].lstrip(b"0123456789") if raw[1:2] == b"~" else raw[2:]
        head = raw[1 : len(raw) - len(rest)]
    after = offset + len(raw) + 1
    notify = line_at(layout.notify_lines.get(offset, after) if layout.notify_lines else after)
    dsn = notify[2:] if notify[:1] == b"N" else b""
    subjects = layout.subjects
    # In nearly all files all recipients have the same headers.
    is_one = len(subjects) == 1 and offset < subjects[0][0]
    subject = subjects[0][1] if is_one else layout.subject_of(offset)
    return RecipientLine(offset, head, rest, slots or 0, alternative, dsn, subject)


def parse_quad(text: bytes) -> Quad:
    """Parse channel, host, user and privilege. A host may be a list in parentheses, or quoted; a
    user may have blanks, and may be missing.

    Raises:
        Refused: it is not that.
    """
    channel, _, rest = text.lstrip(b" ").partition(b" ")
    rest = rest.lstrip(b" ")
    end = _word_end(rest)
    host, others = rest[:end], rest[end:].strip(b" ")
    user, _, privilege = others.rpartition(b" ")
    if not channel or not host or not privilege.lstrip(b"-").isdigit():
        raise Refused("no channel, host, user and privilege")
    return Quad(channel.lower(), host.lower(), user.strip(b" "), privilege)


def split_address(address: bytes) -> tuple[bytes, bytes]:
    """Split an address of the usual form, which `parse_quad` reads in the same way, into thread
    ("channel host") and user; no bytes as thread if it has another form.
    """
    words = address.rsplit(b" ", 2)
    if len(words) == 3 and words[2].isdigit() and _is_thread(words[0]):
        return words[0], words[1]
    return b"", b""


def _word_end(text: bytes) -> int:
    """Where the first word ends: blanks within parentheses and quotes belong to it."""
    end = text.find(b" ")
    if not _has_groups(text):
        return len(text) if end < 0 else end
    depth, is_quoted, is_escaped = 0, False, False
    for at, char in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif char == ord("\\"):
            is_escaped = True
        elif char == ord('"'):
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif char == ord("("):
            depth += 1
        elif char == ord(")"):
            depth -= 1
        elif char == ord(" ") and depth <= 0:
            return at
    if is_quoted or depth > 0:
        raise Refused("a host without its closing quote or parenthesis")
    return len(text)


def _diagnosed(line: bytes) -> int | None:
    """The offset of the recipient in a d line; None if it has none."""
    number = line[2:-1].partition(b"\t")[0].partition(b":")[0]
    return int(number) if number.isdigit() and len(number) <= 12 else None


def parse_diagnostic(line: bytes) -> Diagnostic:
    """Parse a d line without its LF."""
    place, _, rest = line[2:].partition(b"\t")
    notary, _, message = rest.partition(b"\t")
    numbers = place.split(b":")
    at = numbers[-1] if len(numbers) == 5 else b""
    when = float(at) if at.isdigit() and len(at) < 12 else 0.0
    return Diagnostic(when, tuple(notary.split(b"\1")), message)
