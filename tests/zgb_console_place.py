"""A mail queue in a database, and a place made of it: for all that concerns a queue as a whole."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.formats.zgb.place import ZgbDatabase as Settings
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.operations.journal import Journal
from engine.places.place import Place, WholeQueueFigures
from tests.console_places import NOW
from tests.journaled_places import ANA
from tests.mail_queue_commands import Database

DAY = 86_400
PAUSE, RATE, REDIRECT = "mailQueueEnabled", "mailMaxPerHour", "mailRedirectToSchumbi"
RETRY, ORPHANS = "retryFailed", "deleteOrphans"


class ZgbConsolePlace(Database):
    """A database with two jobs of one registration, and what is known of it; made if missing."""

    def __init__(self, folder: Path, clock: Callable[[], float] = lambda: NOW) -> None:
        self.path, self.clock = str(folder / "zgb.db"), clock
        self.facts = WholeQueueFigures(
            (("tokens", "3 of 5, the next in 21s"), ("registrations", "1"))
        )
        """What is said of it; another value is read within a second."""
        if Path(self.path).exists():
            return
        create(self.path)
        self.sql("INSERT INTO registrations VALUES (1001, 0)")
        self.settle(**{PAUSE: "1", RATE: "60", "mailTokens": "3", "mailLastRefill": str(int(NOW))})
        with closing(self.open()) as store:
            store.enqueue(1001)

    def open(self) -> ZgbStore:
        """Its store once more."""
        return ZgbStore(Settings(self.path, durable=False), self.clock)

    def setting(self, key: str) -> object:
        """What is set now."""
        ((value,),) = self.sql("SELECT value FROM config WHERE key = ?", key)
        return value

    def in_earnest(self) -> None:
        """Registrations are being taken: the test mode is refused."""
        self.settle(startDate="2026-11-01", endDate="2026-12-31")

    def fail_all(self) -> None:
        """Each job has failed nine times and is parked."""
        parked = "status = 'failed', attempts = 9, next_attempt_at = 253402300799"
        self.sql(f"UPDATE mail_queue SET {parked}")

    @property
    def journal(self) -> Journal:
        """What is done there is written down beside it."""
        state_folder = f"{self.path}.spooldeck.d"
        return Journal(f"{state_folder}/journal", str(Path(self.path).parent), self.clock)

    def place(self, **fields: object) -> Place:
        """All that a console gets of it."""
        given: dict[str, Any] = {"journal": self.journal, "who": ANA, **fields}
        given.setdefault("queue_figures", lambda: self.facts)
        return Place(self.path, self.open, command=("spooldeck", "--root", "/q.db"))._replace(
            **given
        )
