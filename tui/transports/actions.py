"""Actions on a transport or a destination, and their texts: suspend, resume, test mail; block,
unblock, probe."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping
from functools import partial

from engine.destinations.destination import Destination
from engine.destinations.watch import ACTIONS, SeenDestination
from engine.index import filter_language
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import MailRoutes, TransportSuspension, TransportUse
from engine.places.place import PlaceDestinations, PlaceMail
from engine.places.place_watcher import read_destinations
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Fact, Question, Reason
from tui.session.background_command import address_error
from tui.session.place_session import PlaceSession, seen_destinations
from tui.text import keys
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line, Run, cut_line, fit_text
from tui.transports import destination_lines
from tui.transports.board import figure_lines
from tui.transports.detail_lines import DIALOG_LABEL_CELLS, MARGIN, dialog_lines
from tui.transports.transport_lines import USES, describe_suspension

OWN_PROGRAM = (
    "no effect, unless the configured program runs `mail send`: mail_send tasks run that program, "
    "which selects its own transport"
)
UNSENT_MAIL = (
    "`mail send-with-retry` spools and queues mail; `mail send`, with its single attempt, fails"
)
"""What happens to mail without a usable transport."""


def describe_waiting_mail(delivers: bool) -> str:
    """What happens to waiting mail; `delivers` if its tasks use these transports."""
    tasks = "its tasks stay pending, no attempt is counted; " if delivers else ""
    return f"{_affected_mail(delivers)} waits: {tasks}{UNSENT_MAIL}"


def _affected_mail(delivers: bool) -> str:
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
    `delivers`: tasks use these transports, not a program of their own."""
    stop = before.stopped.get(name)
    what = "used again in its order" if stop else "stays off until resumed (S, or `mail resume`)"
    rows = [] if delivers else [("tasks", OWN_PROGRAM, "strong")]
    whose = "" if delivers else " for mail that spooldeck sends"
    rows.append(("effect", f"{safe_line(name)}{whose}: {what}", "strong"))
    if stop is not None:
        rows.insert(0, ("now", describe_suspension(stop, now), "warn"))
    if after is None:
        rows.append(("mail", "checking the routes ...", "muted"))
    else:
        words = describe_effect(name, before, after, delivers)
        rows.append(("mail", words, "" if after.selected else "warn"))
    if waiting:
        many = f"{waiting:,} tasks that send mail are"
        pending = f"{'1 task that sends mail is' if waiting == 1 else many} pending now"
        rows.append(("pending", pending, ""))
    return [line for row in rows for line in dialog_lines(*row, width)]


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
            (f"{fit_text(word, 10)} {safe_line(why)}".rstrip(), "muted"),
        )
        lines.append(cut_line(row, width))
    return lines


def switch_lines(reason: Reason, command: tuple[str, ...], width: int) -> tuple[list[Line], ...]:
    """The reason, and the command line that does the same."""
    style = "" if reason.text else "muted"
    return (
        dialog_lines("reason", reason.words, style, width),
        dialog_lines("cli", safe_line(shlex.join(command)), "muted", width),
    )


