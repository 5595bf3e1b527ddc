"""Console, `overview` and `status` raise the same alerts for one real mail server."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from tests.engine.places.test_alert_facts import by_console, by_status, texts_of_overview
from tests.exim_server import SPOOL, running_overlay
from tests.postfix_server import PostfixInstance, new_instance

FLOODER = "news@shop.example"


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A server with 501 of 520 mails of one sender, damage, a small disk, and mail kept."""
    with new_instance() as instance:
        instance.configure("soft_bounce = yes\n")
        instance.start()
        ids = instance.deferred(501, sender=FLOODER)
        instance.deferred(20)
        (path,) = instance.queue.glob(f"deferred/*/{ids[0]}")
        path.rename(instance.queue / "corrupt" / ids[0])
        instance.configure(f"soft_bounce = yes\nqueue_minfree = {1 << 60}\n")
        yield instance


def texts(place: str, folder: Path, config: str) -> list[str]:
    """The texts of the alerts of a place, which are the same for all readers; without ages."""
    path = folder / "spooldeck.yaml"
    path.write_text(config)
    loaded = queue_config.load_config(str(path), {})
    setup = setup_for(loaded, place, os.environ)._replace(state_folder=str(folder / "state"))
    readers = {"status": by_status, "console": by_console}
    texts_by = {name: [alert.text for alert in read(setup)] for name, read in readers.items()}
    texts_by["overview"] = texts_of_overview(setup)
    ages = re.compile(r" for \d\S* |^[0-9.]+ ")
    found = {name: sorted(ages.sub(" ", text) for text in some) for name, some in texts_by.items()}
    assert found["console"] == found["overview"] == found["status"]
    return found["status"]


def test_readers_find_what_is_wrong_with_a_server(server: PostfixInstance, tmp_path: Path) -> None:
    """Flood, old mail, damage, a small disk, settings that keep mail; then it is stopped."""
    (damaged,) = (server.queue / "corrupt").iterdir()
    wrong = [
        " GB free for the queue: below 1.7 EB mail is refused",
        " problem",
        f"corrupt: {damaged.name}",
        "defer_transports = smtp: not tried until a flush",
        f"{FLOODER}: 500 of 520",
        "oldest in deferred (over 1s)",
        "soft_bounce = yes: mail that failed for good is tried again",
    ]
    place, config = str(server.config), "alerts: {oldest: 1}\n"  # mail is old after a second
    assert texts(place, tmp_path, config) == wrong
    server.stop()
    assert texts(place, tmp_path, config) == sorted([*wrong, "Postfix is stopped: 520 wait"])


def test_all_readers_find_what_is_wrong_with_an_exim(tmp_path: Path) -> None:
    """No daemon, kept and frozen mail, and mail moved to the trash by hand."""
    with running_overlay(tmp_path) as exim:
        exim.configure("timeout_frozen_after = 2h\nqueue_only\n")
        _, frozen, moved = exim.submit(number=3)
        exim.run("-Mf", frozen)
        exim.run("-MG", "spooldeck-trash", moved)
        words = json.dumps(exim.prefix)
        assert texts(f"exim://jail{SPOOL}", tmp_path, f"via: {{jail: {words}}}\n") == [
            " frozen, ended by Exim within 24h: X to its trash queue",
            " in the trash queue moved by hand: never deleted",
            " message frozen, bounces not counted: L releases",
            "no Exim daemon runs: 1 wait",
            "queue_only is set: mail waits for the next queue run",
        ]
