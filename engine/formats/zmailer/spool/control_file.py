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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate, compress
from zlib import crc32

from engine.formats.zmailer.spool.names import Quad, parse_quad
from engine.system.files import Refused
from engine.values import NamedTuple

PID_SLOTS = 1
DELAY_SLOTS = 2
MIME_BLOCKS = 4
KNOWN_FORMAT = PID_SLOTS | DELAY_SLOTS | MIME_BLOCKS
"""Bits of the format line: recipient lines have a PID slot, a delay slot; M blocks may occur."""
PID_SLOT_BYTES = 6
DELAY_SLOT_BYTES = 4

TRIGGER = b"T"
"""Field of a file that only asks for the delivery of a host (ETRN); it is the only line there."""

CHUNK_BYTES = 1 << 20
"""Files are split in chunks of so many bytes, so that few lines are in memory at a time."""

MAX_DAMAGE = 100
"""Damaged lines that are named of a file."""

MAX_FIELD_BYTES = 16 << 20
"""No field is longer, also no block of headers."""

BLOCK_BYTES = 4 << 10
"""Bytes of which a checksum is kept, to find what has changed. A chunk has whole ones."""

_BLOCKS = b"mM"
_find_block = re.compile(rb"\n[mM]").search
_TAGS = frozenset((b" ", b"~", b"+", b"-"))
_ALTERNATIVE = ord("X")
_LF = b"\n"
_IS_RECIPIENT = bytes(letter in b"rX" for letter in range(256))
_find_fields = re.compile(rb"[@ilevsxmdN]").finditer
"""Letters with a meaning here, besides recipients."""
_are_recipients = re.compile(rb"(?:[rX]N?)+").fullmatch
_LINES = re.compile(rb"[^\n]*\n").findall
_FORMAT, _NAME, _LOG_ID, _SENDER, _VERBOSE = _LAST_COUNTS = b"@ilev"
_DIAGNOSTIC, _NOTIFY, _HEADERS, _OBSOLETES = b"dNmx"


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
        """Its address, parsed. Raises Refused: it is damaged."""
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
    verbose_log: bytes = b""
    """Path of a log that its outcomes are appended to, relative to transport/; empty: none."""


class FileLayout(NamedTuple):
    """Where the fields of a control file are. Tags and PIDs are not in it, so it stays valid when
    one changes."""

    name: bytes
    log_id: bytes
    sender: bytes
    obsoletes: tuple[bytes, ...]
    slots: int | None
    """Bytes of the PID slot and the delay slot; None without a format line."""
    recipients: array[int]
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
    verbose_log: bytes = b""

    def has_recipient(self, offset: int) -> bool:
        """True if there is a recipient line at an offset."""
        return _find(self.recipients, offset) >= 0

    def has_lines_of(self, other: FileLayout) -> bool:
        """True if the header, the recipients and their subjects are in the same places as there."""
        return (
            self[:5] == other[:5]
            and self.subjects == other.subjects
            and self.recipients.tobytes() == other.recipients.tobytes()
        )

    def subject_of(self, offset: int) -> bytes:
        """The subject of the recipient at an offset."""
        at = bisect_left(self.subjects, (offset,))
        return self.subjects[at][1] if at < len(self.subjects) else b""


def _find(offsets: array[int], offset: int) -> int:
    """The index of an offset in ascending ones; -1 if it is not there."""
    at = bisect_left(offsets, offset)
    return at if at < len(offsets) and offsets[at] == offset else -1


