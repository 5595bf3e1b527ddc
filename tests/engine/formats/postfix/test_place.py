"""A Postfix place: what this process shares of it, its next tries, its log."""

import time
from contextlib import closing

import pytest

from engine.config.queue_config import Config
from engine.formats.known_formats import setup_for
from engine.formats.postfix.place import complete_place, describe_next_tries, parse_settings
from engine.places.place import Place
from engine.programs.mail_server import UNSURE
from engine.programs.mail_store import LOGGED
from engine.store import Unavailable
from tests.postfix_server import SINK_DOMAIN, PostfixInstance
from tests.smtp_server import Server
from tests.store_contents import found, tasks_in


def test_next_tries_listings_and_figures_of_a_place(postfix: PostfixInstance) -> None:
    """A stopped server has no next try; the age of the last listing and its counts are known."""
    (ident,) = postfix.deferred(1)
    setup = postfix.setup()
    place = complete_place(setup, Place("mx", setup.open_store))
    assert place.listed_at() is None
    with closing(setup.open_store()) as store:
        tasks = [*tasks_in(store).values()]
    listed_at = place.listed_at()
    assert listed_at is not None and abs(time.time() - listed_at) < 3600
    assert place.unread_accounts() == "accounts of 0 of 1 read"
    running = describe_next_tries(setup, tasks)[ident]
    assert running.startswith("due 20") and running.endswith("(queue run each 300s)")
    assert place.queue_figures and dict(place.queue_figures().rows)["queues"] == "deferred 1"
    with postfix.stopped():
        stopped = describe_next_tries(setup, tasks)[ident]
    assert stopped == "not before its start: Postfix is stopped"
    assert place.server == "Postfix" and place.server_logs[0].endswith("/log/mail.log")


def test_a_new_reason_is_shown_before_the_next_listing(postfix: PostfixInstance) -> None:
    """The log names a message that was tried: a look shows it as the next listing does."""
    (ident,) = postfix.deferred(1, domain=SINK_DOMAIN)  # its port refuses
    setup = postfix.setup()
    with closing(setup.open_store()) as store, closing(setup.open_store()) as watch:
        wait = watch.changes.wait
        assert wait is not None and wait(0.0) == ()
        before = found(store, ident)
        wait(0.0)
        while postfix.listed() and time.time() <= (before.due or 0.0) - 998.0:
            continue  # the time of its file is in seconds
        with Server(port=postfix.sink_port, rcpt="450 4.2.0 greylisted"):
            postfix.run("postqueue", "-i", ident)
            postfix.await_log("greylisted")
            postfix.await_queue([ident], "deferred")
        while f"{ident}{LOGGED}" not in (wait(0.25) or ()):
            continue
        shown, listed = found(store, f"{ident}{LOGGED}"), tasks_in(store)[ident]
    assert "Connection refused" in before.error
    assert shown.error == listed.error and "450 4.2.0 greylisted" in shown.error
    assert (shown.due, shown.rev) == (listed.due, f"{listed.rev}{UNSURE}")


def test_a_folder_without_an_instance_has_no_facts(tmp_path: object) -> None:
    """Its figures have the reason, and no path of a log."""
    setup = setup_for(Config(), f"{tmp_path}", {})._replace(settings=parse_settings(None))
    place = complete_place(setup, Place("mx", setup.open_store))
    assert place.server_logs == () and place.queue_figures is not None
    with pytest.raises(Unavailable, match=str(tmp_path)):
        place.queue_figures()
