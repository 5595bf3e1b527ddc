"""Find the new ids of requeued messages: by the lines of pickup(8) in the log, which end
with the former one (orig_id=), or by envelopes, which have it too (log_ident=)."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from contextlib import closing

from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import parse_envelopes, parse_line
from engine.programs.mail_log import MailFacts, MailLog
from engine.programs.mail_server import ListedMail

POLL_SECONDS = 0.1
LOG_BYTES = 16 << 20
"""Bytes at the end of the log that are searched."""
LIST_SECONDS = 1.0
"""Seconds after which no further line of a listing is read."""
MAX_ENVELOPES = 2000
"""Messages whose envelopes are read."""

_REQUEUES = re.compile(
    rb"\n[^\n]{1,120}?\]: (?P<id>[0-9A-Za-z]{6,20}): "
    rb"(?P<account>uid=\d+ from=<[^\n]{0,2000}> orig_id=)"
)


def find_in_log(log: MailLog, ids: Collection[str], until: float) -> dict[str, str]:
    """The new ids by the former ones. If the log can be read, it is followed until all are found,
    or to `until` (by time.monotonic())."""
    found: dict[str, str] = {}
    with closing(MailFacts(log._replace(facts=_REQUEUES), LOG_BYTES)) as facts:
        while True:
            for ident in facts.read_on():
                event = facts.arrival(ident)
                if event is not None and event.other in ids:
                    found[event.other] = ident
            if len(found) == len(ids) or facts.problems or time.monotonic() >= until:
                return found
            time.sleep(POLL_SECONDS)


def find_in_envelopes(
    instance: Instance, ids: Collection[str], known: Mapping[str, bytes]
) -> dict[str, str]:
    """The same from the envelopes of listed messages that are not `known`.

    Raises:
        engine.store.Unavailable: a program cannot be run.
    """
    until, new = time.monotonic() + LIST_SECONDS, list[str]()
    with closing(instance.start("postqueue", "-j")) as program:
        for number, line in enumerate(program.lines(), 1):
            mail = parse_line(number, line)
            if isinstance(mail, ListedMail) and mail.id not in known and mail.id not in ids:
                new.append(mail.id)
            if len(new) == MAX_ENVELOPES or time.monotonic() > until:
                break
    if not new:
        return {}
    found = {}
    for envelope in parse_envelopes(instance.run("postcat", "-eq", *new)[0], new):
        for attribute in envelope.values(b"named_attribute"):
            name, _, value = attribute.partition("=")
            if name == "log_ident" and value in ids:
                found[value] = envelope.id
    return found
