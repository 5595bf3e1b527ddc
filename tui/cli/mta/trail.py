"""`mta trail`: where a mail went, by the logs of a mail server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.formats.base.format import Setup
from engine.programs.mail_log import MailEvent, MailEventKind, MailLog
from engine.programs.mail_trail import MIN_WORD, Trail, TrailEvent, find_trail
from engine.store import Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.setup.filter_option import parse_since_option
from tui.cli.setup.output import Answer, Progress
from tui.text.lines import Line
from tui.text.task_row import time_fields

FOUND, NOT_FOUND = 0, 1


def trail(setup: Setup, word: str, *, since: str) -> Answer:
    """Print what the logs have about an address, an id or a Message-Id: arrival, attempts, answers,
    requeue, bounce, removal. Exit 1 if they have nothing."""
    log, word, floor = mail_log_of(setup), check_word(word), parse_since_option(since)
    with Progress("MiB of log read") as progress:
        found = find_trail(log, word, floor, lambda read: progress.show(read >> 20))
    if not found.files:
        raise Unavailable(safe_line("; ".join(found.problems) or "no log"))

    def values() -> Mapping[str, object]:
        return {
            "word": word,
            "log": found.name,
            "files": found.files,
            **time_fields("since", found.since),
            "problems": list(map(safe_line, found.problems)),
            "cut": found.is_cut,
            "events": [{**event_values(one.event), "chain": one.chain} for one in found.events],
        }

    return Answer(values, lambda: _lines(found), FOUND if found.events else NOT_FOUND)


def mail_log_of(setup: Setup) -> MailLog:
    """The log of the mail server of a place.

    Raises:
        CommandError: the place is of no mail server with a log.
        Unavailable: its settings cannot be read.
    """
    log = setup.format.mail_log(setup)
    if log is None:
        fail(
            EX_USAGE,
            f"{safe_line(setup.place)}: {setup.format.title} has no mail log of its own: "
            "name the place of a mail server",
        )
    return log


def check_word(word: str) -> str:
    """A word to search for, without the brackets around an address or a Message-Id.

    Raises:
        CommandError: it is too short.
    """
    bare = word.strip().removeprefix("<").removesuffix(">")
    if len(bare) < MIN_WORD:
        fail(EX_USAGE, f"{safe_line(word)}: expected an address, an id or a Message-Id")
    return bare


def event_values(event: MailEvent) -> dict[str, object]:
    """The JSON object of an event."""
    return {
        **time_fields("when", event.when),
        "id": event.id,
        "what": event.what.value,
        "address": event.address,
        "text": event.text,
        "relay": event.relay,
        "account": event.account,
        "client": event.client,
        "other": event.other,
    }


_STYLES = {
    MailEventKind.DELIVERED: "ok",
    MailEventKind.DEFERRED: "warn",
    MailEventKind.SUSPENDED: "warn",
    MailEventKind.HELD: "warn",
    MailEventKind.FAILED: "error",
    MailEventKind.EXPIRED: "error",
    MailEventKind.REFUSED: "error",
    MailEventKind.BOUNCED: "error",
}
_KIND_CELLS = max(map(len, MailEventKind))


def event_line(event: MailEvent, id_cells: int = 0) -> Line:
    """An event as a line: time, id, what, address, relay and text."""
    stamp = UNKNOWN if event.when is None else format_time(event.when)
    is_attempt = bool(event.relay) or event.what in _STYLES
    is_named = f"<{event.address.strip('<>')}>" in event.text and not is_attempt
    parts = ("" if is_named else event.address, event.relay, event.text.strip())
    return (
        (f"{stamp:20}  ", "muted"),
        (f"{safe_line(event.id):{id_cells}}  ", "accent"),
        (f"{event.what.value:{_KIND_CELLS}}  ", _STYLES.get(event.what, "")),
        (safe_line("  ".join(part for part in parts if part).expandtabs(8)), ""),
    )


def _lines(found: Trail) -> Iterator[Line | str]:
    id_cells = max((len(one.event.id) for one in found.events), default=0)
    before: TrailEvent | None = None
    for one in found.events:
        is_refused = before is not None and not (one.event.id or before.event.id)
        if before is not None and one.chain != before.chain and not is_refused:
            yield ""
        yield event_line(one.event, id_cells)
        before = one
    if found.events:
        yield ""
    else:
        yield "nothing found"
    yield from (((f"! {safe_line(problem)}", "warn"),) for problem in found.problems)
    if found.is_cut:
        yield (("! more messages match: only the first are shown; name an id, or --since", "warn"),)
    back = "" if found.since is None else f" back to {format_time(found.since)}"
    searched = f"searched {format_count(found.files, 'file')} of {safe_line(found.name)}{back}"
    yield ((searched, "muted"),)
