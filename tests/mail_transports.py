"""Ways of sending mail for a place under test: real suspensions, and what is said to be there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.config.mail_config import METHODS
from engine.mail.send.suspensions import Suspensions
from engine.monitor.transport_health import MailBacklog, MailRoutes, TransportSuspension
from engine.places.place import PlaceMail
from engine.store import Unavailable

INSTALLED = ("postfix", "curl")
"""Those that are installed; the others are not."""

SAYS = "import sys; print('asking', *sys.argv[1:], flush=True)"
"""A command that prints its arguments, in place of the one that sends a test mail."""


class PlaceTransports:
    """What a place is handed, and what a test changes behind its back."""

    def __init__(
        self, folder: Path, clock: Callable[[], float], installed: tuple[str, ...] = INSTALLED
    ) -> None:
        self.suspensions = Suspensions(str(folder / "suspended"))
        self.clock, self.installed = clock, installed
        self.recipient, self.forced = "admin@example.com", ""
        self.records = folder / "delivery.jsonl"
        self.noted: list[str] = []
        self.fails = ""
        self.heap = MailBacklog(0, 0.0)

    def routes(self, stopped: Mapping[str, TransportSuspension]) -> MailRoutes:
        """The first that is there, and is not suspended."""
        if self.fails:
            raise Unavailable(self.fails)
        allowed = (self.forced,) if self.forced else METHODS
        usable = [name for name in allowed if name in self.installed and name not in stopped]
        why_not = {n: f"no {n} is installed" for n in METHODS if n not in self.installed}
        own: dict[str, Any] = {"forced": self.forced, "recipient": self.recipient}
        return MailRoutes(METHODS, usable[0] if usable else "", why_not, stopped=stopped, **own)

    def stopped(self) -> Mapping[str, TransportSuspension]:
        """Those that are suspended."""
        read = self.suspensions.read()
        return {name: TransportSuspension(*suspension) for name, suspension in read.items()}

    def look(self) -> MailBacklog:
        """What lies in the spool."""
        if self.fails:
            raise Unavailable(self.fails)
        return self.heap

    def suspend(self, name: str, why: str) -> str:
        """As ana; what could not be written down about it."""
        if not self.suspensions.suspend(name, self.clock(), "ana", why):
            raise Unavailable(f"another operator suspended {name} first")
        self.noted.append(f"suspended {name}: {why}")
        return ""

    def resume(self, name: str) -> str:
        """The same the other way."""
        if not self.suspensions.resume(name):
            raise Unavailable(f"another operator resumed {name} first")
        self.noted.append(f"resumed {name}")
        return ""

    def place_mail(self, program: str = SAYS) -> PlaceMail:
        """What a place is handed; `program` is the program in place of a test mail."""
        more: dict[str, Any] = {"records": lambda: (str(self.records), 500), "backlog": self.look}
        more["test_command"] = (sys.executable, "-c", program)
        return PlaceMail(self.stopped, self.routes, self.suspend, resume=self.resume, **more)
