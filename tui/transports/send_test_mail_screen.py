"""Screen of a test mail by one transport: recipient, confirmation, output of the command."""

from __future__ import annotations

import asyncio
import shlex

from engine.monitor.transport_health import TransportUse
from engine.text.safe import safe_line
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.plan_page import PlanWords
from tui.screens.base import key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.background_command import address_error
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line
from tui.transports.board import figure_lines
from tui.transports.suspend_lines import labelled_lines

OUTPUT_READ_SECONDS = 0.2
"""Seconds between two reads of the command's output."""


class SendTestMailScreen(ConfirmScreen):
    """The plan for a test mail, or the progress of the running one."""

    KIND = keys.TEST_MAIL
    BINDINGS = key_bindings(keys.TEST_MAIL)
    DIGITS_NAME = "count"

    def __init__(self, name: str, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__(session, context)
        self._trial = session.test_mail
        routes = session.readings.routes
        self._begun = session.test_mail.running
        self._transport = session.test_mail.transport if self._begun else name
        default = routes.recipient if routes is not None else ""
        self._to = session.test_mail.to if self._begun else default or session.test_mail.to

    def on_mount(self) -> None:
        """Follow the output; prompt for a recipient if none is configured."""
        self.run_worker(self._follow(), name="trial")
        if not self._to:
            self.action_to()

    async def _follow(self) -> None:
        painted: object = None
        while True:
            progress = (self._trial.running, self._trial.lines, self._trial.outcome)
            if self._begun and progress != painted:
                painted = progress
                self.lay_out(self.size.width)
            await asyncio.sleep(OUTPUT_READ_SECONDS)

    # Painting

    def lay_out(self, width: int) -> None:
        """Paint the plan, or output and result."""
        if not self.is_paintable or not width:
            return
        width = self.text_width
        text = self._output_lines(width) if self._begun else self._plan_lines(width)
        self.show((), text, self._prompt_line())
        name = safe_line(self._transport)
        self.show_title((("test mail", "title"), (f" {name}", "strong")), name)
        words = {"arm": keys.arm_hint(self._arming.is_armed)}
        self.show_hints(self.disabled_actions(), self.without(), words)

    def describe(self) -> PlanWords:
        """The words around the plan, and how far the test mail is."""
        words, took = super().describe(), f"{self._trial.elapsed_seconds:.1f}s"
        if not self._begun:
            return words if self._to else words._replace(key="Tab", does="names the recipient")
        is_running = self._trial.running
        return words._replace(stage=f"sending, {took}" if is_running else f"result, after {took}")

    def _plan_lines(self, width: int) -> list[Line]:
        name, to = safe_line(self._transport), safe_line(self._to) or "none (Tab)"
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
        return [*text, *figure_lines(self._session, self._transport, self._clock(), width)]

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

    def _prompt_line(self) -> Line:
        if self._trial.running:
            return ((" sending ... Esc leaves, it continues", "strong"),)
        if self._begun:
            words, style = self._trial.outcome
            return ((f" {safe_line(words)}", style),)
        if settled := self.why_not_applicable():
            return ((f" {safe_line(settled)}", "warn"),)
        return self.confirm_prompt("", f"send to {safe_line(self._to)}")

    @property
    def expected_digits(self) -> str:
        """Nothing is lost, so `y` is enough."""
        return ""

    def why_not_applicable(self) -> str:
        """Why no mail can be sent: one is running, this one was sent, or it has no recipient."""
        if self._trial.running:
            return "a test mail is running: wait for its result"
        if self._begun:
            return "already sent: Esc, then M for another"
        return "" if self._to else "no recipient: Tab"

    def without(self) -> set[str]:
        """The recipient is fixed once the mail was sent."""
        without = super().without() - (set() if self._begun else {"arm"})
        return without | ({"to"} if self._begun else set())

    # Actions

    def action_to(self) -> None:
        """Prompt for the recipient."""
        if self._begun:
            return

        def take(answer: str | None) -> None:
            self._to = (answer or self._to).strip()
            self.lay_out(self.size.width)

        self.app.push_screen(AskScreen("recipient of the test mail", self._to, address_error), take)

    def apply_plan(self) -> None:
        """Run the command; its result is shown on whichever screen is open then."""
        self._begun = True
        # Started now, because the screen shows its output.
        sending = self._trial.run(self._transport, self._to)
        news = self._session.messages

        async def note_outcome() -> None:
            news.append(await sending)

        self.app.run_worker(note_outcome(), name="trial", group="trial")
