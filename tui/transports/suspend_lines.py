"""Text of a plan to suspend or resume a transport, and of its effect on mail."""

from __future__ import annotations

from collections.abc import Mapping

from engine.monitor.transport_health import MailRoutes, TransportSuspension, TransportUse
from engine.text.safe import safe_line
from tui.text.lines import Line, cut_line, fit_text
from tui.transports import detail_lines
from tui.transports.detail_lines import MARGIN
from tui.transports.transport_lines import USES, describe_suspension

DIALOG_LABEL_CELLS = 9
"""Width of the labels in cells: values begin where those of other plans do."""

TASKS_WAIT = "its tasks stay pending, no attempt is counted"
OWN_PROGRAM = "mail_send tasks run the configured program, which selects its own transport"
UNSENT_MAIL = (
    "`mail send-with-retry` spools and queues mail; `mail send`, with its single attempt, fails"
)
"""What happens to mail without a usable transport."""


def describe_waiting_mail(delivers: bool) -> str:
    """What happens to waiting mail; `delivers` if its tasks use these transports."""
    tasks = f"{TASKS_WAIT}; " if delivers else ""
    return f"{_affected_mail(delivers)} waits: {tasks}{UNSENT_MAIL}"


def _affected_mail(delivers: bool) -> str:
    """The mail that a suspension concerns."""
    return "mail" if delivers else "mail that spooldeck sends"


def describe_result(name: str, routes: MailRoutes | None, delivers: bool) -> str:
    """The result of suspending or resuming, and the transport in use now."""
    by = f"uses {safe_line(routes.selected)}" if routes and routes.selected else "waits"
    done = "suspended" if routes and name in routes.stopped else "resumed"
    return f"{safe_line(name)} is {done}: {_affected_mail(delivers)} {by}"


def stopped_after(
    routes: MailRoutes, name: str, stop: TransportSuspension | None
) -> Mapping[str, TransportSuspension]:
    """Suspended transports after the plan."""
    others = {other: each for other, each in routes.stopped.items() if other != name}
    return others if stop is None else {**others, name: stop}


def describe_effect(name: str, before: MailRoutes, after: MailRoutes, delivers: bool = True) -> str:
    """Which transport mail uses after the plan; `delivers` if tasks use these transports, too."""
    if name in before.stopped:
        return _describe_resumed(name, before, after, delivers)
    chosen = safe_line(after.selected)
    if not chosen:
        if before.use(name) in (TransportUse.ABSENT, TransportUse.BARRED) or not before.selected:
            return f"no usable transport before and after: {describe_waiting_mail(delivers)}"
        if after.forced:
            forced = safe_line(after.forced)
            alone = f"the configuration forces {forced} (mail.method)"
            return f"{alone} and no other, so {describe_waiting_mail(delivers)}"
        return f"no other usable transport, so {describe_waiting_mail(delivers)}"
    if before.selected == name:
        return f"{_affected_mail(delivers)} uses {chosen}, the next usable transport"
    by = f"{_affected_mail(delivers)} still uses {chosen}"
    return f"{by}; {safe_line(name)} is not its fallback"


def _describe_resumed(name: str, before: MailRoutes, after: MailRoutes, delivers: bool) -> str:
    if after.selected == name:
        waited = "" if before.selected else "; the next queue runs send waiting mail"
        return f"{_affected_mail(delivers)} uses it again{waited}"
    if after.selected:
        by = f"{_affected_mail(delivers)} still uses {safe_line(after.selected)}"
        return f"{by}, which comes first"
    why = after.why_not.get(name, "")
    reason = f" ({safe_line(why)})" if why else ""
    return f"still no usable transport{reason}: {describe_waiting_mail(delivers)}"


def plan_lines(
    name: str,
    before: MailRoutes,
    after: MailRoutes | None,
    delivers: bool,
    waiting: int | None,
    now: float,
    width: int,
) -> list[Line]:
    """The plan; `waiting` is the number of pending mail tasks, None while it is counted.

    `delivers`: tasks use these transports, not a program of their own.
    """
    stop = before.stopped.get(name)
    what = "used again in its order" if stop else "stays off until resumed (S, or `mail resume`)"
    rows: list[tuple[str, str, str]] = [("effect", f"{safe_line(name)}: {what}", "strong")]
    if stop is not None:
        rows.insert(0, ("now", describe_suspension(stop, now), "warn"))
    if after is None:
        rows.append(("mail", "checking the routes ...", "muted"))
    else:
        words = describe_effect(name, before, after, delivers)
        rows.append(("mail", words, "" if after.selected else "warn"))
        if not delivers:
            rows.append(("tasks", f"not affected: {OWN_PROGRAM}", ""))
    if waiting:
        many = f"{waiting:,} tasks that send mail are"
        pending = f"{'1 task that sends mail is' if waiting == 1 else many} pending now"
        rows.append(("pending", pending if delivers else f"{pending}, not affected", ""))
    return [line for row in rows for line in labelled_lines(*row, width)]


def labelled_lines(label: str, text: str, style: str, width: int) -> list[Line]:
    """A label and a text, folded."""
    return detail_lines.labelled_lines(label, text, style, width, DIALOG_LABEL_CELLS)


def other_transport_lines(name: str, routes: MailRoutes, width: int) -> list[Line]:
    """All other transports in their order, and why they are not used."""
    lines: list[Line] = []
    for other in routes.order:
        if other == name:
            continue
        use, why = routes.use(other), ""
        if use in (TransportUse.ABSENT, TransportUse.SUSPENDED):
            why = routes.why_not.get(other, "")
        elif use is TransportUse.BARRED:
            why = f"{routes.forced} is forced"
        word = use.value if use is TransportUse.SUSPENDED else USES[use][0]
        label = "" if lines else "others"
        row: Line = (
            (f"{MARGIN}{label:<{DIALOG_LABEL_CELLS}} ", "muted"),
            (f"{fit_text(safe_line(other), 9)} ", ""),
            (f"{fit_text(word, 9)} {safe_line(why)}".rstrip(), "muted"),
        )
        lines.append(cut_line(row, width))
    return lines