def split_fields(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yield runs of fields in their order: the offset of the first, and all of them: lines with
    their LF, or one block of headers with the empty line that ends it. Together they are all bytes
    of the file. Raises Refused: the file is torn: the last line has no LF, or a block has no
    end."""
    return split_chunks(data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def split_chunks(chunks: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield runs of fields as `split_fields` does, of a file that is given in chunks. Raises
    Refused: the file is torn: the last line has no LF, or a block has no end."""
    base, unparsed = 0, b""
    for chunk in chunks:
        data, used = unparsed + chunk, 0
        for start, used in _runs(data):
            if data[start] in _BLOCKS:
                yield base + start, [data[start:used]]
            elif data.find(b"\r", start, used) < 0:
                yield base + start, data[start:used].splitlines(keepends=True)
            else:  # a CR ends no line here
                yield base + start, [raw + _LF for raw in data[start : used - 1].split(_LF)]
        base, unparsed = base + used, data[used:]
        if len(unparsed) > MAX_FIELD_BYTES:
            raise Refused(f"a field of more than {MAX_FIELD_BYTES:,} bytes at offset {base}")
    if unparsed:
        what = "a block without an end" if unparsed[0] in _BLOCKS else "a line without an end"
        raise Refused(f"torn: {what} at offset {base}")


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each block, and of the lines between two, up to the last whole one."""
    at, size, block = 0, len(data), -1
    while at < size:
        if data[at] in _BLOCKS:
            # A block of no headers is its own line and the empty one.
            end = data.find(b"\n\n", data.find(_LF, at)) + 2
            if end == 1:
                return
        else:
            if block < at:
                match = _find_block(data, at)
                block = size if match is None else match.end() - 1
            end = data.rfind(_LF, at, block) + 1
            if end == 0:
                return
        yield at, end
        at = end


class FileVersion(NamedTuple):
    """What is known of the content of a large file."""

    layout: FileLayout
    sums: tuple[int, ...]
    """CRC-32 of each block of `BLOCK_BYTES`."""

    def changed_spans(self, now: FileVersion, last_sum: int) -> list[tuple[int, int]]:
        """Start and end of the parts that differ from this version. `last_sum` is the checksum of
        the last block now, as far as it is in this version."""
        size, last = self.layout.size, len(self.sums) - 1
        sums = (*now.sums[:last], last_sum)
        spans = [
            (at * BLOCK_BYTES, min((at + 1) * BLOCK_BYTES, size))
            for at, (old, new) in enumerate(zip(self.sums, sums, strict=True))
            if old != new
        ]
        return spans if now.layout.size <= size else [*spans, (size, now.layout.size)]


def last_sum(old: FileVersion, read: Callable[[int, int], bytes]) -> int:
    """The checksum now of the part of a file that was the last block of an older version."""
    return crc32(read((len(old.sums) - 1) * BLOCK_BYTES, old.layout.size))


def block_sums(chunk: bytes) -> Iterator[int]:
    """The checksums of the blocks of a chunk."""
    return (crc32(chunk[at : at + BLOCK_BYTES]) for at in range(0, len(chunk), BLOCK_BYTES))


def update_layout(
    old: FileLayout, spans: Iterable[tuple[int, int]], read: Callable[[int, int], bytes]
) -> FileLayout | None:
    """The layout of a file in which only tags, PIDs and appended diagnostics have changed since
    `old`, in these parts; None if it has to be parsed again. `read` returns the bytes from one
    offset to another."""
    diagnostics, size = old.diagnostics, old.size
    for start, end in spans:
        if start < old.size:
            if not _has_same_lines(old, start, end, read):
                return None
            continue
        data = read(start, end)
        at, size, new_diagnostics = start, end, dict[int, int]()
        for raw in data.splitlines(keepends=True) if b"\r" not in data else _LINES(data):
            number = _diagnosed(raw)
            if raw[0] != _DIAGNOSTIC or number is None or not old.has_recipient(number):
                return None
            new_diagnostics[number] = at
            at += len(raw)
        if at != end:
            return None
        diagnostics = {**diagnostics, **new_diagnostics}
    return old._replace(diagnostics=diagnostics, size=size)


def _has_same_lines(
    old: FileLayout, start: int, end: int, read: Callable[[int, int], bytes]
) -> bool:
    """True if a part of a file, changed since `old`, still has the same lines of recipients, and
    others only before the first one."""
    offsets = old.recipients
    low, high = max(bisect_right(offsets, start) - 1, 0), bisect_left(offsets, end)
    after = [offsets[high]] if high < len(offsets) else [at for at, _ in old.subjects if at >= end]
    if low >= high or not after or old.notify_lines:
        return False
    try:
        if start < offsets[0] and parse_layout(read(0, offsets[0]))[:5] != old[:5]:
            return False
        runs = list(split_fields(read(offsets[low], after[0])))
    except Refused:
        return False
    if len(runs) != 1:
        return False
    letters = bytes([raw[0] for raw in runs[0][1]])
    line_offsets = accumulate(map(len, runs[0][1]), initial=offsets[low])
    recipient_offsets = [*compress(line_offsets, letters.translate(_IS_RECIPIENT))]
    return recipient_offsets == [*offsets[low:high]] and _are_recipients(letters) is not None


def recipients_in(
    layout: FileLayout, spans: Iterable[tuple[int, int]], read: Callable[[int, int], bytes]
) -> set[int]:
    """The offsets of the recipients whose lines or diagnostics are in parts of a file."""
    offsets = set[int]()
    for start, end in spans if layout.recipients else ():
        low = max(bisect_right(layout.recipients, start) - 1, 0)
        offsets.update(layout.recipients[low : bisect_left(layout.recipients, end)])
        if low + 1 == len(layout.recipients) or end > layout.recipients[-1]:
            numbers = map(_diagnosed, read(start, end).split(_LF))
            offsets.update(at for at in numbers if at is not None and layout.has_recipient(at))
    return offsets


def parse_control_file(data: bytes) -> ControlFile:
    """Parse a control file with all its recipients and diagnostics. Raises Refused: it cannot be
    used: torn, no name, an unknown format."""
    layout, lines = parse_layout(data), partial(line_in, data)
    recipients, damage = list[RecipientLine](), list(layout.damage)
    for offset in layout.recipients:
        try:
            one = parse_recipient(layout, offset, lines)
            parse_quad(one.address)
            recipients.append(one)
        except Refused as refusal:
            damage.append(f"{refusal} at offset {offset}")
    diagnostics = {
        one.offset: parse_diagnostic(lines(layout.diagnostics[one.offset]))
        for one in recipients
        if one.offset in layout.diagnostics
    }
    return ControlFile(
        *layout[:3],
        tuple(recipients),
        diagnostics,
        obsoletes=layout.obsoletes,
        damage=tuple(damage),
        verbose_log=layout.verbose_log,
    )


def line_in(data: bytes, offset: int) -> bytes:
    """The line at an offset, without its LF."""
    return data[offset : data.find(b"\n", offset)]


def parse_layout(data: bytes) -> FileLayout:
    """Find the fields of a control file. Raises Refused: it cannot be used: torn, no name, an
    unknown format."""
    return layout_of(split_fields(data))


def layout_of(runs: Iterable[tuple[int, list[bytes]]]) -> FileLayout:
    """The layout of a control file, whose fields are given as by `split_fields`. Raises Refused: it
    cannot be used: torn, no name, an unknown format."""
    recipients = array("I")
    notify_lines: dict[int, int] = {}
    diagnostics: dict[int, int] = {}
    subjects: list[tuple[int, bytes]] = []
    obsoletes: list[bytes] = []
    damage: list[str] = []
    last: dict[int, bytes] = {}
    is_report, size, before = False, 0, b""
    for start, fields in runs:
        letters = bytes([raw[0] for raw in fields])
        offsets = [*accumulate(map(len, fields), initial=start)]
        size = offsets[-1]
        recipients.extend(compress(offsets, letters.translate(_IS_RECIPIENT)))
        # An N line right after its recipient needs no note.
        field_letters = (before + letters).replace(b"rN", b"r.").replace(b"XN", b"X.")
        for match in _find_fields(field_letters):
            at = match.start() - len(before)
            if at < 0:
                continue
            letter, raw = letters[at], fields[at]
            if letter in _LAST_COUNTS:
                last[letter] = raw[2:-1]
            elif letter == _DIAGNOSTIC:
                number = _diagnosed(raw)
                if number is not None and _find(recipients, number) >= 0:
                    diagnostics[number] = offsets[at]
                elif len(damage) < MAX_DAMAGE:
                    damage.append(
                        f"diagnostic without an offset at offset {offsets[at]}"
                        if number is None
                        else f"diagnostic of offset {number}, no recipient there"
                    )
            elif letter == _NOTIFY:
                if index := bisect_left(recipients, offsets[at]):
                    notify_lines[recipients[index - 1]] = offsets[at]
            elif letter == _HEADERS:
                subjects.append((offsets[at], _find_subject(raw)))
            elif letter == _OBSOLETES:
                obsoletes.append(raw[2:-1])
            else:
                is_report = is_report or raw[2:-1].split(b" ")[0] == b"error"
        before = letters[-1:]
    name = last.get(_NAME, b"").strip()
    if not name:
        raise Refused("no i line with the name of the message file")
    return FileLayout(
        name,
        last.get(_LOG_ID, b""),
        b"" if is_report else last.get(_SENDER, b""),
        obsoletes=tuple(obsoletes),
        slots=_parse_format(last[_FORMAT]) if _FORMAT in last else None,
        recipients=recipients,
        subjects=tuple(subjects),
        notify_lines=notify_lines,
        diagnostics=diagnostics,
        damage=tuple(damage),
        size=size,
        verbose_log=last.get(_VERBOSE, b""),
    )


def _find_subject(block: bytes) -> bytes:
    at = block.lower().find(b"\nsubject:")
    if at < 0:
        return b""
    return block[at + len(b"\nsubject:") : block.find(b"\n", at + 1)].strip()


def _parse_format(text: bytes) -> int:
    """The bytes of the slots of a format line. Raises Refused: it is no number, or has unknown
    bits."""
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
    and no bytes at the end of the file. Raises Refused: it has an unknown tag, or no address."""
    raw = line_at(offset)
    if raw[1:2] not in _TAGS:
        raise Refused("recipient with an unknown tag")
    slots, alternative = layout.slots, b""
    if raw[0] == _ALTERNATIVE:
        # Its class takes the place of the slots.
        alternative, _, address = raw[2:].lstrip(b" ").partition(b" ")
        slots, head = 0, raw[1:2]
    elif slots is not None:
        head, address = raw[1 : 2 + slots], raw[2 + slots :]
    else:
        # The form of the man page: an optional PID right after the tag.
        address = raw[2:].lstrip(b"0123456789") if raw[1:2] == b"~" else raw[2:]
        head = raw[1 : len(raw) - len(address)]
    after = offset + len(raw) + 1
    notify = line_at(layout.notify_lines.get(offset, after) if layout.notify_lines else after)
    dsn = notify[2:] if notify[:1] == b"N" else b""
    subjects = layout.subjects
    # In nearly all files all recipients have the same headers.
    is_one = len(subjects) == 1 and offset < subjects[0][0]
    subject = subjects[0][1] if is_one else layout.subject_of(offset)
    return RecipientLine(
        offset, head, address, slots=slots or 0, alternative=alternative, dsn=dsn, subject=subject
    )


def _diagnosed(line: bytes) -> int | None:
    """The offset of the recipient in a d line; None if it has none."""
    number = line[2:].partition(b"\t")[0].partition(b":")[0].rstrip(_LF)
    return int(number) if number.isdigit() and len(number) <= 12 else None


def parse_diagnostic(line: bytes) -> Diagnostic:
    """Parse a d line without its LF."""
    place, _, notary_and_message = line[2:].partition(b"\t")
    notary, _, message = notary_and_message.partition(b"\t")
    numbers = place.split(b":")
    at = numbers[-1] if len(numbers) == 5 else b""
    when = float(at) if at.isdigit() and len(at) < 12 else 0.0
    return Diagnostic(when, tuple(notary.split(b"\1")), message)
