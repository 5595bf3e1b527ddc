"""Facts, warnings and findings about an instance: what a listing and the settings show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.doctor.finding import Grade
from engine.formats.postfix.facts import (
    LastListing,
    ListingFacts,
    PostfixWatch,
    check_instance,
    listing_warnings,
    read_figures,
    setting_warnings,
    space_warnings,
)
from engine.formats.postfix.instance import SETTING_NAMES, open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Move, State, Task
from engine.programs.mail_store import MailStore
from engine.verbs import with_state
from tests.postfix_server import PostfixInstance, running_instance

SETTINGS = dict.fromkeys(SETTING_NAMES, "") | {"qmgr_message_active_limit": "20000"}
QUIET = ListingFacts(is_running=True)


@pytest.fixture(scope="module")
def postfix() -> Iterator[PostfixInstance]:
    """An instance that runs."""
    with running_instance() as instance:
        yield instance


@pytest.mark.parametrize(
    ("facts", "warning"),
    [
        (QUIET, ""),
        (
            QUIET._replace(is_running=False, waiting=3, warnings=("it is down",)),
            "Postfix is stopped, 3 messages waiting: postfix start",
        ),
        (
            QUIET._replace(incoming=1001, active=5),
            "the queue manager is behind: incoming 1,001, active 5",
        ),
        (QUIET._replace(incoming=1000, active=19_999), ""),
        (
            QUIET._replace(active=20_000),
            "the queue manager is behind: incoming 0, active 20,000",
        ),
        (
            QUIET._replace(suspended=2),
            "2 messages for destinations that Postfix has stopped to ask: see their reasons",
        ),
        (
            QUIET._replace(corrupt=("corrupt/4EBEB2DA019",)),
            "1 damaged file in queue corrupt: corrupt/4EBEB2DA019",
        ),
        (
            QUIET._replace(delivered=1),
            "1 message on hold delivered before: L lets Postfix remove them",
        ),
        (QUIET._replace(held_pids=("26872",)), "held, but in delivery: PID 26872 goes on"),
        (QUIET._replace(overdue=4), "4 messages in the trash past 24h: expunge them"),
        (
            QUIET._replace(lost=1),
            "1 purged message released or deleted by another operator: not in the trash",
        ),
        (QUIET._replace(warnings=("main.cf:\x1b[31m twice",)), "main.cf:\ufffd[31m twice"),
    ],
)
def test_each_fact_of_a_listing_has_its_warning(facts: ListingFacts, warning: str) -> None:
    """A quiet listing has none."""
    assert [*listing_warnings(facts, SETTINGS)] == ([warning] if warning else [])


def test_settings_by_which_mail_waits() -> None:
    """They are named with their values."""
    assert [*setting_warnings(SETTINGS)] == []
    odd = SETTINGS | {"soft_bounce": "yes", "defer_transports": "smtp"}
    assert [text.partition(":")[0] for text in setting_warnings(odd)] == [
        "soft_bounce = yes",
        "defer_transports = smtp",
    ]


def test_a_listing_is_counted(postfix: PostfixInstance) -> None:
    """The facts of a listing have the number of messages in each place, and of marks that no
    message has any more."""
    listing, now = LastListing(), [time.time()]
    marks = Marks(str(postfix.marks))
    instance = open_instance(str(postfix.config))
    server = PostfixServer(instance, marks, lambda: now[0], listing.keep)
    before = read_figures(instance, listing.facts)
    assert ("master", "? (not listed yet)") in before.rows and before.has_worker is None
    ids = postfix.deferred(4)
    with closing(MailStore(server, lambda: now[0])) as store:
        tasks = [*{t.id: t for t in store.scan() if isinstance(t, Task)}.values()]
        moves = [Move(task, with_state(task, State.TRASH)) for task in tasks if task.id != ids[0]]
        assert [outcome.error for outcome in store.swap_all(moves)] == [None] * 3
        postfix.run("postsuper", "-d", ids[1])
        now[0] += 90_000
        store.count_tasks()
    assert listing.facts == ListingFacts(is_running=True, waiting=1, trashed=2, overdue=2, lost=1)
    figures = PostfixWatch(lambda: instance, listing).figures()
    assert figures.has_worker and len(figures.workers) == 1
    assert dict(figures.rows)["master"] == f"PID {figures.workers[0]}"
    assert any("released or deleted" in text for text in figures.warnings)


def test_the_doctor_shows_rights_and_settings(postfix: PostfixInstance) -> None:
    """Each check has a line; without root, the line for sudoers is there."""
    instance = open_instance(str(postfix.config))
    found = dict(check_instance(instance, QUIET))
    assert set(found) == {"postfix", "rights", "next attempts", "queue", "settings", "disk", "ids"}
    assert found["settings"].grade is Grade.WARN  # the test has defer_transports
    assert found["rights"].grade is found["queue"].grade is Grade.OK
    blind = QUIET._replace(is_running=False, has_times=False, can_look=False)
    found = dict(check_instance(instance._replace(uid=1000), blind))
    assert found["rights"].grade is found["next attempts"].grade is Grade.HIDDEN
    assert "NOPASSWD: /usr/sbin/postqueue" in found["rights"].fix
    assert found["queue"].grade is Grade.BAD


def test_little_space_is_a_warning(postfix: PostfixInstance) -> None:
    """Less than 1.5 times what Postfix needs to take mail is reported, with both numbers."""
    instance = open_instance(str(postfix.config))
    assert not [*space_warnings(instance)]
    huge = instance._replace(settings={**instance.settings, "queue_minfree": str(1 << 60)})
    (text,) = space_warnings(huge)
    assert "free for the queue: below" in text
