"""Compose delivery reports: multipart/report with text, delivery status and message (RFC 3464).
Give them to the router, and mark what is reported with `+` on its d line.

A form below MAILSHARE/forms has the words: lines `HDR header`, `ADR header` (a further recipient)
and `SUB Subject: text`, then the text. The mail is staged with the lines that it reports; after a
kill the tags of those lines decide whether it is sent (`submit.Router`), so each diagnostic is
reported once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import BinaryIO
from zlib import crc32

from engine.formats.zmailer import diagnostics, submit
from engine.formats.zmailer.diagnostics import ACTIONS, Unreported, dsn_parameter
from engine.formats.zmailer.spool import marks
from engine.formats.zmailer.spool.control_file import ControlFile
from engine.formats.zmailer.spool.folders import OpenControl, PostofficeFolders
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.formats.zmailer.spool.names import message_number, spool_id
from engine.formats.zmailer.spool.tasks import text
from engine.formats.zmailer.submit import POSTMAN, Router
from engine.mail import header
from engine.mail.message.bounce import ascii_address
from engine.system import files
from engine.text.safe import safe_line
from engine.values import NamedTuple

MAX_ENVELOPE_BYTES = 1 << 18
"""Bytes at the start of a message file in which envelope and headers are looked for."""

_MAX_HEADER_BYTES = 1 << 16

_SUBJECT_WORDS = dict(
    zip(ACTIONS, ("FAILED", "DELAYED", "RELAYED-OK", "DELIVERED-OK", "EXPANDED-OK"), strict=True)
)
_TEXT_WORDS = {
    "failed": "FAILED:",
    "delayed": "DELAYED (still in queue):",
    "relayed": "RELAYED (into system not supporting DSN facility):",
    "delivered": "DELIVERED (successfully):",
    "expanded": "EXPANDED (to some list or alias):",
}
_PREAMBLE = b"This is a MULTIPART/REPORT structured message as defined at RFC 3464.\n\n"
_DEFAULT_TEXT = b"This is a report about the delivery of your mail.\n\n"

_is_header = re.compile(rb"[!-9;-~]+:").match


class ReportForm(NamedTuple):
    """The words of a report."""

    headers: tuple[bytes, ...] = ()
    copies: tuple[bytes, ...] = ()
    """ADR lines: headers with further recipients."""
    subject: bytes = b"Delivery report"
    body: bytes = _DEFAULT_TEXT


def parse_form(data: bytes) -> ReportForm:
    """Parse a form; what is missing is that of the default."""
    form = ReportForm(body=b"")
    for line in data.splitlines():
        word, value = line[:3], line[4:].strip()
        if word == b"HDR":
            form = form._replace(headers=(*form.headers, value))
        elif word == b"ADR":
            form = form._replace(copies=(*form.copies, value))
        elif word == b"SUB":
            form = form._replace(subject=value.partition(b":")[2].strip() or value)
        else:
            form = form._replace(body=form.body + line + b"\n")
    return form if form.body.strip() else form._replace(body=_DEFAULT_TEXT)


class ReportSettings(NamedTuple):
    """How this scheduler reports."""

    host: str
    """Its full name."""
    returns_body: bool = True
    """True if a report of a failure has the whole message, unless the sender wants only its headers
    (option -n turns this off)."""
    keeps_double_faults: bool = False
    """True if a report about a report that has no recipient is kept in postman/ (PARAM
    store-error-on-error)."""


class ReportedMessage(NamedTuple):
    """The message of a report."""

    name: str
    """Of its control file."""
    data: bytes
    """All bytes of the control file."""
    sender: bytes
    """Address for errors; empty for a report."""
    modified_ns: int
    """Time of its message file, nanoseconds since the epoch."""
    start: bytes
    """The start of the message file, `MAX_ENVELOPE_BYTES` of it."""

    @property
    def spool_id(self) -> str:
        """Its name in logs."""
        return spool_id(message_number(self.name) or 0, self.modified_ns)


class DeliveryReport(NamedTuple):
    """A report to submit."""

    head: bytes
    """The envelope, and all before the body of the message."""
    body_offset: int | None
    """Where the body of the message file starts, to be copied; None: only its headers are sent."""
    tail: bytes
    folder: str
    suffix: str
    lines: tuple[int, ...]
    """Offsets of all d lines that are now reported: their tag becomes `+`."""
    recipients: tuple[bytes, ...]

    def chunks(self, message: BinaryIO) -> Iterator[bytes]:
        """Yield the bytes of the report, with the body of the open message file."""
        yield self.head
        if self.body_offset is not None:
            message.seek(self.body_offset)
            yield from submit.copy_file(message)
        yield self.tail


class _Fields(NamedTuple):
    """What a report needs of a control file besides its recipients."""

    body: int | None
    envelope_id: bytes
    returns: bytes
    headers: bytes


def compose_report(
    message: ReportedMessage,
    rows: Sequence[Unreported],
    form: ReportForm,
    settings: ReportSettings,
    now: float,
) -> DeliveryReport | None:
    """Compose the report of some diagnostics of a message; None if nothing is to be reported.

    A report about a report goes only to the recipients of the form; without any it is kept or
    dropped."""
    is_double = not message.sender
    reported = [one for one in rows if is_double or diagnostics.is_wanted(one)]
    copies = [address for line in form.copies if (address := _address_in(line))]
    if not reported or (is_double and not copies and not settings.keeps_double_faults):
        return None
    sender = message.sender
    if sender[:1] in (b"|", b"/") and not (b"@" in sender and b"=" in sender):
        sender = b"postmaster"  # a program or a file is no address of a sender
    to = [*([] if is_double else [sender]), *copies]
    counts = Counter(one.action for one in reported)
    fields = _read_fields(message, reported[0].recipient.offset)
    has_body = "failed" in counts and (
        is_double or fields.returns == b"FULL" or (settings.returns_body and not fields.returns)
    )
    # Of one second there may be a report for each of several recipients.
    rows_sum = crc32(repr([(one.recipient.offset, one.action) for one in reported]).encode())
    ident = f"{message.spool_id}.{int(now)}.{rows_sum:x}"
    boundary = f"=_{ident}"
    # A line of the message that ends the part before its end would show it cut.
    while boundary.encode() in message.start:
        boundary += "_"
    status = _delivery_status(message, fields, reported, settings)
    message_headers = fields.headers if has_body else fields.headers[:_MAX_HEADER_BYTES]
    kind = "message/rfc822" if has_body else "text/rfc822-headers"
    parts = [
        _envelope(to),
        _headers(
            form,
            sender,
            ident,
            boundary=boundary,
            counts=counts,
            settings=settings,
            now=now,
            is_double=is_double,
        ),
        _PREAMBLE,
        _part(boundary, "text/plain; charset=utf-8", form.body + _text(reported)),
        _part(boundary, "message/delivery-status", status),
        _part(boundary, kind, message_headers + b"\n" * has_body),
    ]
    is_kept = not to
    return DeliveryReport(
        b"".join(parts),
        fields.body if has_body else None,
        f"\n--{boundary}--\n".encode(),
        folder=submit.POSTMAN if is_kept else submit.ROUTER,
        suffix=submit.ERROR_ON_ERROR if is_kept else "",
        lines=tuple(one.line for one in rows if one.line >= 0),
        recipients=tuple(to),
    )


# ---- the message


def _read_fields(message: ReportedMessage, recipient: int) -> _Fields:
    """Read the parts of a control file that reports need; headers are those of the recipient."""
    start, data = message.start, message.data
    values_by_letter = {letter: _value(data, letter) for letter in (b"o", b"n", b"R")}
    at = data.find(b"\nm\n", recipient)
    headers = data[at + 3 : data.find(b"\n\n", at + 2) + 1] if at >= 0 else b""
    begin = envelope_end(start)
    end = start.find(b"\n\n", begin)
    body = int(values_by_letter[b"o"]) if values_by_letter[b"o"].isdigit() else None
    if body is None and end >= 0:
        body = end + 2
    headers = headers or start[begin : len(start) if end < 0 else end + 1]
    # n has the parameters of MAIL as a line of its own, or only the value.
    envid = dsn_parameter(values_by_letter[b"n"], "ENVID") or values_by_letter[b"n"]
    returns = (dsn_parameter(values_by_letter[b"R"], "RET") or values_by_letter[b"R"]).upper()
    return _Fields(body, envid, returns, headers)


def _value(data: bytes, letter: bytes) -> bytes:
    """The data of the first field with a letter; no header begins like that."""
    at = data.find(b"\n" + letter + b" ")
    return b"" if at < 0 else data[at + 3 : data.find(b"\n", at + 1)].strip()


def envelope_end(start: bytes) -> int:
    """Where the envelope of a message file ends: at the first line that is a header."""
    at = 0
    for line in start.splitlines(keepends=True):
        if _is_header(line):
            break
        at += len(line)
    return at


# ---- the report


def _envelope(to: Sequence[bytes]) -> bytes:
    lines = [b"channel error", b"errormsg"]
    for address in to:
        lines += [b"todsn ORCPT=rfc822;" + _xtext(address), b"to <%b>" % address]
    return b"".join(line + b"\n" for line in [*lines, b"env-end"])


def _xtext(address: bytes) -> bytes:
    """An address as xtext (RFC 3461, 4)."""
    plain = (bytes((c,)) if 33 <= c <= 126 and c not in b"+=" else b"+%02X" % c for c in address)
    return b"".join(plain)


def _from_xtext(text: bytes) -> bytes:
    return re.sub(rb"\+([0-9A-Fa-f]{2})", lambda hit: bytes((int(hit[1], 16),)), text)


def _headers(
    form: ReportForm,
    sender: bytes,
    ident: str,
    boundary: str,
    counts: Counter[str],
    settings: ReportSettings,
    now: float,
    *,
    is_double: bool,
) -> bytes:
    to = "error-trapped-source:;" if is_double else text(sender)
    form_lines = [line.decode("utf-8", "replace") for line in (*form.headers, *form.copies)]
    has = {line.partition(":")[0].strip().lower() for line in form_lines}
    suffix = ",".join(f"{word}({counts[a]})" for a, word in _SUBJECT_WORDS.items() if counts[a])
    subject = f"{'Double-fault: ' * is_double}{text(form.subject)} [{suffix}]"
    defaults = {
        "From": f"Mail Delivery System <postmaster@{settings.host}>",
        "To": to,
        "Date": format_datetime(datetime.fromtimestamp(int(now), UTC)),
        "Message-ID": f"<{ident}.report@{settings.host}>",
        "Auto-Submitted": "auto-replied",
    }
    lines = [_field(name, one) for name, one in defaults.items() if name.lower() not in has]
    for line in form_lines:
        name, _, value = line.partition(":")
        if _is_header(line.encode()):
            lines.append(_field(name, value.strip()))
    lines.append("Subject: " + header.fold_header("Subject", header.header_words(subject)))
    lines.append("MIME-Version: 1.0")
    lines.append("Content-Type: multipart/report; report-type=delivery-status;")
    lines.append(f'\tboundary="{boundary}"')
    return "".join(f"{line}\n" for line in [*lines, ""]).encode("ascii", "replace")


def _field(name: str, value: str) -> str:
    clean = header.clean_text(value)
    return f"{name}: {header.fold_header(name, clean.split(' '))}"


def _part(boundary: str, kind: str, content: bytes) -> bytes:
    head = f"\n--{boundary}\nContent-Type: {kind}\n"
    if not content.isascii() or kind == "message/rfc822":
        head += "Content-Transfer-Encoding: 8bit\n"
    return f"{head}\n".encode() + content


def _text(rows: Sequence[Unreported]) -> bytes:
    """The diagnostics for people: for each recipient the lines of its message."""
    lines = []
    for one in rows:
        parts = [part for part in one.diagnostic.message.split(b"\r") if part.strip()]
        words = [safe_line(part.decode("utf-8", "replace")) for part in parts]
        lines.append(_TEXT_WORDS[one.action])
        lines.append(f"  <{text(one.address)}>: {words[0] if len(words) == 1 else '...'}")
        lines += [f"        {word}" for word in (words if len(words) > 1 else ())]
    return "".join(f"{line}\n" for line in lines).encode()


def _delivery_status(
    message: ReportedMessage, fields: _Fields, rows: Sequence[Unreported], settings: ReportSettings
) -> bytes:
    """The part for programs: fields of the message, then of each recipient (RFC 3464, 2)."""
    arrived = datetime.fromtimestamp(message.modified_ns // 10**9, UTC)
    blocks = [
        {
            "Original-Envelope-Id": text(_from_xtext(fields.envelope_id)),
            "Reporting-MTA": f"dns; {settings.host}",
            "Arrival-Date": format_datetime(arrived),
            "X-Local-Spool-ID": message.spool_id,
        }
    ]
    for one in rows:
        notary = [text(field).strip() for field in one.diagnostic.notary]
        notary += [""] * (6 - len(notary))
        kind, _, address = dsn_parameter(one.recipient.dsn, "ORCPT").partition(b";")
        original = f"{text(kind)};{text(_from_xtext(address))}" if address else ""
        blocks.append(
            {
                "Original-Recipient": original,
                "Final-Recipient": _address_field(text(one.address)),
                "Action": one.action,
                "Status": one.status,
                "Remote-MTA": _typed(notary[4], "dns"),
                "Diagnostic-Code": _typed(notary[3], "smtp"),
                "Last-Attempt-Date": _date(one.diagnostic.time),
                "X-ZTAID": notary[5],
            }
        )
    lines = ["".join(f"{_field(n, v)}\n" for n, v in block.items() if v) for block in blocks]
    return "\n".join(lines).encode("ascii", "backslashreplace")


def _address_field(address: str) -> str:
    """A final recipient with its type; what is no mail address, such as a user, is local."""
    is_mail = "@" in address and ":" not in address.partition("@")[0]
    return ascii_address(address) if is_mail else f"x-local; {address}"


def _typed(value: str, kind: str) -> str:
    """A value with its type in front, as RFC 3464 wants it."""
    return value if not value or re.match(r"[A-Za-z0-9-]+ *;", value) else f"{kind}; {value}"


def _date(moment: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(moment), UTC)) if moment else ""


def _address_in(line: bytes) -> bytes:
    """The address of a header such as `Cc: The Postoffice <postoffice>`."""
    value = line.partition(b":")[2].strip()
    match = re.search(rb"<([^<>]*)>", value)
    return re.sub(rb"[\s<>]", b"", match[1] if match else value)


class SenderReports:
    """Writes the reports of one spool."""

    def __init__(
        self,
        folders: PostofficeFolders,
        settings: ReportSettings,
        form: Callable[[str], ReportForm],
        form_name: Callable[[Unreported], str],
        log: Callable[[str], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`form` reads the form with a name, when a report is made; `form_name` gives that for the
        first diagnostic of the report; `log` gets the lines for syslog, `note` those for the log
        of the scheduler."""
        self._folders, self._settings, self._log = folders, settings, log
        self._note = note
        self._form, self._form_name = form, form_name
        self._router = Router(folders.fd)

    def report(
        self, opened: OpenControl, data: bytes, control: ControlFile, modified_ns: int, now: float
    ) -> None:
        """Report what no report has yet; durable on return. `opened` has the write lock,
        `modified_ns` is the time of the message file. Raises Unavailable: the mail cannot be
        written or sent now; Refused: there is no message file; OSError: it cannot be read now, or
        the lines cannot be marked."""
        rows = list(diagnostics.find_unreported(data, control.recipients))
        if not rows:
            return
        with self._folders.open_message(opened.name) as message:
            start = message.read(MAX_ENVELOPE_BYTES)
            facts = ReportedMessage(opened.name, data, control.sender, modified_ns, start)
            name = self._form_name(rows[0])
            report = compose_report(facts, rows, self._form(name), self._settings, now)
            if report is None:
                self._log(f"Nothing to report, ignorecount: {len(rows)}")
                if not facts.sender:
                    self._note(f"{opened.name}: a report could not be delivered, and is dropped")
                return
            lines = tuple(
                LineChange(at, diagnostics.UNREPORTED, diagnostics.REPORTED) for at in report.lines
            )
            commit = Commit(opened.name, lines, len(data))
            chunks = report.chunks(message)
            if report.folder == POSTMAN:
                self._router.submit(chunks, report.folder, report.suffix)
                _mark(opened.fd, lines)
            else:
                with self._router.stage(commit, chunks) as send:
                    _mark(opened.fd, lines)
                    send()
        self._log(f"Created '{name}' report on spoolid: {facts.spool_id}")


def _mark(fd: int, lines: tuple[LineChange, ...]) -> None:
    for one in lines:
        marks.write_mark(fd, one.offset, one.after)
    files.fsync(fd)
