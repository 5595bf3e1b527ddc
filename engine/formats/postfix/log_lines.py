"""Lines of Postfix's log: arrival (`client=`, `uid=`), attempts (`status=`), reports, hold,
release, requeue, removal, refusal. Two instances in one log are told apart by `syslog_name`."""

from __future__ import annotations

import re
from functools import partial

from engine.programs.mail_log import (
    JOURNAL,
    MAIL_LOGS,
    MailEvent,
    MailEventKind,
    MailLog,
    is_device,
)
from engine.programs.prefix import HERE, Prefix

is_id = re.compile(
    r"[0-9A-F]{6,16}|[0-9B-DF-HJ-NP-TV-Zb-df-hj-np-tv-z]{10,}z[0-9B-DF-HJ-NP-TV-Zb-df-hj-np-tv-z]+"
).fullmatch
"""Short ids are hexadecimal; long ones are in base 52 with `z` between time and inode."""

_FACTS = (
    rb"\n[^\n]{1,120}?\]: (?P<id>[0-9A-Za-z]{6,20}): "
    rb"(?:to=<[^\n]{1,2000}? status=(?P<reason>deferred) "
    rb"|(?P<account>uid=|client=[^\n]{1,400}? sasl_username=)|(?P<end>removed\r?(?:$|\n)))"
)

NEW_LINES = re.compile(
    rb"\n[^\n]{1,120}?\]: (?P<id>[0-9A-Za-z]{6,20}): "
    rb"(?:(?P<end>removed\r?(?:$|\n))|to=<[^\n]{1,2000}? status=(?P<reason>deferred) "
    rb"|(?P<other>from=<[^\n]{0,2000}? \(queue active\)|placed on hold|released from hold))"
)
"""As `MailLog.facts`, but `other` is in a line of a message whose file is complete. The one with
`client=` is not: postcat(1) reads such a file again and again, without end."""

_PROGRAM = re.compile(r"\S+ (?P<program>[^\s\[]+)\[\d+\]: (?P<text>.*)", re.ASCII | re.DOTALL)
_OF_MAIL = re.compile(r"(?P<id>[0-9A-Za-z]{6,20}): (?P<text>.*)", re.ASCII | re.DOTALL)
_CLIENT = re.compile(r"client=(?P<client>[^,]*)(?:.*?, sasl_username=(?P<account>[^,]*))?")
_PICKUP = re.compile(r"uid=(?P<uid>\d+) from=<(?P<sender>.*?)>(?: orig_id=(?P<old>\w+))?$")
_QUEUED = re.compile(r"from=<(?P<sender>.*)>, size=\d+, nrcpt=\d+ \(queue active\)")
_RETURNED = re.compile(r"from=<(?P<sender>.*)>, status=(?:force-)?expired, (?P<text>.*)")
_ADDRESS = r'(?:(?:"(?:[^"\\]|\\.)*"|[^">])*|[^>]*)'
"""An address; a quoted local part may contain what looks like the rest of a line."""
_ATTEMPT = re.compile(
    rf"to=<(?P<address>{_ADDRESS})>, (?:orig_to=<{_ADDRESS}>, )?relay=(?P<relay>[^,]*), "
    r"(?:[a-z_]+=[^,]*, )*status=(?P<status>[a-z]+) ?(?:\((?P<text>.*)\))?",
    re.DOTALL,
)
_REPORT = re.compile(r"(?:sender|postmaster) (?P<what>.*) notification: (?P<new>\w+)")
_QUEUED_AS = re.compile(r"queued as (\w+)")
_HERE = re.compile(r"[^\[]*\[(?:127\.\d+\.\d+\.\d+|::1)\]|[^\[]*\[(?:private|public)/")
"""A relay on this host: what it queued is in this log too, if it is a content filter."""
_REFUSED = re.compile(
    r"(?:milter-)?(?P<act>reject|discard|hold|redirect|warning): (?P<text>.*)", re.DOTALL
)
_NAMED = re.compile(r" from=<(?P<sender>[^>]*)>(?: to=<(?P<address>[^>]*)>)?")

SUSPENDED = "delivery temporarily suspended: "

_STATUS = {
    "sent": MailEventKind.DELIVERED,
    "deferred": MailEventKind.DEFERRED,
    "bounced": MailEventKind.FAILED,
    "expired": MailEventKind.EXPIRED,
}
_POSTSUPER = {
    "placed on hold": (MailEventKind.HELD, False),
    "released from hold": (MailEventKind.RELEASED, False),
    "requeued": (MailEventKind.REQUEUED, False),
    "expired": (MailEventKind.EXPIRED, False),
    "removed": (MailEventKind.REMOVED, True),
}
"""Lines of postsuper(1): what was done, and whether the id is free now."""


