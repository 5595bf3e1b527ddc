"""A transport that keeps every mail in memory and sends none, for tests and demos."""

from collections.abc import Callable, Iterable

from engine.config.mail_config import MEMORY
from engine.mail.model import Mail, NotSent, Unused


class MemoryTransport:
    """Appends each mail to a list, or fails as configured."""

    name = MEMORY

    def __init__(self, failures: Iterable[NotSent | None] = ()) -> None:
        """`failures` are the results of the first attempts, None for success; later attempts
        succeed."""
        self.mails: list[Mail] = []
        """The accepted mails, in order."""
        self._failures = iter(failures)

    def absence(self) -> Unused | None:
        """It is always there."""
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Keep the mail.

        Raises:
            NotSent: the next configured failure.
        """
        failure = next(self._failures, None)
        if failure:
            raise failure
        self.mails.append(mail)
