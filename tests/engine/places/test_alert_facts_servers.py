"""Console, `overview` and `status` raise the same alerts for one real mail server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from tests.engine.places.test_alert_facts import by_console, by_status, texts_of_overview
from tests.postfix_server import PostfixInstance, new_instance

FLOODER = "news@shop.example"


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A real server on which much is wrong: 501 of its 520 mails are of one sender, one file is
    damaged, its disk is too small, and its settings keep mail."""
    with new_instance() as instance:
        instance.configure("soft_bounce = yes\n")
        instance.start()
        ids = instance.deferred(501, sender=FLOODER)
        instance.deferred(20)
        (path,) = instance.queue.glob(f"deferred/*/{ids[0]}")
        path.rename(instance.queue / "corrupt" / ids[0])
        instance.configure(f"soft_bounce = yes\nqueue_minfree = {1 << 60}\n")
        yield instance


def setup_of(server: PostfixInstance, folder: Path) -> Setup:
    """The setup of its place: mail is old after a second."""
    config = folder / "spooldeck.yaml"
    config.write_text("alerts: {oldest: 1}\n")
    return setup_for(queue_config.load_config(str(config), {}), str(server.config), os.environ)


def texts(server: PostfixInstance, folder: Path) -> list[str]:
    """The texts of the alerts of a place, which are the same for all readers; without ages."""
    setup = setup_of(server, folder)
    texts_by = {
        "status": [alert.text for alert in by_status(setup)],
        "console": [alert.text for alert in by_console(setup)],
        "overview": texts_of_overview(setup),
    }
    found = {
        name: sorted(re.sub(r" for \d\S* |^[0-9.]+ ", " ", text) for text in some)
        for name, some in texts_by.items()
    }
    assert found["console"] == found["overview"] == found["status"]
    return found["status"]


def test_all_readers_find_what_is_wrong_with_a_server(
    server: PostfixInstance, tmp_path: Path
) -> None:
    """One sender floods, mail is old, a file is damaged, the disk is small, settings keep mail;
    then it is stopped too."""
    (damaged,) = (server.queue / "corrupt").iterdir()
    wrong = [
        " GB free for the queue: below 1.7 EB mail is refused",
        " problem",
        f"corrupt: {damaged.name}",
        "defer_transports = smtp: not tried until a flush",
        f"{FLOODER}: 500 of 520",
        "oldest in deferred (over 1s)",
        "soft_bounce = yes: mail that failed for good stays, tried...",
    ]
    assert texts(server, tmp_path) == wrong

    server.stop()
    assert texts(server, tmp_path) == sorted([*wrong, "Postfix is stopped: 520 wait"])
