"""A test mail by one transport: recipient, confirmation, output of the command."""

from __future__ import annotations

import shlex

from engine.monitor.transport_health import TransportUse
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Question, Reason
from tui.session.background_command import address_error
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line, Run
from tui.transports.board import figure_lines
from tui.transports.suspend_lines import labelled_lines


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
        text = [line for row in words for line in labelled_lines(*row, width)]
        return [*text, *figure_lines(self._session, self._transport, now, width)]

    def _output_lines(self, width: int) -> list[Line]:
        trial = self._trial
        lines = labelled_lines("to", safe_line(trial.to), "strong", width)
        for number, line in enumerate(trial.lines):
            lines += labelled_lines("" if number else "output", line, "", width)
        if not trial.lines:
            nothing = "no output yet" if trial.running else "none"
            lines += labelled_lines("output", nothing, "muted", width)
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
