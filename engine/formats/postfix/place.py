"""Open a place of Postfix: its instance, our marks, its log, its facts, and the doctor's checks."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress

from engine.doctor.finding import Finding, bad
from engine.formats.base.format import Setup
from engine.formats.postfix import facts
from engine.formats.postfix.doctor import check_instance
from engine.formats.postfix.instance import Instance, open_instance
from engine.formats.postfix.log_lines import NEW_LINES
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Task
from engine.places.place import CopiedLog, Place
from engine.programs.log_copy import LogCopy
from engine.programs.mail_accounts import MailAccounts
from engine.programs.mail_log import MailLog, local_paths
from engine.programs.mail_store import MailStore
from engine.programs.prefix import path_of, prefix_of
from engine.programs.prefix_checks import check_prefix
from engine.programs.server_watch import LastCounts
from engine.store import Unavailable
from engine.text.times import format_time

SUDO_PROGRAMS = ("postconf", "postqueue", "postsuper", "postcat")
"""The programs that a rule of sudo on another host must allow."""


class Listing(LastCounts[facts.ListingCounts]):
    """What this process shares of a place: the counts of its last listing, and accounts."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts = MailAccounts()


def parse_settings(section: None) -> Listing:
    """What this process shares of a place: there are no settings."""
    return Listing()


def find_instance(setup: Setup) -> Instance:
    """The instance of a place.

    Raises:
        Unavailable: see `instance.open_instance`.
    """
    instance = open_instance(path_of(setup.address), prefix_of(setup.config, setup.address))
    if not instance.is_local or not instance.uid:
        return instance
    return instance._replace(sudo=setup.sudo_command("root"))


def open_store(setup: Setup) -> MailStore:
    """Open the queue of a place.

    Raises:
        Unavailable: its settings cannot be read.
    """
    listing: Listing = setup.settings

    def listed(counts: facts.ListingCounts) -> None:
        listing.counts = counts

    marks, accounts = Marks(setup.state_folder), listing.accounts
    instance = find_instance(setup)
    server = PostfixServer(instance, marks, listed=listed, accounts=accounts)
    log = facts.log_of(instance)._replace(facts=NEW_LINES)
    return MailStore(server, listed=listing.note, log=log, logged=listing.logged)


def find_log(setup: Setup) -> MailLog:
    """The log that the settings of its instance name.

    Raises:
        Unavailable: they cannot be read.
    """
    return facts.log_of(find_instance(setup))


def complete_place(setup: Setup, place: Place) -> Place:
    """The place with the facts of its instance, which decides when a message is tried."""
    accounts: MailAccounts = setup.settings.accounts
    watch = facts.watch_instance(
        lambda: find_instance(setup),
        setup.settings,
        lambda: accounts.describe() if accounts.why else "",
    )
    log = None
    with suppress(Unavailable):  # opening the store reports it
        log = None if setup.address.is_url else find_log(setup)
    copy = LogCopy(lambda: find_log(setup), setup.state_folder)
    return place._replace(
        queue_figures=watch.figures,
        server=facts.SERVER,
        listed_at=lambda: setup.settings.at,
        moved_in_listing=lambda: setup.settings.moved,
        unread_accounts=accounts.describe,
        claim_obstacle=lambda kind: "",
        server_logs=local_paths(log),
        log_copy=CopiedLog(copy.path, copy.fetch) if setup.address.is_url else None,
    )


def describe_next_tries(setup: Setup, tasks: Sequence[Task]) -> Mapping[str, str]:
    """The time of a message's file; the queue manager looks at it later, at its next run.

    Raises:
        Unavailable: the settings of its instance cannot be read.
    """
    instance = find_instance(setup)
    delay = instance.seconds("queue_run_delay")
    run = f"queue run each {delay:.0f}s"
    state = facts.server_state(facts.find_master(instance), setup.settings.counts)
    if state.is_running is False:
        return {one.id: f"not before its start: {state.stopped}" for one in tasks}
    due = {one.id: one.due for one in tasks if one.due}
    by = {id: format_time(when + delay).partition(" ")[2] for id, when in due.items()}
    waiting = {one.id: "now: it is not deferred" for one in tasks if one.due == 0}
    return waiting | {
        id: f"due {format_time(when)}, tried by {by[id]} ({run})" for id, when in due.items()
    }


def check_place(setup: Setup) -> Generator[tuple[str, Finding], None, bool]:
    """Check the instance of a place; return True if its queue can be checked too."""
    try:
        instance = find_instance(setup)
    except Unavailable as error:
        yield "program", bad(str(error))
        with suppress(Unavailable):  # `via` has no such name: it is the finding above
            prefix = prefix_of(setup.config, setup.address)
            yield from check_prefix(prefix, [f"/usr/sbin/{name}" for name in SUDO_PROGRAMS])
        return False
    programs = [f"{instance.programs}{name}" for name in SUDO_PROGRAMS]
    yield from check_prefix(instance.prefix, programs)
    marks = Marks(setup.state_folder)
    yield from check_instance(
        instance, lambda listed: PostfixServer(instance, marks, listed=listed)
    )
    return True
