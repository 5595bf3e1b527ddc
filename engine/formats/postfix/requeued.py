"""Find the new ids of requeued messages: by the lines of pickup(8) in the log, which end
with the former one (orig_id=), or by envelopes, which have it too (log_ident=)."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from contextlib import closing

from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import Envelope, arrival_in, made_at, parse_line
from engine.programs.mail_log import MailFacts, MailLog
from engine.programs.mail_server import ListedMail

POLL_SECONDS = 0.1
GRACE_SECONDS = 3.0
"""Seconds behind those of a search after which its programs are ended."""
LOST_SECONDS = 2.0
"""Seconds for which new ids are looked for if the answer to a requeue was lost."""
LOG_BYTES, FAR_LOG_BYTES = 16 << 20, 1 << 20
"""Bytes at the end of the log that are searched, and of that of another host."""
LIST_SECONDS = 1.0
"""Seconds after which no further line of a listing is read."""
MAX_ENVELOPES = 2000
"""Messages whose envelopes are read after a listing."""

_REQUEUES = re.compile(
    rb"\n[^\n]{1,120}?\]: (?P<id>[0-9A-Za-z]{6,20}): "
    rb"(?P<account>uid=\d+ from=<[^\n]{0,2000}> orig_id=)"
)


def find_in_log(
    log: MailLog, ids: Collection[str], until: float, deadline: float
) -> dict[str, str]:
    """The new ids by the former ones. If the log can be read, it is followed until all are found,
    or to `until`; its programs are ended at the deadline (both of time.monotonic())."""
    found: dict[str, str] = {}
    log, most = log._replace(facts=_REQUEUES), FAR_LOG_BYTES if log.prefix.words else LOG_BYTES
    with closing(MailFacts(log, most, deadline)) as facts:
        while True:
            for ident in facts.read_on():
                event = facts.arrival(ident)
                if event is not None and event.other in ids:
                    found[event.other] = ident
            if len(found) == len(ids) or facts.problems or time.monotonic() >= until:
                return found
            time.sleep(POLL_SECONDS)


def list_by_delay(instance: Instance, deadline: float) -> Mapping[str, bytes]:
    """The records of a listing by id, first those that were made the longest after the arrival of
    their message: a requeue gives it another id, and keeps its arrival. Short ids, whose age is
    unknown, come last, those that arrived first before others. One that was requeued is in maildrop
    under its former id until pickup takes it.

    Raises:
        engine.store.Unavailable: it cannot be started.
    """
    until, records, delays = time.monotonic() + LIST_SECONDS, dict[str, bytes](), dict[str, int]()
    with closing(instance.start("postqueue", "-j", deadline=deadline)) as program:
        for number, line in enumerate(program.lines(), 1):
            mail = parse_line(number, line)
            if isinstance(mail, ListedMail):
                records[mail.id] = mail.record
                delays[mail.id] = (made_at(mail.id) or 0) - arrival_in(mail.record)
            if time.monotonic() > until:
                break
    ids = sorted(delays, key=delays.__getitem__, reverse=True)
    return {ident: records[ident] for ident in ids}


_FORMER = b"named_attribute: log_ident="


def former_ids(envelope: Envelope) -> Collection[str]:
    """The ids that a message had before it was requeued. In maildrop it still has the last one,
    which its envelope names already."""
    named = (line.partition(_FORMER) for line in envelope.lines)
    ids = (value.decode("ascii", "replace") for start, mark, value in named if mark and not start)
    return tuple(old for old in ids if old != envelope.id)
