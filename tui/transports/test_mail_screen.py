"""A test mail by one transport: to whom, `y`, and then what the command says as it says it."""

from __future__ import annotations

import asyncio
import shlex

from engine.monitor.transport_health import Use
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.place_session import PlaceSession
from tui.session.test_mail_process import wrong_address

GLANCE = 0.2
"""Seconds between two looks at what the command has said."""


class TrialScreen(ConfirmScreen):
    """The plan for a test mail, or how the one goes that is being sent just now."""

    KIND = keys.TRIAL
    BINDINGS = keys.bindings(keys.TRIAL)
    WANTS = "count"

    def __init__(self, name: str, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(around.arming, around.clock)
        self._live, self._trial = live, live.trial
        routes = live.signs.routes
        self._begun = live.trial.running
        self._way = live.trial.transport if self._begun else name
        default = routes.recipient if routes is not None else ""
        self._to = live.trial.to if self._begun else default

    def on_mount(self) -> None:
        """Look at what is said, again and again; ask for an address where none is configured."""
        self.run_worker(self._follow(), name="trial")
        if not self._to:
            self.action_to()

    async def _follow(self) -> None:
        painted: object = None
        while True:
            said = (self._trial.running, self._trial.lines, self._trial.outcome)
            if self._begun and said != painted:
                painted = said
                self.lay_out(self.size.width)
            await asyncio.sleep(GLANCE)

    # What it shows

    def lay_out(self, width: int) -> None:
        """What would be sent and how, or what was said and what came of it."""
        if not self.stands or not width:
            return
        text = self._done_lines(width) if self._begun else self._plan_lines(width)
        self.show((), text, self._ask())
        self.show_title(((" test mail by ", "title"), (shown(self._way), "strong")))
        words = {"arm": keys.arm_words(self._arming.armed)}
        self.show_hints(self.grey(), self.without(), words)

    def _plan_lines(self, width: int) -> list[Line]:
        room, name = max(8, width - 3), shown(self._way)
        to = shown(self._to) or "nobody yet: Tab names somebody"
        words = [
            f"One mail to {to}: by {name}, and by no other.",
            "It is sent by a command of its own, which says each step here; it goes on when this "
            "screen is left.",
        ]
        routes = self._live.signs.routes
        use = Use.UNKNOWN if routes is None else routes.use(self._way)
        if use is Use.SUSPENDED:
            words.append(f"{name} is suspended: this mail goes by it all the same, no other does.")
        elif use is Use.BARRED and routes is not None:
            forced = f"{shown(routes.forced)} is forced"
            words.append(f"{name} is not used, {forced}: this mail goes by it all the same.")
        if routes is not None and (why := shown(routes.why_not.get(self._way, ""))):
            words.append(f"It will hardly go: {why}.")
        lines: list[Line] = [present.heading("what would happen", width)]
        for text in words:
            lines += [((f"  {piece}", ""),) for piece in present.folded(text, room)]
        lines += [BLANK, present.heading("the same on the command line", width)]
        twin = shlex.join(self._twin())
        return [*lines, *[((f"  {p}", "dim"),) for p in present.folded(shown(twin), room)]]

    def _twin(self) -> tuple[str, ...]:
        to = self._to or "EMAIL"
        return (*self._live.place.command, "mail", "test", "--transport", self._way, to)

    def _done_lines(self, width: int) -> list[Line]:
        trial, room = self._trial, max(8, width - 3)
        took = f"{trial.took:.1f} s"
        head = f"to {shown(trial.to)}, for {took}" if trial.running else f"result, after {took}"
        lines: list[Line] = [present.heading(head, width)]
        for said in trial.lines:
            lines += [((f"  {piece}", ""),) for piece in present.folded(said, room)]
        if not trial.lines:
            nothing = "it has said nothing yet" if trial.running else "it said nothing"
            lines.append(((f"  {nothing}", "dim"),))
        return lines

    def _ask(self) -> Line:
        if self._trial.running:
            return ((" it is being sent ... Esc leaves, and it goes on", "strong"),)
        if self._begun:
            words, look = self._trial.outcome
            return ((f" {shown(words)}", look),)
        if settled := self.settled():
            return ((f" {shown(settled)}", "warning"),)
        return self.question("", f"send it to {shown(self._to)}")

    @property
    def wanted(self) -> str:
        """Nothing is lost by it: `y` does."""
        return ""

    def settled(self) -> str:
        """One is being sent, this one was, or nobody is named."""
        if self._trial.running:
            return "a test mail is being sent: wait for it to end"
        if self._begun:
            return "this one was sent: Esc, then M makes another"
        return "" if self._to else "nobody is named whom it is for: Tab does"

    def without(self) -> set[str]:
        """Whom it is for is settled once it was sent."""
        without = super().without() - (set() if self._begun else {"arm"})
        return without | ({"to"} if self._begun else set())

    # What it does

    def action_to(self) -> None:
        """Name another address."""
        if self._begun:
            return

        def take(answer: str | None) -> None:
            self._to = (answer or self._to).strip()
            self.lay_out(self.size.width)

        self.app.push_screen(AskScreen("whom the test mail is for", self._to, wrong_address), take)

    def carry_out(self) -> None:
        """Let the command send it; what comes of it is told whatever screen is shown then."""
        self._begun = True
        sending = self._trial.run(self._way, self._to)  # at once: the screen shows what it says
        news = self._live.news

        async def tell() -> None:
            news.append(await sending)

        self.app.run_worker(tell(), name="trial", group="trial")
