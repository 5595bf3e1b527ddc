"""The parts of one message of Exim: its listing line, header file, message log, body, and the retry
records of its domains."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from engine.formats.exim import lines
from engine.formats.exim.lines import RetryRecord
from engine.formats.exim.programs import TRASH, Exim
from engine.model import Part, State, Task
from engine.programs.mail_log import run_date
from engine.store import MAX_PART_BYTES, Gone, Unavailable
from engine.text.safe import safe_line
from engine.text.times import format_time

MAX_DOMAINS = 5
"""Domains of a message for which retry records are asked."""

HEADERS, RETRY = "headers", "retry"
PARTS = {HEADERS: "-Mvh", "envelope": "-Mvh", "log": "-Mvl", "body": "-Mvb"}
"""The option of each part that Exim prints. The header file has the envelope before the headers."""
_NOT_THERE = ("Failed to open", "Spool data file")

_is_domain = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}").fullmatch


def mail_parts(exim: Exim, task: Task) -> Iterator[Part]:
    """The parts of a message; none is read."""
    queue = (TRASH,) if task.state is State.TRASH else ()
    base = " ".join((*exim.words, *queue))
    facts = tuple((name, value) for name, value in task.extra.items())
    yield Part("message", f"{exim.spool}: {task.id}", task.bytes, facts)
    for name, option in PARTS.items():
        yield Part(name, f"{base} {option} {task.id}")
    if domains := domains_of(task):
        yield Part(RETRY, f"exinext {' '.join(domains)}")


def read_part(exim: Exim, task: Task, name: str) -> bytes:
    """The text of a part, at most its first `MAX_PART_BYTES`. That of the message itself is the
    same in each state.

    Raises:
        Gone: the message, or the part, is not there any more.
    """
    if name in ("", "message"):
        return _describe(task)
    if name == RETRY:
        return _read_retries(exim, task)
    if name not in PARTS:
        raise Gone(f"{task.id}: no part {name!r}")
    queue = (TRASH,) if task.state is State.TRASH else ()
    data = _read_start(exim, (*exim.words, *queue, PARTS[name], task.id))
    if data.startswith(tuple(map(str.encode, _NOT_THERE))):
        raise Gone(f"{task.id}: {safe_line(data.decode('utf-8', 'replace').strip())}")
    if data.strip() == b"Permission denied":
        raise Unavailable(exim.refusal or "Permission denied")
    parsed = lines.parse_header_file(data) if name == HEADERS else None
    return data if parsed is None else parsed.headers.encode("utf-8", "replace")


def _read_start(exim: Exim, argv: tuple[str, ...]) -> bytes:
    program, size, kept = exim.prefix.start(argv), 0, list[bytes]()
    try:
        for line in program.lines():
            kept.append(line)
            size += len(line) + 1
            if size > MAX_PART_BYTES:
                break
        else:
            assert program.end is not None
            if why := exim.prefix.why_failed(program.end):
                raise Unavailable(why)
    finally:
        program.close()
    return b"".join(line + b"\n" for line in kept)[:MAX_PART_BYTES]


def _describe(task: Task) -> bytes:
    to = "".join(f"to: {address}\n" for address in task.recipients)
    text = f"id: {task.id}\nfrom: {task.sender}\n{to}"
    return text.encode("utf-8", "replace")


def domains_of(task: Task) -> list[str]:
    """The first domains of its open recipients that may be words of a command."""
    domains = (one.rpartition("@")[2].lower() for one in task.recipients)
    return [*dict.fromkeys(one for one in domains if _is_domain(one))][:MAX_DOMAINS]


def ask_retries(exim: Exim, domain: str) -> str:
    """What `exinext` prints for a domain."""
    program = posixpath.join(posixpath.dirname(exim.words[0]), "exinext")
    out = exim.other(program, *exim.words[1:], domain)
    return b"\n".join(out).decode("utf-8", "replace") or f"no answer of {program}"


def zone_there(exim: Exim) -> float | None:
    """Seconds by which the times that its programs print are ahead of UTC; None: unknown."""
    return run_date(exim.prefix, "date", "+%z")


def describe_retry(record: RetryRecord, ahead: float | None) -> str:
    """The next try of a record, with what it is for and how it is known; `ahead` see
    `zone_there`."""
    when, text = record.next_try_at, f"{record.next_try} local time there"
    if when is not None and ahead is not None:
        text = format_time(when - ahead)
    return safe_line(f"{text} for {record.what} (retry database)")


def _read_retries(exim: Exim, task: Task) -> bytes:
    """What the retry database has for each domain, with the next tries before it."""
    texts = [ask_retries(exim, domain) for domain in domains_of(task)]
    found = [one for text in texts for one in lines.parse_retries(text) if one.is_for(task)]
    ahead = zone_there(exim)
    tries = [f"next try {describe_retry(one, ahead)}" for one in found]
    return "\n".join((*tries, *texts)).encode("utf-8", "replace")
