"""Facts and warnings about a real instance."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.formats.base.format import Setup
from engine.formats.postfix import facts
from engine.formats.postfix.facts import ListingCounts, count_listing, count_marks
from engine.formats.postfix.instance import SETTING_NAMES, Instance, open_instance
from engine.formats.postfix.marks import Mark
from engine.model import State
from engine.places.place import WholeQueueFigures
from engine.programs.prefix import HERE
from engine.programs.server_watch import LogEnd, ServerProcess
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, errors, new_instance
from tests.store_contents import found
from tests.tables import each

EMPTY = dict.fromkeys(facts.QUEUES.values(), 0)
QUIET = ListingCounts(EMPTY)
SETTINGS = dict.fromkeys(SETTING_NAMES, "0") | {
    "qmgr_message_active_limit": "20000",
    "defer_transports": "",
}
NOT_IN_TRASH = "not in the trash any more: released, deleted, delivered, or never held"
IN_TRASH = "in the trash for over 24h: expunge it"
SUSPENDED = {"suspended": 3, "destinations": tuple((f"d{n}.test", 1) for n in range(5))}
NOW = 1_795_900_000.0
DAY = 86_400.0


def listed(setup: Setup) -> ListingCounts:
    """The counts of a listing of the place."""
    with closing(setup.open_store()) as store:
        store.count_tasks()
    counts: ListingCounts = setup.settings.counts
    return counts


def figures_of(postfix: PostfixInstance, now: float | None = None) -> WholeQueueFigures:
    """The facts of this moment, after a listing."""
    counts = listed(postfix.setup())
    return figures_by(open_instance(str(postfix.config)), counts, now or time.time())


def figures_by(instance: Instance, counts: ListingCounts, now: float) -> WholeQueueFigures:
    """The facts of a moment."""
    return facts.describe_facts(instance, facts.read_host(instance, counts, now), counts, now)


def instance_of(**settings: str) -> Instance:
    """An instance of which only the settings are used."""
    return Instance("/etc/mta", HERE, "/usr/sbin/", SETTINGS | settings, uid=0, device=None)


@each(
    ("counts", "warning"),
    [
        ({}, ""),
        ({"incoming": 1001}, "1,001 incoming: the queue manager is the bottleneck"),
        ({"incoming": 1000, "active": 19_999}, ""),
        ({"active": 20_000}, "active queue full: 20,000 of 20,000, new mail waits too"),
        (SUSPENDED, "suspended, 3 messages: d0.test, d1.test, d2.test and 2 more"),
        ({"delivered": 1}, "1 message delivered while held: L lets Postfix remove it"),
        ({"held_pids": ("26872",)}, "held, but in delivery: PID 26872 goes on"),
        ({"trashed_at": (NOW - DAY - 1, NOW - DAY + 60)}, f"1 message {IN_TRASH}"),
        ({"released_at": (NOW - 151, NOW - 149)}, f"1 purged message {NOT_IN_TRASH}"),
        ({"damaged": ("4EBEB2DA019",)}, "corrupt: 4EBEB2DA019"),
        ({"warnings": ("main.cf:\x1b[31m twice",)}, "main.cf:\ufffd[31m twice"),
        ({"warnings": ("Mail system is down",)}, ""),
    ],
)
def test_each_fact_of_a_listing_has_its_warning(counts: dict[str, Any], warning: str) -> None:
    """A quiet listing has none."""
    queues = {name: number for name, number in counts.items() if name in EMPTY}
    others = {name: value for name, value in counts.items() if name not in EMPTY}
    listing = QUIET._replace(queues=EMPTY | queues, **others)
    warnings = [text for _, text in facts.count_warnings(instance_of(), listing, NOW)]
    assert warnings == [warning] * bool(warning)


def test_a_warning_about_messages_names_their_state() -> None:
    """The overview lists them at once, instead of the controls of the queue."""
    counts = QUIET._replace(delivered=1, trashed_at=(NOW - DAY - 1,), damaged=("4EBEB2DA019",))
    host = facts.HostFacts(ServerProcess(pid=5))
    figures = facts.describe_facts(instance_of(), host, counts, NOW)
    assert [*figures.warned_states.values()] == [State.HELD, State.TRASH]
    assert figures.warned_states.keys() < {*figures.warnings}


@each(
    ("end", "warning"),
    [
        (LogEnd(), ""),
        (LogEnd(last=NOW - 899), ""),
        (LogEnd(last=NOW - 1020), "queue manager silent for 17m, mail is due"),
        (LogEnd(since=NOW - 899), ""),
        (LogEnd(since=NOW - 1020), "queue manager silent for 17m+, mail is due"),
        (LogEnd(problem="tail: no"), "log unreadable: tail: no"),
    ],
)
def test_a_silent_queue_manager_is_a_warning(end: LogEnd, warning: str) -> None:
    """It is silent by its last line, or as long as the log goes back."""
    assert [*facts.silence_warnings(end, NOW)] == ([warning] if warning else [])


def test_settings_by_which_mail_stays() -> None:
    """They are named with their values."""
    assert not [*facts.setting_warnings(instance_of())]
    warnings = facts.setting_warnings(instance_of(soft_bounce="yes", defer_transports="smtp"))
    names = [one.partition(":")[0] for one in warnings]
    assert names == ["soft_bounce = yes", "defer_transports = smtp"]


def test_domains_of_suspended_destinations_are_counted() -> None:
    """By each recipient's own reason; their state is known if all are pending."""
    reason = '"delay_reason": "delivery temporarily suspended: lost"'
    records = {
        "A": b'd5, "recipients": [{"address": "a@X.test", %b},'
        b' {"address": "b@y.test", "delay_reason": "450 no"}]}' % reason.encode(),
        "B": b'h5, "recipients": []}\n1 2 700',
    }
    counts = count_listing(records, ["B"], ["A"])
    assert counts.suspended_state is State.PENDING
    of_two_states = count_listing(records, ["B"], ["A", "B"])
    assert (of_two_states.suspended, of_two_states.suspended_state) == (2, None)
    expired = {"A": records["A"].replace(b"d5", b'd5, "message_size": 9, "forced_expire": true')}
    assert count_listing(expired, [], ["A"]).suspended_state is None
    assert (counts.suspended, counts.destinations) == (1, (("x.test", 1),))
    assert (counts.queues["deferred"], counts.queues["hold"], counts.delivered) == (1, 1, 1)
    assert counts.waiting == 1


