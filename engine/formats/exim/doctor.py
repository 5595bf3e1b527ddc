"""The doctor's checks of one Exim: program, rights, trash queue, daemon, settings, logs."""

from __future__ import annotations

from collections.abc import Iterator

from engine.doctor.finding import Finding, bad, hidden, ok, warn
from engine.formats.exim import facts
from engine.formats.exim.programs import HELPERS, TRASH, Exim
from engine.programs.mail_log import MailFacts


def check_exim(exim: Exim, mail_facts: MailFacts) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each check and what it found."""
    yield "program", ok(f"Exim {exim.version}: {' '.join(exim.words)}, spool {exim.spool}")
    if exim.refusal:
        yield "rights", hidden("this user may change nothing", exim.refusal)
    else:
        yield "rights", ok("an admin user of Exim")
    if exim.trash_refusal:
        yield "trash", bad(exim.trash_refusal, "purge is not offered")
    elif not exim.refusal:
        shown = " ".join((*exim.words, TRASH, "-bpru"))
        yield "trash", ok(f"the queue spooldeck-trash; {shown} lists it")
    if exim.helpers != exim.prefix:
        names = ", ".join(HELPERS)
        yield (
            "sudo",
            warn(
                f"it does not allow {names}: they run without it",
                "who delivers, times in the trash and reasons may be unknown",
            ),
        )
    daemon = facts.find_daemon(exim)
    if daemon.pids:
        runs = f"queue run every {daemon.interval}" if daemon.interval else ""
        yield "daemon", ok(f"PID {daemon.pids[0]}{f', {runs}' if runs else ''}")
        if not runs:
            yield "daemon", warn("no process has -q with a time", "deferred mail is not tried")
    elif daemon.is_known:
        yield "daemon", bad("no Exim daemon runs", f"{' '.join(exim.words)} -bd -q30m")
    else:
        yield "daemon", hidden("the processes of other users cannot be read")
    limits = ", ".join(f"{name} {text}" for name, text in facts.hold_facts(exim))
    yield "frozen mail", ok(limits)
    if exim.has_argument_log:
        yield (
            "log",
            warn(
                "log_selector has +arguments: each call of exim writes a line into the main log",
                "listings are a minute apart",
            ),
        )
    mail_facts.read_on()
    for why in mail_facts.problems:
        yield "log", hidden(why, "reasons and accounts are unknown")
    if not mail_facts.problems:
        yield "log", ok("reasons and accounts are read from the main log")
    for check, found in (
        ("settings", facts.setting_warnings(exim)),
        ("panic log", facts.panic_warnings(exim)),
        ("disk", facts.space_warnings(exim)),
    ):
        texts = [*found]
        yield from ((check, warn(text)) for text in texts)
        if not texts:
            yield check, ok("nothing to report")
