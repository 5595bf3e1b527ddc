"""The ways of sending mail, one to a file, and which of them is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from engine.config.mail_config import MEMORY, METHODS, NOWHERE, MailSettings
from engine.mail.model import Cause, Transport, Unused, absent
from engine.mail.transports.installed import System


class TransportChoice(NamedTuple):
    """The transport that is used now."""

    transport: Transport | None
    """None when there is none."""
    why_not: Mapping[str, Unused]
    """By the name of each that would have come before it, or of all, why it is not used."""


class TransportRegistry:
    """The transports of this machine. Each is looked at once, and only when it is asked for."""

    def __init__(
        self,
        settings: MailSettings,
        transports: Mapping[str, Transport] | None = None,
        system: System | None = None,
    ) -> None:
        """`transports` are all there are, by their names; None: those of `system`, or else of this
        machine."""
        self._settings = settings
        self._system = system or System()
        self._given = transports
        self._known: dict[str, tuple[Transport | None, Unused | None]] = {}

    def names(self) -> tuple[str, ...]:
        """The transports in the order in which they are looked for."""
        others = [name for name in self._given or () if name not in METHODS]
        if self._settings.method == MEMORY and MEMORY not in others:
            others.append(MEMORY)
        first = ["curl"] if self._settings.prefer_relay and self._settings.host else []
        return tuple(dict.fromkeys((*first, *METHODS, *others)))

    def absence(self, name: str) -> str:
        """Why a transport cannot be used here, in words, as it was when it was first asked; "" if
        it can.
        """
        why = self._look(name)[1]
        return why.words if why else ""

    def choose(self, suspended: Collection[str] = ()) -> TransportChoice:
        """The first transport that is there and that no operator has suspended.

        A forced one is the only one: nothing takes its place when it is not there.
        """
        why_not: dict[str, Unused] = {}
        for name in self.names():
            why = self._unwanted(name) or self._look(name)[1]
            if why is None and name in suspended:
                why = Unused(Cause.SUSPENDED, "suspended by operator")
            if why is None:
                return TransportChoice(self._look(name)[0], why_not)
            why_not[name] = why
        return TransportChoice(None, why_not)

    def _unwanted(self, name: str) -> Unused | None:
        forced = self._settings.method
        if forced in ("", name):
            return None
        none = "no mail is sent: the method is none"
        other = f"another method is forced: {forced}"
        return Unused(Cause.BARRED, none if forced == NOWHERE else other)

    def _look(self, name: str) -> tuple[Transport | None, Unused | None]:
        if name not in self._known:
            transport = self._found(name)
            why = absent("not there") if transport is None else transport.absence()
            self._known[name] = transport, why
        return self._known[name]

    def _found(self, name: str) -> Transport | None:
        if self._given is not None:
            return self._given.get(name)
        return _MADE[name](self._settings, self._system)


# A module is imported once somebody asks for its transport: most processes use one, or none.


def _postfix(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.postfix import Postfix

    return Postfix(settings, system)


def _sendmail(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.sendmail import Sendmail

    return Sendmail(settings, system)


def _exim(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.exim import Exim

    return Exim(settings, system)


def _msmtp(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.msmtp import Msmtp

    return Msmtp(settings, system)


def _curl(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.curl import Curl

    return Curl(settings, account=system.account)


def _mailx(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.mailx import Mailx

    return Mailx(settings, system)


def _memory(settings: MailSettings, system: System) -> Transport:
    from engine.mail.transports.memory import MemoryTransport

    return MemoryTransport()


_MADE: Mapping[str, Callable[[MailSettings, System], Transport]] = {
    "postfix": _postfix,
    "sendmail": _sendmail,
    "exim": _exim,
    "msmtp": _msmtp,
    "curl": _curl,
    "mailx": _mailx,
    MEMORY: _memory,
}
