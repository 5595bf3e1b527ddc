"""Lines of Exim's main log: arrival `<=`, delivery `=>`, `->`, `>>`, deferral `==`, failure `**`,
and what was done with a message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engine.programs.mail_log import (
    JOURNAL,
    MAIL_LOGS,
    MailEvent,
    MailEventKind,
    MailLog,
    is_device,
)
from engine.programs.prefix import HERE, Prefix

ID = r"[0-9A-Za-z]{6}-(?:[0-9A-Za-z]{6}-[0-9A-Za-z]{2}|[0-9A-Za-z]{11}-[0-9A-Za-z]{4})"
"""The id of a message, until 4.96 and from 4.97 on."""

UNTRIED = "retry time not reached"

is_id = re.compile(ID, re.ASCII).fullmatch

_SYSLOG = re.compile(
    r"\S+ exim[\w.-]*(?:\[\d+\])?: (?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* )?", re.ASCII
)
_PID = re.compile(r"\[\d+\] ")
_LINE = re.compile(rf"({ID}) (.*)", re.ASCII | re.DOTALL)

_FACTS = (
    rb"\n(?:[^\n]{1,60}\]: )?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^ \n]* (?:[+-]\d{4} )?)?"
    rb"(?:\[\d+\] )?(?P<id>" + ID.encode() + rb") (?:(?P<reason>==|\*\*) |(?P<account><=) "
    rb"|(?P<end>Completed$|Completed\n|removed by ))"
)

_SENDER = re.compile(r'(?:"(?:[^"\\]|\\.)*"\S*|\S+)')
_RECIPIENT = re.compile(r"(?P<address>.*?)(?: <[^>]*>)?(?=: | [A-Z]{1,4}=|$)", re.DOTALL)
"""The address of an attempt: a quoted local part with blanks is printed without its quotes."""
_FIELD = re.compile(
    r' ?([A-Z]{1,4})=("(?:[^"\\]|\\.)*"|\([^)]*\)(?: \[\S+\])?\S*'
    r"|\S+(?: \([^)]*\))?(?: \[[^\]]*\]\S*)?)"
)
_DEFER = re.compile(r"defer \((?P<error>-?\d+)\)(?: |: )?")

_ATTEMPTS = {
    "=>": MailEventKind.DELIVERED,
    "->": MailEventKind.DELIVERED,
    ">>": MailEventKind.DELIVERED,
    "*>": MailEventKind.NOTED,
    "==": MailEventKind.DEFERRED,
    "**": MailEventKind.FAILED,
}
"""The flags of delivery lines; `*>` only says what -N would have done."""

_DONE: Sequence[tuple[str, MailEventKind]] = (
    ("Completed", MailEventKind.REMOVED),
    ("removed by ", MailEventKind.REMOVED),
    ("cancelled by timeout_frozen_after", MailEventKind.EXPIRED),
    ("cancelled by ", MailEventKind.EXPIRED),
    ("Frozen ", MailEventKind.HELD),
    ("frozen by ", MailEventKind.HELD),
    ("unfrozen by ", MailEventKind.RELEASED),
    ("Unfrozen by ", MailEventKind.RELEASED),
)
"""Begins of the lines about a whole message."""


def mail_log(main_log: str, prefix: Prefix = HERE, *, is_syslog: bool = False) -> MailLog:
    """The log of one Exim; `main_log` is the path of its main log, "" if it only uses syslog."""
    paths = (main_log,) if main_log else ()
    return MailLog(
        paths=(*paths, *(MAIL_LOGS if is_syslog else ())),
        parse=parse,
        is_id=lambda word: is_id(word) is not None,
        facts=re.compile(_FACTS),
        untried=UNTRIED.encode(),
        prefix=prefix,
        journal=JOURNAL if is_syslog else (),
    )


def main_log_path(log_file_path: str) -> tuple[str, bool]:
    """The path of the main log, "" for none, and whether syslog has its lines, from the value of
    `log_file_path`: parts with `:`, `%s` for the name of the log. One with a date in its name
    (`%D`, `%M`) is found among the rotated files of the path without."""
    parts = [part.strip() for part in log_file_path.split(":")]
    named = [re.sub(r"[.-]?%[DM]", "", part.replace("%s", "main")) for part in parts]
    files = (part for part in named if part.startswith("/") and not is_device(part))
    path = next(files, "")
    return path, "syslog" in parts


def parse(text: str) -> MailEvent | None:
    """The event of a line behind its time; None if it is about no message."""
    text = _PID.sub("", _SYSLOG.sub("", text, count=1), count=1)
    match = _LINE.match(text)
    if match is None:
        return _parse_refusal(text)
    id, rest = match[1], match[2]
    flag, _, after = rest.partition(" ")
    if flag == "<=":
        return _parse_arrival(id, after)
    if flag in _ATTEMPTS:
        return _parse_attempt(id, _ATTEMPTS[flag], after)
    for begin, what in _DONE:
        if rest.startswith(begin):
            return MailEvent(None, id, what, text=rest, is_end=what is MailEventKind.REMOVED)
    fields = _fields(rest)[0] if rest.startswith("H=") else {}
    if fields and " rejected " in rest:
        return _parse_refusal(rest, id)
    return MailEvent(None, id, MailEventKind.NOTED, text=rest, relay=_host(fields))


def _fields(text: str) -> tuple[dict[str, str], str]:
    """The `K=value` fields at the begin of a text, the first of each name, and the rest."""
    fields: dict[str, str] = {}
    at = 0
    while (match := _FIELD.match(text, at)) is not None:
        fields.setdefault(match[1], match[2].strip('"') if match[2][:1] == '"' else match[2])
        at = match.end()
    return fields, text[at:]


def _parse_arrival(id: str, text: str) -> MailEvent:
    """`sender H=(helo) [IP] P=esmtpa A=plain:USER S=252 id=MESSAGE-ID from <sender> for a b`, or
    `<> R=OLDID U=Debian-exim P=local`: the bounce of another message."""
    match = _SENDER.match(text)
    sender = match[0] if match else ""
    rest = text[match.end() :] if match else text
    fields, _ = _fields(rest)
    other = fields.get("R", "")
    login = fields.get("A", "").partition(":")[2]
    return MailEvent(
        None,
        id,
        MailEventKind.ARRIVED,
        address=sender,
        text=rest,
        account=login or fields.get("U", ""),
        client=_host(fields),
        other=other if is_id(other) else "",
    )


def _parse_attempt(id: str, what: MailEventKind, text: str) -> MailEvent:
    match = _RECIPIENT.match(text)
    address = match["address"] if match else ""
    fields, rest = _fields(text[match.end() :] if match else text)
    rest = rest.lstrip(": ")
    if (deferred := _DEFER.match(rest)) is not None:
        more, reason = _fields(rest[deferred.end() :])
        fields |= more
        rest = reason.lstrip(": ") or rest
    if what is MailEventKind.DEFERRED and rest.startswith(UNTRIED):
        what = MailEventKind.SUSPENDED
    return MailEvent(
        None,
        id,
        what,
        address=address,
        text=fields.get("C", "") or rest,
        relay=_host(fields) or fields.get("T", ""),
    )


def _host(fields: Mapping[str, str]) -> str:
    """The other host; `*` behind it only says that its connection was used before."""
    return fields.get("H", "").rstrip(":*")


_REFUSED = re.compile(r"rejected (?:RCPT|MAIL|after DATA|during)\b")
_FOR = re.compile(r"RCPT <([^>]*)>")
_FROM = re.compile(r"\bF=<([^>]*)>")


def _parse_refusal(text: str, id: str = "") -> MailEvent | None:
    """`H=(helo) [IP] F=<a> rejected RCPT <b>: reason`."""
    if not text.startswith("H=") or _REFUSED.search(text) is None:
        return None
    fields, rest = _fields(text)
    named = _FOR.search(rest) or _FROM.search(text)
    return MailEvent(
        None,
        id,
        MailEventKind.REFUSED,
        address=named[1] if named else "",
        text=rest.strip(),
        client=_host(fields),
    )
