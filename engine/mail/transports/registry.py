"""The list of transports, the choice of the one to use, and the one that keeps mail in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from engine.config.mail_config import MEMORY, METHODS, NOWHERE, MailSettings
from engine.mail.model import Cause, Mail, Transport, Unused, absent_because
from engine.mail.transports.installed import System
from engine.values import NamedTuple


class TransportChoice(NamedTuple):
    """The transport to use now."""

    transport: Transport | None
    """None if none can be used."""
    why_not: Mapping[str, Unused]
    """Why each transport before it is not used; if no transport is used, why each is not."""


class TransportRegistry:
    """The transports of this machine. Each is checked once, when first needed."""

    def __init__(
        self,
        settings: MailSettings,
        transports: Mapping[str, Transport] | None = None,
        system: System | None = None,
    ) -> None:
        """`transports` are all transports by name; None: those of `system`, default this
        machine."""
        self._settings = settings
        self._system = system or System()
        self._given = transports
        self._known: dict[str, tuple[Transport | None, Unused | None]] = {}

    def names(self) -> tuple[str, ...]:
        """The transports in order of preference."""
        others = [name for name in self._given or () if name not in METHODS]
        if self._settings.method == MEMORY and MEMORY not in others:
            others.append(MEMORY)
        first = ["curl"] if self._settings.prefer_relay and self._settings.host else []
        return tuple(dict.fromkeys((*first, *METHODS, *others)))

    def absence(self, name: str) -> str:
        """Return why a transport cannot be used here, as of the first check; "" if it can."""
        why = self._check_transport(name)[1]
        return why.reason if why else ""

    def choose(self, suspended: Collection[str] = ()) -> TransportChoice:
        """Choose the first available transport that no operator has suspended. A forced one has no
        fallback."""
        why_not: dict[str, Unused] = {}
        for name in self.names():
            why = self._why_disabled(name) or self._check_transport(name)[1]
            if why is None and name in suspended:
                why = Unused(Cause.SUSPENDED, "suspended by operator")
            if why is None:
                return TransportChoice(self._check_transport(name)[0], why_not)
            why_not[name] = why
        return TransportChoice(None, why_not)

    def _why_disabled(self, name: str) -> Unused | None:
        forced = self._settings.method
        if forced in ("", name):
            return None
        none = "no mail is sent: the method is none"
        other = f"another method is forced: {forced}"
        return Unused(Cause.DISABLED, none if forced == NOWHERE else other)

    def _check_transport(self, name: str) -> tuple[Transport | None, Unused | None]:
        if name not in self._known:
            transport = self._make_transport(name)
            why = absent_because("not there") if transport is None else transport.absence()
            self._known[name] = transport, why
        return self._known[name]

    def _make_transport(self, name: str) -> Transport | None:
        if self._given is not None:
            return self._given.get(name)
        # Imported when it is first needed: most processes use one or none.
        if name == MEMORY:
            return MemoryTransport()
        if name == "curl":
            from engine.mail.transports.curl import Curl

            return Curl(self._settings, account=self._system.account)
        from engine.mail.transports.local_programs import LocalTransport

        return LocalTransport(name, self._settings, self._system)


class MemoryTransport:
    """Keeps every mail in memory and sends none, for tests and demos."""

    name = MEMORY

    def __init__(self) -> None:
        self.mails: list[Mail] = []
        """The accepted mails, in order."""

    def absence(self) -> Unused | None:
        """It is always there."""
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Keep the mail."""
        self.mails.append(mail)