def mail_log(maillog_file: str, syslog_name: str = "postfix", prefix: Prefix = HERE) -> MailLog:
    """The log of one instance: `maillog_file`, or what syslog writes if that is empty."""
    named = () if is_device(maillog_file) else (maillog_file,)
    return MailLog(
        paths=named if maillog_file else MAIL_LOGS,
        parse=partial(parse, syslog_name),
        is_id=lambda word: is_id(word) is not None,
        facts=re.compile(_FACTS),
        mentions=(b"]: ", b"> orig_id=", b"notification: ", b"queued as "),
        untried=SUSPENDED.encode(),
        prefix=prefix,
        journal=() if maillog_file else JOURNAL,
    )


def parse(syslog_name: str, text: str) -> MailEvent | None:
    """The event of a line behind its time; None if it is about no message of the instance."""
    line = _PROGRAM.match(text)
    if line is None or not line["program"].startswith(f"{syslog_name}/"):
        return None
    program = line["program"].rpartition("/")[2]
    mail = _OF_MAIL.match(line["text"])
    if mail is None:
        return None
    if mail["id"] == "NOQUEUE":
        return _parse_refusal("", mail["text"])
    if not is_id(mail["id"]):
        return None
    return _parse_mail(program, mail["id"], mail["text"].rstrip("\r"))


def _parse_mail(program: str, id: str, text: str) -> MailEvent:
    if program == "postsuper" and text in _POSTSUPER:
        what, is_end = _POSTSUPER[text]
        return MailEvent(None, id, what, text=f"{text} by postsuper", is_end=is_end)
    if (attempt := _ATTEMPT.match(text)) is not None:
        return _parse_attempt(id, attempt)
    if text == "removed":
        return MailEvent(None, id, MailEventKind.REMOVED, text=text, is_end=True)
    if (match := _QUEUED.match(text)) is not None:
        return MailEvent(None, id, MailEventKind.QUEUED, _sender(match["sender"]), text)
    if (match := _CLIENT.match(text)) is not None:
        account = match["account"] or ""
        return MailEvent(
            None, id, MailEventKind.ARRIVED, text=text, account=account, client=match["client"]
        )
    if (match := _PICKUP.match(text)) is not None:
        old = match["old"] or ""
        what = MailEventKind.REQUEUED if old else MailEventKind.ARRIVED
        # The pickup of a requeued message names the user of the queue, not the one who sent it.
        account = "" if old else f"uid {match['uid']}"
        sender = _sender(match["sender"])
        return MailEvent(None, id, what, sender, text, account=account, other=old)
    if (match := _REPORT.match(text)) is not None:
        is_bounce = match["what"] == "non-delivery"
        what = MailEventKind.BOUNCED if is_bounce else MailEventKind.REPORTED
        return MailEvent(None, id, what, text=text, other=match["new"])
    if (match := _RETURNED.match(text)) is not None:
        return MailEvent(None, id, MailEventKind.EXPIRED, _sender(match["sender"]), match["text"])
    if text.startswith("message-id="):
        return MailEvent(None, id, MailEventKind.NAMED, text=text)
    return _parse_refusal(id, text) or MailEvent(None, id, MailEventKind.NOTED, text=text)


def _sender(address: str) -> str:
    return address or "<>"


def _parse_attempt(id: str, attempt: re.Match[str]) -> MailEvent:
    text, relay = attempt["text"] or "", attempt["relay"]
    what = _STATUS.get(attempt["status"], MailEventKind.NOTED)
    if what is MailEventKind.DEFERRED and text.startswith(SUSPENDED):
        what, text = MailEventKind.SUSPENDED, text.removeprefix(SUSPENDED)
    other = ""
    if what is MailEventKind.DELIVERED and _HERE.match(relay):
        names = _QUEUED_AS.findall(text)
        other = names[-1] if names and is_id(names[-1]) else ""
    relay = "" if relay == "none" else relay
    return MailEvent(None, id, what, attempt["address"], text, relay=relay, other=other)


def _parse_refusal(id: str, text: str) -> MailEvent | None:
    """`reject: RCPT from HOST[IP]: 554 5.7.1 ...; from=<a> to=<b> proto=ESMTP helo=<c>`."""
    match = _REFUSED.match(text)
    if match is None:
        return None
    named = _NAMED.search(match["text"], match["text"].rfind("; from=<"))
    client = re.search(r" from ([^\s;:]+\[[^\]]*\])", match["text"])
    kinds = {
        "hold": MailEventKind.HELD,
        "reject": MailEventKind.REFUSED,
        "discard": MailEventKind.REMOVED,
    }
    return MailEvent(
        None,
        id,
        kinds.get(match["act"], MailEventKind.NOTED),
        address=(named["address"] or _sender(named["sender"])) if named else "",
        text=match["text"],
        client=client[1] if client else "",
    )
