"""How each way of sending mail does, and below all there is to say of the one under the cursor."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from engine.monitor.transport_health import Routes, TransportHealth, Use
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.screens.base import HASTY, Copy, Target
from tui.screens.page import ListScreen
from tui.transports import lines as view
from tui.transports.suspend_screen import SuspendScreen
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Choice, Picker


class TransportsScreen(ListScreen):
    """The transports of one place; S and M open plans for the one under the cursor."""

    KIND = keys.TRANSPORTS
    BINDINGS = keys.bindings(keys.TRANSPORTS)

    @property
    def _limit(self) -> float:
        return self.live.place.alerts.transport_failures

    @property
    def _routes(self) -> Routes | None:
        return self.live.signs.routes

    @property
    def _here(self) -> TransportHealth | None:
        """The one under the cursor."""
        key = self.picked
        return next((t for t in self.live.signs.sending.transports if t.name == key), None)

    def lay_out(self, width: int) -> None:
        """A row for each, and what there is to say of one."""
        sending, now = self.live.signs.sending, self.around.clock()
        titles, listed = view.rows(sending, self._limit, now, width, self._routes)
        picker = self.query_one(Picker)
        picker.offer([Choice(name, line) for name, line in listed], [titles])
        # The rows take what they need and half of the screen at most; the rest is for the detail.
        picker.styles.height = 1 + max(1, min(len(picker.rows), self.size.height // 2 - 2))
        self.query_one(LongText).show(self._below(width))

    def _below(self, width: int) -> list[Line]:
        sending, now, way = self.live.signs.sending, self.around.clock(), self._here
        sources = view.sources(sending, now, width)
        if way is None:
            looked = [view.nothing(sending)] if self.live.looked and not sending.transports else []
            return [*looked, *sources]
        return [*view.detail(way, self._limit, now, width, self._routes), *sources]

    def action_move(self, how: str) -> None:
        """Up and down among the rows; by pages through what is said of one."""
        if "page" in how or "half" in how:
            self.query_one(LongText).move(how)
            self.paint()
        else:
            super().action_move(how)

    def word(self) -> Line:
        """All of them in one line, and whether there is more to be read."""
        below = self.query_one(LongText).below
        more: Line = ((f"   PgDn {present.count(below, 'more line')}", "key"),) if below else ()
        told = view.said(self.live.signs.sending, self._limit, self._routes)
        return present.join(told, more, self.size.width) if more else told

    # What can be done

    def without(self) -> set[str]:
        """Where nothing can be done, nothing is offered."""
        if self.live.place.no_mail(self.around.arming.read_only):
            return {"suspend", "trial", "arm"}
        return set()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """S takes back what S did; what cannot be done is grey."""
        way, routes = self._here, self._routes
        taken_back = way is not None and routes is not None and way.name in routes.stopped
        words = {
            "suspend": "resume" if taken_back else "suspend",
            "arm": keys.arm_words(self.around.arming.armed),
        }
        refused = {a for a in ("suspend", "trial") if self._refusal(a)}
        hints = keys.hints(self.KIND, {*grey, *refused}, self.without(), words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def _refusal(self, action: str) -> str:
        """Why that cannot be planned for the one under the cursor; "" when it can."""
        way, routes, place = self._here, self._routes, self.live.place
        if refusal := place.no_mail(self.around.arming.read_only):
            return refusal
        if way is None or routes is None:
            return self.missing("there is no transport here yet")
        if routes.unknown:
            return f"by what mail goes is not known: {routes.unknown}"
        if routes.use(way.name) is Use.FOREIGN:
            return f"{way.name}: {view.foreign(way.name)}"
        if action == "trial" and (place.mail is None or not place.mail.test):
            return "no command is known that sends a test mail here"
        return ""

    def action_suspend(self) -> None:
        """Plan to send nothing by it, or by it again."""
        refusal = HASTY if self.hasty else self._refusal("suspend")
        way, desk = self._here, self.live.place.mail
        if refusal or way is None or desk is None:
            self.say(refusal)
            return
        screen = SuspendScreen(way.name, self.live, desk, self.around)

        def back(_: None) -> None:
            self.paint()
            if screen.outcome:
                self.say(screen.outcome, "good")

        self.app.push_screen(screen, back)

    def action_trial(self) -> None:
        """Plan a test mail by it; while one is being sent, show how that goes."""
        refusal = HASTY if self.hasty else self._refusal("trial")
        way = self._here
        if refusal or way is None:
            self.say(refusal)
        else:
            self.go(Target(keys.TRIAL, id=way.name))

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        self.say(HASTY if self.hasty else self.around.arming.toggle())
        self.paint()

    def action_open(self) -> None:
        """Its errors one by one."""
        way = self._here
        if way is None or not way.failures:
            nothing = self.missing("there is nothing to open")
            self.say("no error of it is known, one by one" if way else nothing)
        else:
            self.go(Target(keys.FAILURES, id=way.name))

    def copies(self) -> tuple[Copy, ...]:
        """The name of the one under the cursor, its last error, and what suspends it."""
        way = self._here
        if way is None:
            return ()
        latest = max(way.faults, key=lambda fault: fault.last, default=None)
        errors = (Copy("e", "last error", latest.example),) if latest is not None else ()
        told = next((failure.text for failure in way.failures if failure.text), "")
        words = (Copy("w", "the server's words", told),) if told else ()
        if self.without() or self._refusal("suspend"):
            return (Copy("n", "name", way.name), *errors, *words)
        verb = "resume" if self._routes and way.name in self._routes.stopped else "suspend"
        command = shlex.join((*self.live.place.command, "mail", verb, way.name))
        return (Copy("n", "name", way.name), *errors, *words, Copy("c", "command", shown(command)))