class SuspendAction(Action):
    """The effect of suspending one transport, or of resuming it, on the routes as they were."""

    kind = keys.SUSPEND
    reason_title = "reason (visible to all)"

    def __init__(self, name: str, session: PlaceSession, mail: PlaceMail) -> None:
        assert session.readings.routes is not None
        self._name, self._session, self._mail = name, session, mail
        self._before: MailRoutes = session.readings.routes
        self._after: MailRoutes | None = None
        self._waiting: int | None = None
        """Pending mail tasks; None until counted."""
        self._unknown = ""
        self._suspends = name not in self._before.stopped
        self.hint = "suspend" if self._suspends else "resume"
        self.acts_on = safe_line(name)
        self.title = ((self.hint, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return f"{self.hint} {self.acts_on}"

    @property
    def takes_reason(self) -> bool:
        return self._suspends

    def facts(self) -> tuple[Fact, ...]:
        routes = self._session.readings.routes
        if routes is None or routes.unknown:
            return (Fact(None, f"transports unknown: {routes.unknown if routes else 'no data'}"),)
        usable = (routes.selected, routes.stopped, set(routes.why_not))
        return (Fact(usable, "the transports changed"),)

    def refusal(self) -> str:
        (transports,) = self.facts()
        if transports.value is None:
            return transports.change
        if self._unknown:
            return f"effect unknown: {self._unknown}"
        return "still checking the routes" if self._after is None else ""

    async def load(self) -> AsyncIterator[None]:
        """Find the routes after it, on a thread; then count the mail that waits."""
        stop = TransportSuspension(self._name, self._session.clock(), self._session.place.who.name)
        then = stopped_after(self._before, self._name, stop if self.takes_reason else None)
        try:
            self._after = await asyncio.to_thread(self._mail.routes, then)
        except Unavailable as error:
            self._unknown = str(error)
        yield
        if self._mail.uses_transports:
            query = Query(State.PENDING, filter_language.parse_filter("kind=mail_send"))
            try:
                self._waiting = await self._session.inspector.queries.count(query)
            except Unavailable:
                return  # the number of waiting tasks is optional
            yield

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        effect_lines = plan_lines(
            self._name,
            self._before,
            self._after,
            delivers=self._mail.uses_transports,
            waiting=self._waiting,
            now=now,
            width=width,
        )
        words = (reason.text,) if reason.text and self.takes_reason else ()
        command = (*self._session.place.command, "mail", self.hint, self._name, *words)
        reason_lines, command_lines = switch_lines(reason, command, width)
        return [
            *effect_lines,
            *(reason_lines if self.takes_reason else []),
            BLANK_LINE,
            *other_transport_lines(self._name, self._before, width),
            BLANK_LINE,
            *command_lines,
            *figure_lines(self._session, self._name, now, width),
        ]

    async def apply(self, reason: str) -> Run:
        name, mail = self._name, self._mail
        act = partial(mail.suspend, name, reason) if self._suspends else partial(mail.resume, name)
        trouble = await self._session.change_routes(act)
        done = describe_result(name, self._session.readings.routes, mail.uses_transports)
        return done + (f"; {trouble}" if trouble else ""), "ok"


class DestinationAction(Action):
    """A change of one destination as it was seen when the screen was opened."""

    kind = keys.SUSPEND
    reason_title = "reason (visible to all)"

    def __init__(
        self, name: str, verb: str, session: PlaceSession, place_destinations: PlaceDestinations
    ) -> None:
        """Without a verb it blocks, or unblocks what is blocked."""
        self._name, self._session, self._place_destinations = name, session, place_destinations
        current = self._now()
        self._planned = Destination(name) if current is None else current.destination
        self._action = ACTIONS[verb or ("unblock" if self._planned.blocked else "block")]
        self.hint, self.acts_on = self._action.verb, safe_line(name)
        self.title = ((self.hint, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return f"{self.hint} {self.acts_on}"

    @property
    def takes_reason(self) -> bool:
        return True

    def _now(self) -> SeenDestination | None:
        seen = seen_destinations(self._session)
        return next((one for one in seen if one.destination.origin == self._name), None)

    def facts(self) -> tuple[Fact, ...]:
        current = self._now()
        known = Destination(self._name) if current is None else current.destination
        fact = self._action.fact(known)
        return (Fact(fact, f"the destination changed: {fact}"),)

    def refusal(self) -> str:
        unknown = self._session.readings.destinations.unknown
        return f"effect unknown: {unknown}" if unknown else ""

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        words = ("--reason", reason.text) if reason.text else ()
        command = self._session.place.command
        command = (*command, "destinations", self.hint, self._name, *words, "--apply", "1")
        reason_lines, command_lines = switch_lines(reason, command, width)
        text = destination_lines.plan_lines(self._action, self._planned, width)
        text += [*reason_lines, BLANK_LINE, *command_lines]
        if (current := self._now()) is not None:
            unknown = self._place_destinations.tasks_unknown
            text += [BLANK_LINE, *destination_lines.detail_lines(current, unknown, now, width)]
        return text

    async def apply(self, reason: str) -> Run:
        session, change = self._session, self._place_destinations.change
        trouble = await asyncio.to_thread(partial(change, self.hint, self._planned, reason))
        registry = await asyncio.to_thread(read_destinations, session.place)
        session.note_destinations(registry)
        session.readings = session.readings._replace(destinations=registry)
        session.evaluate_alerts()
        done = destination_lines.describe_result(self._action, self._name)
        return done + (f"; {trouble}" if trouble else ""), "ok"


class MailTestAction(Action):
    """The plan for a test mail, or the progress of the running one."""

    kind = keys.TEST_MAIL
    stays_open = True

    def __init__(self, name: str, session: PlaceSession) -> None:
        self._session, self._trial = session, session.test_mail
        routes = session.readings.routes
        self._is_begun = self._trial.running
        self._transport = self._trial.transport if self._is_begun else name
        default = routes.recipient if routes is not None else ""
        self._to = self._trial.to if self._is_begun else default or self._trial.to
        self.acts_on = safe_line(self._transport)
        self.title = (("test mail", "title"), (f" {self.acts_on}", "strong"))

    @property
    def prompt(self) -> str:
        return f"send to {safe_line(self._to)}"

    @property
    def progress(self) -> object:
        return self._trial.running, self._trial.lines, self._trial.outcome

    def refusal(self) -> str:
        if self._trial.running:
            return "a test mail is running: wait for its result"
        if self._is_begun:
            return "already sent: Esc, then M for another"
        return "" if self._to else "no recipient: Tab"

    def absent_keys(self) -> set[str]:
        return {"to"} if self._is_begun else set()

    def result(self) -> Line:
        if self._trial.running:
            return ((" sending ... Esc leaves, it continues", "strong"),)
        words, style = self._trial.outcome
        return ((f" {safe_line(words)}", style),) if self._is_begun else ()

    def stage(self) -> str | None:
        took = f"{self._trial.elapsed_seconds:.1f}s"
        if not self._is_begun:
            return None
        return f"sending, {took}" if self._trial.running else f"result, after {took}"

    def next_step(self) -> tuple[str, str] | None:
        return None if self._is_begun or self._to else ("Tab", "names the recipient")

    @property
    def is_incomplete(self) -> bool:
        return not self._to

    def question(self) -> Question | None:
        if self._is_begun:
            return None

        def take(answer: str) -> None:
            self._to = answer

        return Question("recipient of the test mail", self._to, address_error, take)

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        return self._output_lines(width) if self._is_begun else self._plan_lines(now, width)

    def _plan_lines(self, now: float, width: int) -> list[Line]:
        name, to = self.acts_on, safe_line(self._to) or "none (Tab)"
        words = [
            ("mail", f"Test mail via {name} only. Recipient: {to}", "strong"),
            ("shows", "each step and the server's reply; continues if this screen is closed", ""),
        ]
        routes = self._session.readings.routes
        use = TransportUse.UNKNOWN if routes is None else routes.use(self._transport)
        if use is TransportUse.SUSPENDED:
            words.append(("note", f"{name} is suspended: this mail uses it anyway", "warn"))
        elif use is TransportUse.BARRED and routes is not None:
            forced = f"{safe_line(routes.forced)} is forced"
            note = f"{name} is disabled, {forced}: this mail uses it anyway"
            words.append(("note", note, "warn"))
        if routes is not None and (why := safe_line(routes.why_not.get(self._transport, ""))):
            words.append(("note", f"Likely to fail: {why}", "warn"))
        command = self._session.place.command
        argv = (*command, "mail", "test", "--transport", self._transport, self._to or "EMAIL")
        words.append(("cli", safe_line(shlex.join(argv)), "muted"))
        text = [line for row in words for line in dialog_lines(*row, width)]
        return [*text, *figure_lines(self._session, self._transport, now, width)]

    def _output_lines(self, width: int) -> list[Line]:
        trial = self._trial
        lines = dialog_lines("to", safe_line(trial.to), "strong", width)
        for number, line in enumerate(trial.lines):
            lines += dialog_lines("" if number else "output", line, "", width)
        if not trial.lines:
            nothing = "no output yet" if trial.running else "none"
            lines += dialog_lines("output", nothing, "muted", width)
        if trial.running:
            return lines
        failed = trial.outcome[1] != "ok"
        does = "back; Enter there shows its errors" if failed else "back; M there sends another"
        return [*lines, BLANK_LINE, next_line("Esc", does, "", width)]

    async def apply(self, reason: str) -> Run:
        sending = self._trial.run(self._transport, self._to)
        self._is_begun = True
        words = await sending
        return words, self._trial.outcome[1]
