"""Send mail with msmtp, to the server in its own configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.config.mail_config import MailSettings
from engine.mail.model import Mail, Unused, absent_because
from engine.mail.transports.base import send_by_sendmail
from engine.mail.transports.installed import System


class Msmtp:
    """msmtp, used if it has a configuration."""

    name = "msmtp"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._msmtp = self._system.find_program(settings.programs, "msmtp")

    def absence(self) -> Unused | None:
        """Return why it cannot be used here: not installed, or no readable configuration."""
        if self._msmtp.absence:
            return absent_because(self._msmtp.absence)
        paths = list(self._configurations())
        if any(map(self._system.is_readable, paths)):
            return None
        return absent_because(f"not configured: cannot read {' or '.join(paths)}")

    def _configurations(self) -> Iterator[str]:
        """Return the paths of its configuration. Source: msmtp(1), "FILES"."""
        environ = self._system.environ
        yield "/etc/msmtprc"
        home = environ.get("HOME", "")
        if home:
            yield f"{home}/.msmtprc"
        config = environ.get("XDG_CONFIG_HOME", "") or (home and f"{home}/.config")
        if config:
            yield f"{config}/msmtp/config"

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Send a mail.

        Raises:
            NotSent: it was not accepted, or that is unknown.
        """
        program, timeout = self._msmtp.path, self._settings.max_time
        send_by_sendmail(
            self.name, program, mail, timeout=timeout, cancelled=cancelled, system=self._system
        )
