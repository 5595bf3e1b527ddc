"""Parse message control files: lines with a field letter, a tag byte and data; byte offsets.

The router writes a file once. After that, scheduler and transport agents only overwrite tags and
PID slots in place, and append diagnostics, so each offset is valid as long as the file exists. The
lines of a file in their order are all its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

_BLOCKS = b"mM"
_KNOWN_TAGS = b" ~+-"
_has_groups = re.compile(rb'["()\\]').search


class ControlLine(NamedTuple):
    """One field: a line with its LF, or a block of headers with the empty line that ends it."""

    offset: int
    """Bytes from the start of the file."""
    raw: bytes

    @property
    def letter(self) -> bytes:
        """The field letter."""
        return self.raw[:1]

    @property
    def tag(self) -> bytes:
        """The tag byte."""
        return self.raw[1:2]

    @property
    def value(self) -> bytes:
        """The data after the tag, without the LF."""
        return self.raw[2:-1]


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
    quad: Quad
    slots: int
    """Bytes of the PID slot and the delay slot; 0 if the format has no PID slot."""
    alternative: bytes = b""
    """Class of mutually exclusive recipients (X lines); empty for all others."""
    dsn: bytes = b""
    """Parameters of its delivery status notification (N line)."""
    subject: bytes = b""
    """Subject in the headers of its group."""


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


def split_lines(data: bytes) -> Iterator[ControlLine]:
    """Yield the fields in their order; together they are all bytes of the file.

    Raises:
        Refused: the file is torn: the last line has no LF, or a block has no end.
    """
    at, size = 0, len(data)
    while at < size:
        end = data.find(b"\n", at)
        if end >= 0 and data[at] in _BLOCKS:
            # A block of no headers is its own line and the empty one.
            end = data.find(b"\n\n", end) + 1 or -1
        if end < 0:
            what = "a block without an end" if data[at] in _BLOCKS else "a line without an end"
            raise Refused(f"torn: {what} at offset {at}")
        yield ControlLine(at, data[at : end + 1])
        at = end + 1


def parse_control_file(data: bytes) -> ControlFile:
    """Parse a control file.

    Raises:
        Refused: it cannot be used: torn, no name, an unknown format.
    """
    reader = _FileReader()
    for line in split_lines(data):
        reader.read(line)
    if not reader.name:
        raise Refused("no i line with the name of the message file")
    recipients = tuple(reader.recipients)
    known = {one.offset for one in recipients}
    strange = sorted(reader.diagnostics.keys() - known)
    damage = [*reader.damage, *(f"diagnostic of offset {at}, no recipient there" for at in strange)]
    found = {at: one for at, one in reader.diagnostics.items() if at in known}
    return ControlFile(
        reader.name,
        reader.log_id,
        b"" if reader.is_report else reader.sender,
        recipients,
        found,
        tuple(reader.obsoletes),
        tuple(damage),
    )


class _FileReader:
    """The fields of a file as far as they are read."""

    def __init__(self) -> None:
        self.name = self.log_id = self.sender = b""
        self.slots = 0
        self.has_format = self.is_report = False
        self.recipients: list[RecipientLine] = []
        self.diagnostics: dict[int, Diagnostic] = {}
        self.obsoletes: list[bytes] = []
        self.damage: list[str] = []
        self._group = 0
        """Index of the first recipient whose headers have not come yet."""

    def read(self, line: ControlLine) -> None:
        """Take in one line; letters without a meaning here are skipped."""
        letter = line.letter
        try:
            if letter in (b"r", b"X"):
                self.recipients.append(self._parse_recipient(line))
            elif letter == b"N" and self.recipients:
                self.recipients[-1] = self.recipients[-1]._replace(dsn=line.value)
            elif letter == b"m":
                self._add_headers(line.raw)
            elif letter == b"d":
                at, diagnostic = parse_diagnostic(line.value)
                self.diagnostics[at] = diagnostic
            elif letter == b"s":
                self.is_report = self.is_report or line.value.split(b" ")[0] == b"error"
        except Refused as refusal:
            self.damage.append(f"{refusal} at offset {line.offset}")
        if letter == b"@":
            self._set_format(line.value)
        elif letter == b"i":
            self.name = line.value.strip()
        elif letter == b"l":
            self.log_id = line.value
        elif letter == b"e":
            self.sender = line.value  # the last one counts
        elif letter == b"x":
            self.obsoletes.append(line.value)

    def _set_format(self, text: bytes) -> None:
        try:
            bits = int(text, 16)
        except ValueError:
            raise Refused("the format line is no hexadecimal number") from None
        if bits & ~KNOWN_FORMAT:
            raise Refused(f"unknown format bits {bits & ~KNOWN_FORMAT:#x}")
        self.has_format = True
        if bits & PID_SLOTS:
            self.slots = PID_SLOT_BYTES + DELAY_SLOT_BYTES * bool(bits & DELAY_SLOTS)

    def _parse_recipient(self, line: ControlLine) -> RecipientLine:
        if line.tag not in _KNOWN_TAGS or not line.tag:
            raise Refused("recipient with an unknown tag")
        slots, alternative, raw = self.slots, b"", line.raw[:-1]
        if line.letter == b"X":
            # Its class takes the place of the slots.
            alternative, _, rest = raw[2:].lstrip(b" ").partition(b" ")
            slots, head = 0, raw[1:2]
        elif self.has_format:
            head, rest = raw[1 : 2 + slots], raw[2 + slots :]
        else:
            # The form of the man page: an optional PID right after the tag.
            rest = raw[2:].lstrip(b"0123456789") if line.tag == b"~" else raw[2:]
            head = raw[1 : len(raw) - len(rest)]
        return RecipientLine(line.offset, head, parse_quad(rest), slots, alternative)

    def _add_headers(self, block: bytes) -> None:
        at = block.lower().find(b"\nsubject:")
        if at >= 0:
            end = block.find(b"\n", at + 1)
            subject = block[at + len(b"\nsubject:") : end].strip()
            self.recipients[self._group :] = [
                one._replace(subject=subject) for one in self.recipients[self._group :]
            ]
        self._group = len(self.recipients)


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


def parse_diagnostic(text: bytes) -> tuple[int, Diagnostic]:
    """Parse a d line; return the offset of its recipient too.

    Raises:
        Refused: it has no such offset.
    """
    place, _, rest = text.partition(b"\t")
    notary, _, message = rest.partition(b"\t")
    numbers = place.split(b":")
    if not numbers[0].isdigit() or len(numbers[0]) > 12:
        raise Refused("diagnostic without an offset")
    at = numbers[-1] if len(numbers) == 5 else b""
    when = float(at) if at.isdigit() and len(at) < 12 else 0.0
    return int(numbers[0]), Diagnostic(when, tuple(notary.split(b"\1")), message)
