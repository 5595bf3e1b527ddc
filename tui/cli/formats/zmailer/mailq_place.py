"""Open a ZMailer scheduler by its MAILQ protocol."""

from __future__ import annotations

from engine.formats.zmailer.mailq_store.place import parse_place
from engine.formats.zmailer.mailq_store.store import MailqStore
from tui.cli.setup.setup import Setup


def open_mailq(setup: Setup) -> MailqStore:
    """Open the store of a scheduler.

    Raises:
        Unavailable: it cannot be reached.
    """
    return MailqStore(parse_place(setup.address))