def test_marks_without_their_message_are_counted() -> None:
    """A purged message that is not in the trash was released or deleted by another operator."""
    marks = {one: Mark(one, "", "", "deferred", at=at, who="") for one, at in (("A", 1), ("B", 2))}
    assert count_marks(marks, {"A"}) == ((1,), (2,))


def test_a_running_and_a_stopped_instance_are_known(postfix: PostfixInstance) -> None:
    """A running one by its process; once it is stopped, its old PID file proves that,
    and the listing without that file."""
    postfix.deferred(2)
    log, figures = postfix.log(), figures_of(postfix)
    assert postfix.log() == log  # nothing is written into it
    server = figures.server
    assert server is not None and server.is_running and server.since is not None
    pid = int((postfix.queue / "pid/master.pid").read_text())
    assert (server.pid, figures.workers, figures.has_worker) == (pid, (pid,), True)
    assert 0 <= time.time() - server.since < 3600
    text = server.describe(None, time.time())
    assert text.startswith(f"Postfix delivers: running, PID {pid}, since ")
    assert dict(figures.rows)["queues"] == "deferred 2"
    assert [one.partition(" ")[0] for one in figures.warnings] == ["defer_transports"]
    before = postfix.server().fingerprint()
    with postfix.stopped():
        stopped = figures_of(postfix)
        by_listing = facts.server_state(ServerProcess(), listed(postfix.setup()))
        assert postfix.server().fingerprint() != before
    instance = open_instance(str(postfix.config))
    assert by_listing.is_running is False
    assert stopped.server is not None and stopped.workers == ()
    assert stopped.server.describe(2, 0.0) == "Postfix is stopped: 2 wait"
    assert facts.server_state(facts.find_master(instance), None).is_running


def test_trash_held_and_corrupt_messages_are_warned_of(postfix: PostfixInstance) -> None:
    """What is in the trash for a day, what another operator has released, and a damaged file."""
    ids = postfix.deferred(4)
    with closing(postfix.store()) as store:
        assert errors(store, [found(store, ident) for ident in ids[:3]], "purge") == [None] * 3
    postfix.run("postsuper", "-d", ids[0])
    postfix.run("postsuper", "-H", ids[1])
    (path,) = postfix.queue.glob(f"deferred/*/{ids[3]}")
    damaged = path.rename(postfix.queue / "corrupt" / ids[3])
    warnings = figures_of(postfix, time.time() + DAY + 60).warnings
    damaged.unlink()
    expected = {f"1 message {IN_TRASH}", f"2 purged messages {NOT_IN_TRASH}", f"corrupt: {ids[3]}"}
    assert {*warnings} >= expected


def test_suspended_destinations_are_named() -> None:
    """Destinations that the queue manager has stopped to ask are counted and named."""
    with new_instance() as instance:
        instance.configure("defer_transports =\ninitial_destination_concurrency = 1\n")
        instance.start()  # nothing listens at the port of the sink
        ids = instance.send(5, domain=SINK_DOMAIN)
        instance.await_queue(ids, "deferred")
        figures = figures_of(instance)
    suspended = dict(figures.rows)["suspended"]
    assert suspended.endswith(f": {SINK_DOMAIN}")
    assert f"suspended, {suspended}" in figures.warnings


def test_silence_is_found_in_the_log(postfix: PostfixInstance, tmp_path: Path) -> None:
    """The last line of the queue manager is found in its own log; without a file, the reason."""
    (ident,) = postfix.deferred(1)
    instance = open_instance(str(postfix.config))
    end = facts.log_end(instance)
    assert end.last is not None and abs(time.time() - end.last) < 3600
    (path,) = postfix.queue.glob(f"deferred/*/{ident}")
    later = path.stat().st_mtime + 1300
    warnings = figures_by(instance, listed(postfix.setup()), later).warnings
    assert any(one.startswith("queue manager silent for") for one in warnings)
    gone, container = (
        facts.read_host(postfix.server(maillog_file=name).instance, None, 0.0).warnings
        for name in (f"{tmp_path}/none", "/dev/stdout")
    )
    (warning,) = gone
    assert warning.startswith("log unreadable: tail: ") and "No such file" in warning
    assert container == ()


def test_little_space_is_a_warning(postfix: PostfixInstance) -> None:
    """Less than 1.5 times what Postfix needs to take mail is reported, with both numbers."""
    assert not [*facts.space_warnings(postfix.server().instance)]
    for name in ("queue_minfree", "message_size_limit"):
        (text,) = facts.space_warnings(postfix.server(HERE, **{name: str(1 << 60)}).instance)
        assert "free for the queue: below 1.7 EB mail is refused" in text
