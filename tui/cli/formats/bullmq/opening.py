"""Open the BullMQ queues of a server."""

from __future__ import annotations

from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from tui.cli.setup.setup import Setup


def open_server(setup: Setup) -> BullmqStore:
    """Open the store of a server; kinds that our own handler delivers have the URL in their data.

    Raises:
        Unavailable: it cannot be reached.
    """
    place = parse_place(setup.address, setup.settings)
    delivered = {kind: "url" for kind, h in setup.config.handlers.items() if h.deliver is not None}
    return BullmqStore(place._replace(fields={**delivered, **place.fields}))
