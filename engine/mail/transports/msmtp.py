"""Mail handed to msmtp, which speaks to the server that its own configuration names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.config.mail_config import MailSettings
from engine.mail.model import Mail, Unused, absent
from engine.mail.transports.base import submit
from engine.mail.transports.installed import System


class Msmtp:
    """msmtp, where it is configured."""

    name = "msmtp"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._msmtp = self._system.program(settings.programs, "msmtp")

    def absence(self) -> Unused | None:
        """Why it cannot be used here: not installed, or nothing to read on where mail goes."""
        if self._msmtp.absence:
            return absent(self._msmtp.absence)
        paths = list(self._configurations())
        if any(map(self._system.readable, paths)):
            return None
        return absent(f"not configured: no {' or '.join(paths)} that we may read")

    def _configurations(self) -> Iterator[str]:
        """Where it looks for its configuration. Source: msmtp(1), "FILES"."""
        environ = self._system.environ
        yield "/etc/msmtprc"
        home = environ.get("HOME", "")
        if home:
            yield f"{home}/.msmtprc"
        config = environ.get("XDG_CONFIG_HOME", "") or (home and f"{home}/.config")
        if config:
            yield f"{config}/msmtp/config"

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Have it sent.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._msmtp.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
