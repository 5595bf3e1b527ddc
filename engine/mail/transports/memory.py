"""The transport that keeps every mail and sends none: for tests, and for demonstrations."""

from collections.abc import Callable, Iterable

from engine.config.mail_config import MEMORY
from engine.mail.model import Mail, NotSent, Unused


class MemoryTransport:
    """Accepts mail into a list; or fails as it is told, one attempt after the other."""

    name = MEMORY

    def __init__(self, failures: Iterable[NotSent | None] = ()) -> None:
        """`failures` is what happens at the first attempts, None where one succeeds; after the
        last of them all do."""
        self.mails: list[Mail] = []
        """What was accepted, in order."""
        self._failures = iter(failures)

    def absence(self) -> Unused | None:
        """It is always there."""
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Keep the mail.

        Raises:
            NotSent: as it was told to fail.
        """
        failure = next(self._failures, None)
        if failure:
            raise failure
        self.mails.append(mail)
