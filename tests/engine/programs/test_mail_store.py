"""The store of a mail server: listings that miss or repeat messages, two looks, batches of acts
whose outcome is what was printed, and ends that print nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.postfix import log_lines
from engine.live.folder_watch import FolderWatch
from engine.model import Edge, Edges, Missing, Move, Part, Problem, State, Task
from engine.override import override
from engine.programs.mail_accounts import IDS_PER_LOOK, LOOKS_PER_POLL, RETRY_SECONDS, MailAccounts
from engine.programs.mail_server import UNSURE, ActResult, ListedMail, MailServer, MailSummary
from engine.programs.mail_store import (
    ACCOUNT_READ,
    COST_FACTOR,
    LOGGED,
    SAMPLE_TASKS,
    MailStore,
    identity,
)
from engine.programs.prefix import HERE, Prefix
from engine.store import Control, Gone, Unavailable, Unsupported

P, H, T = State.PENDING, State.HELD, State.TRASH
QUEUES = {"queue": P, "hold": H, "trash": T, "active": State.ACTIVE}


class FakeServer(MailServer):
    """Messages in memory, by id: queue, version, details; what its programs print can be wrong."""

    states: Mapping[State, str] = {P: "queue", H: "hold", T: "trash"}
    words: Mapping[str, State] = {}
    controls: Mapping[str, Control] = {
        "flush": Control("flush"),
        "no": Control("no", refusal="off"),
    }
    ids_per_act = 3

    def __init__(self, number: int = 0) -> None:
        self.edges: Edges = {
            (P, H): Edge(),
            (H, P): Edge(),
            (P, T): Edge(),
            (T, None): Edge(undoable=False),
        }
        self.mails = {f"M{n:04}": ["queue", "1", "a"] for n in range(number)}
        self.calls: list[str] = []
        """What was run."""
        self.hidden: set[str] = set()
        """Messages that the next listing misses."""
        self.unreached: set[str] = set()
        """Messages that no look reaches."""
        self.unsure: set[str] = set()
        self.problems: list[Problem] = []
        self.failure = ""
        """Why no listing is whole."""
        self.end: Callable[[Mapping[str, str]], ActResult] = lambda done: ActResult(
            done, is_complete=True
        )
        """What an act prints, of what it has done."""
        self.before_act: Callable[[], None] = lambda: None
        self.before_list: Callable[[], None] = lambda: None

    @override
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        self.calls.append("list")
        self.before_list()
        for ident in sorted(self.mails, reverse=True):
            if ident not in self.hidden:
                yield ListedMail(ident, " ".join(self.mails[ident]).encode())
        self.hidden = set()
        yield from self.problems
        if self.failure:
            raise Unavailable(self.failure)

    @override
    def summarize(self, ident: str, record: bytes) -> MailSummary:
        queue, version, detail = record.decode().split()
        return MailSummary(QUEUES[queue], "", f"{version}.{queue}.{detail}")

    @override
    def task_of(self, ident: str, record: bytes) -> Task | Problem:
        its = self.summarize(ident, record)
        return Task(ident, "mail", its.state, 0.0, rev=its.rev, bytes=10)

    @override
    def is_id(self, text: str) -> bool:
        return text[:1] == "M"

    @override
    def show(
        self, ids: Sequence[str], records: Mapping[str, bytes]
    ) -> Iterator[Task | Missing | Problem]:
        self.calls.append(f"show {len(ids)}")
        for ident in ids:
            if ident in self.unreached:
                continue
            if ident not in self.mails:
                yield Missing(ident)
                continue
            task = self.task_of(ident, " ".join(self.mails[ident]).encode())
            assert isinstance(task, Task)
            yield task._replace(rev=f"{task.rev}{UNSURE}") if ident in self.unsure else task

    @override
    def queue_of(self, task: Task) -> str:
        return self.states[task.state]

    @override
    def act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        queue = self.queue_of(olds[0])
        self.calls.append(f"act {queue} {len(olds)}")
        self.before_act()
        done = {}
        for old in olds:
            if old.id in self.mails and self.mails[old.id][0] == queue:
                if new is None:
                    del self.mails[old.id]
                    done[old.id] = ""
                else:
                    self.mails[old.id][0] = self.states[new.state]
                    done[old.id] = (
                        f"{identity(old.rev).partition('.')[0]}.{self.states[new.state]}.a"
                    )
        return self.end(done)

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        yield Part("envelope", "memory", 10)

    @override
    def read(self, task: Task, part: str) -> bytes:
        return f"id: {task.id}\n".encode()

    @override
    def control(self, name: str, target: str, value: str) -> str:
        return f"did {name}"


class Clock:
    """Seconds that pass only if a test says so, or waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let seconds pass."""
        self.now += seconds


def opened(server: MailServer, clock: Clock | None = None) -> MailStore:
    """A store on it."""
    steady = clock or Clock()
    return MailStore(server, steady=steady, pause=steady.wait)


def scanned(store: MailStore, *names: str) -> dict[str, object]:
    """The answers to a scan of names, or of all, by id."""
    answers = store.scan(set(names) or None)
    return {item.where if isinstance(item, Problem) else item.id: item for item in answers}


def tasks(store: MailStore, *names: str) -> list[Task]:
    """The tasks of some names, or all, in the order of ids."""
    items = scanned(store, *names).items()
    return [item for _, item in sorted(items) if isinstance(item, Task)]


def test_a_full_scan_has_a_sample_and_then_all_in_order() -> None:
    """The first lines are shown while the program prints; then all in the order of ids."""
    server = FakeServer(SAMPLE_TASKS + 50)
    server.mails["M0003"][0] = "hold"
    scanning = opened(server).scan()
    sample = [next(scanning) for _ in range(SAMPLE_TASKS)]
    rest = [item.id for item in scanning if isinstance(item, Task)]
    assert isinstance(sample[0], Task) and sample[0].id == f"M{SAMPLE_TASKS + 49:04}"
    assert rest == sorted(server.mails)
    assert server.calls == ["list"]


def test_of_two_lines_with_an_id_the_later_one_counts() -> None:
    """A message that moves during a listing may be printed twice."""

    class Twice(FakeServer):
        @override
        def list_mails(self) -> Iterator[ListedMail | Problem]:
            yield ListedMail("M0000", b"hold 1 a")
            yield from super().list_mails()

    store = opened(Twice(1))
    assert [task.state for task in tasks(store)] == [P]
    assert store.count_tasks() == {P: 1, H: 0, T: 0}


def test_one_listing_alone_proves_no_absence() -> None:
    """A message that one listing misses keeps its row; one that two in a row miss is missing."""
    server, clock = FakeServer(3), Clock()
    store = opened(server, clock)
    assert len(tasks(store)) == 3
    server.hidden = {"M0001"}
    assert store.changes.revisions is not None
    assert [ident for ident, _, _ in store.changes.revisions()] == ["M0002", "M0000"]
    assert tasks(store, "M0001")[0].id == "M0001"  # a look finds it
    del server.mails["M0001"]
    list(store.changes.revisions())
    server.calls.clear()
    assert scanned(store, "M0001") == {"M0001": Missing("M0001")}
    assert server.calls == []


def test_messages_that_moved_during_a_listing_are_counted() -> None:
    """Those that it had twice, and those that it missed though another look finds them; each once,
    and none after a listing that has shown no change."""

    class Twice(FakeServer):
        @override
        def list_mails(self) -> Iterator[ListedMail | Problem]:
            yield ListedMail("M0000", b"hold 1 a")
            yield from super().list_mails()

    server, clock, counts = Twice(4), Clock(), list[int]()
    store = MailStore(
        server, steady=clock, pause=clock.wait, listed=lambda now, moved: counts.append(moved)
    )
    assert len(tasks(store)) == 4
    server.hidden = {"M0001"}
    wait, revisions = store.changes.wait, store.changes.revisions
    assert wait is not None and revisions is not None
    list(revisions())
    assert counts == [1, 1]
    for _ in range(2):
        scanned(store, "M0001", "M0002")
    assert counts == [1, 1, 2]
    for expected in (None, ()):
        wait(0.0)
        clock.wait(100.0)
        assert wait(0.0) == expected
    assert counts == [1, 1, 2, 0]


def test_a_message_that_a_look_misses_is_looked_for_in_a_listing() -> None:
    """One look may miss what moves; a listing, if one is due, decides."""
    server, clock = FakeServer(2), Clock()
    store = opened(server, clock)
    assert scanned(store, "M0009", "nonsense", "") == {
        "M0009": Missing("M0009"),
        "nonsense": Missing("nonsense"),
        "": Missing(""),
    }
    assert server.calls == ["list", "show 1"]  # the first look of an instance is a listing
    server.calls.clear()
    server.unreached = {"M0001"}
    assert [task.id for task in tasks(store, "M0001")] == ["M0001"]
    del server.mails["M0000"]
    assert scanned(store, "M0000") == {"M0000": Missing("M0000")}
    assert server.calls == ["show 1", "list", "show 1", "list"]


def test_no_listing_is_run_before_its_time() -> None:
    """Listings cost the server at most 5 % of its time: until then, a row stays as it is."""
    clock, server = Clock(), FakeServer(3)
    server.before_list = lambda: clock.wait(2.0)
    store = opened(server, clock)
    assert len(tasks(store)) == 3
    assert store.changes.scan_cost * 4 == COST_FACTOR * 2.0
    assert store.changes.recheck_seconds == 2 * server.poll_seconds
    server.calls.clear()
    del server.mails["M0000"]
    server.unreached, server.unsure = {"M0001"}, {"M0002"}
    answers = scanned(store, "M0000", "M0001", "M0002")
    assert server.calls == ["show 3"]
    assert set(answers) == {"M0001", "M0002"}  # as listed, and as looked at
    clock.wait(COST_FACTOR * 2.0)
    answers = scanned(store, "M0000", "M0001", "M0002")
    assert answers["M0000"] == Missing("M0000")
    assert [task.rev for task in answers.values() if isinstance(task, Task)] == ["1.queue.a"] * 2


def test_what_a_listing_found_changed_is_not_looked_at_again() -> None:
    """The names of changed messages are answered from the records, once."""
    server = FakeServer(3)
    store = opened(server)
    before = tasks(store)
    server.mails["M0001"][2] = "b"
    assert store.changes.revisions is not None
    revs = {ident: rev for ident, _, rev in store.changes.revisions()}
    assert [t.id for t in before if revs[t.id] != t.rev] == ["M0001"]
    server.calls.clear()
    assert tasks(store, "M0001")[0].rev == "1.queue.b"
    assert server.calls == []
    tasks(store, "M0001")
    assert server.calls == ["show 1"]


def test_after_an_act_no_record_is_used() -> None:
    """A moved message that no look reaches is listed, though no listing is due."""
    clock = Clock()

    class Slow(FakeServer):
        @override
        def list_mails(self) -> Iterator[ListedMail | Problem]:
            clock.wait(2.0)
            yield from super().list_mails()

    server = Slow(2)
    store = opened(server, clock)
    first, second = tasks(store)
    server.unreached = {first.id, second.id}
    store.swap(first, verbs.hold(first, 0.0))
    server.calls.clear()
    assert [task.state for task in tasks(store, second.id)] == [P]
    assert server.calls == ["show 1"]
    assert [task.state for task in tasks(store, first.id)] == [H]
    assert server.calls == ["show 1", "show 1", "list"]


def test_a_listing_that_is_not_whole_changes_nothing() -> None:
    """An error at its end is raised; what was known stays."""
    server = FakeServer(3)
    store = opened(server)
    assert len(tasks(store)) == 3
    server.failure, server.hidden = "connection lost", {"M0000", "M0001", "M0002"}
    with pytest.raises(Unavailable, match="connection lost"):
        tasks(store)
    server.failure = ""
    assert [task.id for task in tasks(store, "M0000")] == ["M0000"]


def test_a_problem_stays_until_the_next_listing() -> None:
    """It is looked up by the last part of its name, without running anything."""
    server = FakeServer(1)
    server.problems = [Problem("corrupt/M0007", "damaged")]
    store = opened(server)
    assert scanned(store)["corrupt/M0007"] == server.problems[0]
    server.calls.clear()
    assert [*store.scan({"M0007"})] == server.problems
    assert server.calls == []


def test_changes_are_noticed_by_comparing_listings() -> None:
    """`wait` returns None only if a listing differs from the one before; the more a listing costs,
    the longer is the time to the next one."""
    server, clock = FakeServer(2), Clock()
    store = opened(server, clock)
    wait = store.changes.wait
    assert wait is not None

    def polls(seconds: float) -> list[object]:
        end, answers = clock.now + seconds, []
        while clock.now < end:
            answers.append(wait(0.25))
        return [answer for answer in answers if answer is None]

    assert wait(0.0) == ()
    assert server.calls == []
    assert polls(5.5) == [None]  # the first one has nothing to compare with
    assert polls(30.0) == []
    assert server.calls == ["list"] * len(server.calls) and len(server.calls) > 4
    server.mails["M0001"][2] = "b"
    assert polls(5.5) == [None]


class Accounts(FakeServer):
    """A server whose listings have no accounts: all are `ann`, or none can be read (`why`)."""

    def __init__(self, number: int, clock: Clock, cost: float = 0.0) -> None:
        super().__init__(number)
        self.accounts: MailAccounts = MailAccounts()
        self.why, self.clock, self.cost = "", clock, cost

    @override
    def summarize(self, ident: str, record: bytes) -> MailSummary:
        known = super().summarize(ident, record)
        is_known = self.accounts.get(ident, "1") is not None
        return known._replace(rev=f"{known.rev}{'+' * is_known}")

    @override
    def task_of(self, ident: str, record: bytes) -> Task | Problem:
        task = super().task_of(ident, record)
        assert isinstance(task, Task)
        return task._replace(account=self.accounts.get(ident, "1"))

    @override
    def account_order(self, record: bytes) -> int:
        return 0

    @override
    def read_accounts(self, ids: Sequence[str]) -> Collection[str]:
        self.calls.append(f"accounts {len(ids)}")
        self.clock.wait(self.cost)
        if self.why:
            raise Unavailable(self.why)
        there = [ident for ident in ids if ident in self.mails]
        for ident in there:
            self.accounts.note(ident, "1", "ann")
        return there


def names_until(store: MailStore, clock: Clock, seconds: float) -> list[str]:
    """The changed names that a store reports for so many seconds."""
    wait, names = store.changes.wait, list[str]()
    assert wait is not None
    end = clock.now + seconds
    while clock.now < end:
        names += wait(0.25) or ()
    return names


def test_accounts_are_read_between_listings_within_limits() -> None:
    """Never before the first poll; then one look at a time, four to a poll, and at most 5 % of the
    time. Each message whose account is known is reported once, and looked up without any call."""
    for cost, looks in ((0.0, LOOKS_PER_POLL), (0.5, 1)):
        clock = Clock()
        server = Accounts(5 * IDS_PER_LOOK, clock, cost)
        store = opened(server, clock)
        assert {task.account for task in tasks(store)} == {None}
        assert names_until(store, clock, 5.0) == []
        names = names_until(store, clock, server.poll_seconds)
        assert server.calls.count(f"accounts {IDS_PER_LOOK}") == looks
        assert len({*names}) == len(names) == looks * IDS_PER_LOOK
        server.calls.clear()
        read = tasks(store, *names)
        assert {task.account for task in read} == {"ann"}
        assert [f"{task.id}{ACCOUNT_READ}" for task in read] == sorted(names)
        assert server.calls == []
        names_until(store, clock, 30.0)
        assert (server.accounts.describe() == "") == (looks > 1)


def test_an_account_never_brings_back_an_outdated_state() -> None:
    """A message that was looked at since its listing, or that has left, keeps its row: its record
    is older."""
    clock = Clock()
    server = Accounts(3, clock)
    store = opened(server, clock)
    tasks(store)
    server.mails["M0001"][0] = "hold"
    assert [task.state for task in tasks(store, "M0001")] == [H]
    del server.mails["M0002"]
    names_until(store, clock, 5.0)
    names = names_until(store, clock, 5.0)
    assert sorted(names) == [f"M0000{ACCOUNT_READ}", f"M0001{ACCOUNT_READ}"]
    assert [task.id for task in tasks(store, *names, f"M0009{ACCOUNT_READ}")] == ["M0000"]
    assert server.accounts.describe() == "accounts of 2 of 3 read"


def test_accounts_that_cannot_be_read_disturb_nothing() -> None:
    """The reason is kept, the next try waits ten minutes, and listings go on."""
    clock = Clock()
    server = Accounts(3, clock)
    server.why = "postcat is not allowed"
    store = opened(server, clock)
    tasks(store)
    assert names_until(store, clock, RETRY_SECONDS - 60.0) == []
    assert server.calls.count("accounts 3") == 1 and server.calls.count("list") > 50
    assert server.accounts.describe() == "accounts of 0 of 3 read: postcat is not allowed"
    server.why = ""
    tasks(store)
    assert len(names_until(store, clock, 120.0)) == 3


def named_in(path: Path, idents: Iterable[str], text: str) -> None:
    """Append a line of the log for each message."""
    lines = (f"2026-11-27T23:36:00+00:00 mx1 {text.format(ident)}\n" for ident in idents)
    with path.open("a") as file:
        file.writelines(lines)


QUEUED = "postfix/qmgr[7]: {}: from=<a@b>, size=9, nrcpt=1 (queue active)"
DEFERRED = "postfix/smtp[7]: {}: to=<a@b>, relay=none, dsn=4.4.1, status=deferred (refused)"


def following(server: FakeServer, clock: Clock, path: Path, prefix: Prefix = HERE) -> MailStore:
    """A store that follows a log, from its end on."""
    path.write_text("")
    named_in(path, ["AAAAAA"], DEFERRED)
    log = log_lines.mail_log(str(path), prefix=prefix)._replace(facts=log_lines.NEW_LINES)
    store = MailStore(server, steady=clock, pause=clock.wait, log=log)
    assert names_until(store, clock, 1.0) == []
    assert len(tasks(store)) == len(server.mails)
    server.calls.clear()
    return store


class HexServer(FakeServer):
    """Its ids are such as Postfix has."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.mails = {f"{n:06X}": ["queue", "1", "a"] for n in range(number)}

    @override
    def is_id(self, text: str) -> bool:
        return True


def test_messages_that_the_log_names_are_looked_at_between_listings(tmp_path: Path) -> None:
    """One that was tried, with its reason, and a new one, if it waits still a while later; not one
    that has left, is still being received, or of another server; no listing is run for them."""
    server, clock, path = HexServer(4), Clock(), tmp_path / "mail.log"
    server.unsure = {"000001"}
    store = following(server, clock, path)
    server.mails["00000A"] = ["hold", "1", "a"]
    del server.mails["000002"]
    named_in(path, ["00000A", "00000B"], QUEUED)
    named_in(path, ["00000C"], "postfix/smtpd[7]: {}: client=a[192.0.2.1]")
    named_in(path, ["000001"], DEFERRED)
    named_in(path, ["000002"], "postfix/qmgr[7]: {}: removed")
    named_in(path, ["000003"], "other/qmgr[7]: {}: from=<a@b>, size=9, nrcpt=1 (queue active)")
    named_in(
        path, ["warning"], "postfix/smtpd[7]: {}: hostname a does not resolve to address 192.0.2.1"
    )
    names = names_until(store, clock, 2.0)
    assert names == [f"000001{LOGGED}"]
    named_in(path, ["00000B"], "postfix/qmgr[7]: {}: removed")
    names += names_until(store, clock, 5.0)
    assert names == [f"000001{LOGGED}", f"00000A{LOGGED}"]
    server.calls.clear()
    shown = {task.id: (task.state, task.error) for task in tasks(store, *names)}
    assert shown == {"000001": (P, "refused"), "00000A": (H, "")}
    assert server.calls == ["show 2"]


def test_one_look_at_logged_messages_in_the_time_of_a_poll(tmp_path: Path) -> None:
    """It has so many messages; others wait for the next listing, which is later by twenty times
    what the look took. Without new lines nothing is done, and nothing for a log elsewhere."""
    server, clock, path = HexServer(2 * IDS_PER_LOOK), Clock(), tmp_path / "mail.log"
    store = following(server, clock, path)
    named_in(path, server.mails, DEFERRED)
    assert len(names_until(store, clock, 2.0)) == IDS_PER_LOOK
    named_in(path, server.mails, DEFERRED)
    assert names_until(store, clock, 2.0) == []
    assert server.calls == []
    store._logged.costs += [0.1, 0.1]
    names_until(store, clock, COST_FACTOR * 0.2 - 0.25)
    assert server.calls == []
    names_until(store, clock, 1.0)
    assert server.calls == ["list"]
    far = following(server, clock, path, Prefix("far", ("env",)))
    named_in(path, server.mails, DEFERRED)
    assert names_until(far, clock, 3.0) == []


def test_looks_never_put_off_the_listing_for_long(tmp_path: Path) -> None:
    """Once they have delayed it by the time between two listings, there is none before it."""
    server, clock, path = HexServer(9), Clock(), tmp_path / "mail.log"
    store = following(server, clock, path)
    for second in range(20):
        named_in(path, [f"{second % 9:06X}"], DEFERRED)
        store._logged.costs += [1.0] * bool(names_until(store, clock, 1.0))
    assert server.calls == ["list", "list"]


def test_a_row_that_no_listing_has_leaves_with_the_second_one(tmp_path: Path) -> None:
    """A message that comes and leaves between two listings has a row from the look at it."""
    server, clock, path = HexServer(1), Clock(), tmp_path / "mail.log"
    store, wait = following(server, clock, path), None
    names_until(store, clock, 6.0)
    server.mails["00000A"] = ["queue", "1", "a"]
    named_in(path, ["00000A"], DEFERRED)
    assert [task.id for task in tasks(store, *names_until(store, clock, 1.5))] == ["00000A"]
    del server.mails["00000A"]
    assert store.changes.revisions is not None and (wait := store.changes.wait) is not None
    assert None in [wait(0.25) for _ in range(40)]  # compared, though listings are the same
    assert [*store.changes.revisions()] and store._absent == {"00000A": 1}
    assert [*store.changes.revisions()]
    assert scanned(store, "00000A") == {"00000A": Missing("00000A")}
    assert store._moved == set()


def test_a_look_at_logged_messages_that_fails_is_left_to_the_listing(tmp_path: Path) -> None:
    """Its place stays readable, and what the look took counts."""
    server, clock = HexServer(1), Clock()
    store = following(server, clock, tmp_path / "mail.log")

    def fail(ids: Sequence[str], records: Mapping[str, bytes]) -> Iterator[Task]:
        clock.wait(60.0)
        raise Unavailable("not ended after 60 s")

    server.show = fail  # type: ignore[method-assign]
    assert scanned(store, f"000000{LOGGED}") == {}
    assert [*store._logged.take_costs()] == [60.0]


def test_what_a_look_at_logged_messages_misses_keeps_its_row(tmp_path: Path) -> None:
    """One that is missing, or waits for a reason that the log has not, is left to the listing."""
    server, clock = HexServer(3), Clock()
    server.unsure = {"000001"}
    store = following(server, clock, tmp_path / "mail.log")
    del server.mails["000000"]
    assert scanned(store, f"000000{LOGGED}", f"000001{LOGGED}") == {}
    assert server.calls == ["show 2"]


def test_a_command_reads_accounts_before_its_scan() -> None:
    """Only if it asks for them; as many as are read from one listing to the next."""
    for names in ((), ("queue",)):
        server = Accounts(LOOKS_PER_POLL * IDS_PER_LOOK + 7, Clock())
        store = opened(server)
        store.read_accounts_first()
        known = [task.account for task in tasks(store, *names)]
        assert (known.count("ann"), known.count(None)) == (LOOKS_PER_POLL * IDS_PER_LOOK, 7)
    server = Accounts(3, Clock())
    assert [task.account for task in tasks(opened(server))] == [None] * 3
    assert server.calls == ["list"]


def test_no_account_is_read_after_the_end() -> None:
    """A watch that is stopped during a look does not wait for it, and starts no other."""
    clock = Clock()
    is_reading, goes_on, is_closed = threading.Event(), threading.Event(), threading.Event()

    class Blocked(Accounts):
        @override
        def read_accounts(self, ids: Sequence[str]) -> Collection[str]:
            is_reading.set()
            assert goes_on.wait(60)
            return super().read_accounts(ids)

        @override
        def close(self) -> None:
            is_closed.set()

    server = Blocked(3 * IDS_PER_LOOK, clock)
    store = opened(server, clock)
    tasks(store)
    watch = FolderWatch(store.changes, lambda: store, lambda names: None, lambda: None)
    watch.start(60)
    assert is_reading.wait(60)
    watch.stop()
    goes_on.set()
    assert is_closed.wait(60)
    assert server.calls.count(f"accounts {IDS_PER_LOOK}") == 1


def test_a_failed_attempt_is_no_change() -> None:
    """verify compares state, queue and identity, and yields the task as it was seen."""
    server = FakeServer(4)
    store = opened(server)
    seen = [(task.id, task.state, task.rev) for task in tasks(store)]
    server.mails["M0000"][2] = "b"
    server.mails["M0001"][1] = "2"
    server.mails["M0002"][0] = "hold"
    del server.mails["M0003"]
    (task,) = store.verify([*seen, ("nonsense", P, ""), ("M0009", P, "1.queue.a")])
    assert isinstance(task, Task)
    assert (task.id, task.state, task.rev) == seen[0]


def test_a_task_that_no_look_reaches_is_verified_by_a_listing() -> None:
    """Without the right to look at single messages, one listing decides."""
    server = FakeServer(3)
    server.unreached = {"M0000", "M0001", "M0009"}
    store = opened(server)
    seen = [(task.id, task.state, task.rev) for task in tasks(store)]
    server.calls.clear()
    answers = [*store.verify([*seen, ("M0009", P, "1.queue.a")])]
    assert {task.id for task in answers if isinstance(task, Task)} == {"M0000", "M0001", "M0002"}
    assert server.calls == ["show 4", "list"]


def test_acts_are_grouped_and_each_move_has_its_outcome() -> None:
    """Moves with one queue and one target share an act, up to the size of a batch; what was just
    verified is not looked at again, if its queue has one state, and outcomes are in order."""
    server = FakeServer(7)
    server.mails["M0001"][0] = "hold"
    store = opened(server)
    all_tasks = tasks(store)
    seen = list(store.verify((task.id, task.state, task.rev) for task in all_tasks))
    server.calls.clear()
    moves = [
        Move(task, verbs.release(task, 0.0) if task.state is H else verbs.hold(task, 0.0))
        for task in sorted((t for t in seen if isinstance(t, Task)), key=lambda task: task.id)
    ]
    outcomes = list(store.swap_all(moves))
    assert [outcome.move for outcome in outcomes] == moves
    assert [outcome.error for outcome in outcomes] == [None] * 7
    acts = ["act queue 2", "show 1", "act hold 1", "act queue 3", "act queue 1"]
    assert server.calls == acts
    assert [outcome.rev for outcome in outcomes] == [task.rev for task in tasks(store)]


@pytest.mark.parametrize(
    ("start", "end"),
    [("trash", None), ("trash", P), ("hold", P), ("hold", T), ("queue", State.DEAD)],
)
def test_acts_of_which_the_queue_proves_too_little_are_looked_at_before_each(
    start: str, end: State | None
) -> None:
    """What is deleted or cannot be undone, and what shares its queue with others: a message that
    has become another one during the act before is Gone, though it was verified."""
    server = FakeServer(6)
    server.edges = {(QUEUES[start], end): Edge(undoable=end is not State.DEAD)}
    server.states = {**server.states, State.DEAD: "dead"}
    for mail in server.mails.values():
        mail[0] = start
    store = opened(server)
    seen = [(task.id, task.state, task.rev) for task in tasks(store)]
    olds = [task for task in store.verify(seen) if isinstance(task, Task)]
    server.before_act = lambda: server.mails["M0005"].__setitem__(1, "2")

    moves = [Move(old, None if end is None else old._replace(state=end)) for old in olds]
    outcomes = list(store.swap_all(moves))

    assert [type(outcome.error) for outcome in outcomes] == [type(None)] * 5 + [Gone]
    assert server.mails["M0005"] == [start, "2", "a"]


def test_a_bar_is_asked_of_a_message_as_it_is_now() -> None:
    """One that was purged again since it was seen is kept, and the others are deleted."""

    class Purged(FakeServer):
        @override
        def show(
            self, ids: Sequence[str], records: Mapping[str, bytes]
        ) -> Iterator[Task | Missing | Problem]:
            for task in super().show(ids, records):
                assert isinstance(task, Task)
                yield task._replace(error="purged again" if task.id == "M0001" else "")

    server = Purged(2)
    server.edges = {(T, None): Edge(undoable=False, bars=lambda task, now: task.error)}
    for mail in server.mails.values():
        mail[0] = "trash"
    store = opened(server)

    outcomes = list(store.swap_all([Move(task, None) for task in tasks(store)]))

    assert [str(outcome.error or "") for outcome in outcomes] == ["", "purged again"]
    assert [*server.mails] == ["M0001"]


def test_a_look_that_fails_takes_no_outcome_from_the_act_before() -> None:
    """What was done stays done; the others have the reason."""
    server = FakeServer(2)
    server.mails["M0001"][0] = "hold"
    store = opened(server)
    queued, held = tasks(store)
    list(store.verify([(queued.id, queued.state, queued.rev)]))

    def lose() -> None:
        server.unreached, server.failure = {*server.mails}, "connection lost"

    server.before_act = lose
    moves = [Move(queued, verbs.hold(queued, 0.0)), Move(held, verbs.release(held, 0.0))]
    done, failed = store.swap_all(moves)

    assert done.error is None
    assert (type(failed.error), str(failed.error)) == (Unavailable, "connection lost")


def test_a_move_that_was_not_verified_is_looked_at_first() -> None:
    """One that has changed since is Gone, before any act."""
    server = FakeServer(2)
    store = opened(server)
    first, second = tasks(store)
    server.mails["M0000"][1] = "2"
    server.calls.clear()
    outcomes = list(store.swap_all([Move(t, verbs.hold(t, 0.0)) for t in (first, second)]))
    assert [type(outcome.error) for outcome in outcomes] == [Gone, type(None)]
    assert server.calls == ["show 2", "act queue 1"]


def test_moves_that_no_edge_allows_run_nothing() -> None:
    """They are Unsupported; of two moves of one task the second is Gone."""
    server = FakeServer(1)
    store = opened(server)
    (task,) = tasks(store)
    server.calls.clear()
    moves = [
        Move(None, task),
        Move(task, task._replace(state=State.ACTIVE)),
        Move(task, verbs.hold(task, 0.0)._replace(error="x")),
        Move(task, verbs.hold(task, 0.0)),
        Move(task, verbs.purge(task, 0.0)),
    ]
    errors = [type(outcome.error) for outcome in store.swap_all(moves)]
    assert errors[:3] == [Unsupported] * 3
    assert sorted(error.__name__ for error in errors[3:]) == ["Gone", "NoneType"]
    assert list(store.take(0.0, "me", 9)) == []


def test_a_message_without_a_line_is_gone_if_the_program_ended_well() -> None:
    """Another operator has moved it between look and act."""
    server = FakeServer(2)
    store = opened(server)
    moves = [Move(task, verbs.hold(task, 0.0)) for task in tasks(store)]
    server.before_act = lambda: server.mails["M0001"].__setitem__(0, "hold")
    outcomes = list(store.swap_all(moves))
    assert outcomes[0].error is None
    assert isinstance(outcomes[1].error, Gone)
    assert str(outcomes[1].error) == "not in queue any more"


@pytest.mark.parametrize("reached", [True, False])
def test_after_an_unknown_end_all_are_looked_at_again(reached: bool) -> None:
    """What is in its target is done, what is unchanged has failed with the program's words, the
    rest is gone: no act is repeated."""
    server = FakeServer(3)
    server.ids_per_act = 9
    store = opened(server)
    moves = [Move(task, verbs.hold(task, 0.0)) for task in tasks(store)]

    def lose(done: Mapping[str, str]) -> ActResult:
        server.mails["M0001"][0] = "queue"
        del server.mails["M0002"]
        server.unreached = set() if reached else {*server.mails}
        return ActResult(why="connection lost")

    server.end = lose
    server.calls.clear()
    outcomes = list(store.swap_all(moves))
    assert [type(outcome.error) for outcome in outcomes] == [type(None), Unavailable, Gone]
    assert outcomes[0].rev == "1.hold.a"
    assert outcomes[0].note == "connection lost; looked again: done"
    assert str(outcomes[1].error) == "connection lost; looked again: unchanged"
    assert sum(call.startswith("act") for call in server.calls) == 1


def test_a_message_that_the_server_may_have_gone_on_with_is_unknown() -> None:
    """After a release whose answer is lost, one that is missing may have been delivered: it is not
    said to be changed by others. One that is delivered now was released."""
    server = FakeServer(2)
    for mail in server.mails.values():
        mail[0] = "hold"
    store = opened(server)
    moves = [Move(task, verbs.release(task, 0.0)) for task in tasks(store)]

    def lose(done: Mapping[str, str]) -> ActResult:
        del server.mails["M0000"]
        server.mails["M0001"][0] = "active"
        return ActResult(why="connection lost")

    server.end = lose
    lost, taken = store.swap_all(moves)
    assert isinstance(lost.error, Unavailable)
    text = "connection lost; looked again: not there any more"
    assert str(lost.error) == f"unknown: {text}"
    assert (taken.error, taken.note) == (None, "connection lost; looked again: done")


def test_no_look_shows_whether_a_request_has_arrived() -> None:
    """Its outcome is unknown if its answer is lost, though the message is as it was."""
    server = FakeServer(1)
    server.edges = {(P, P): Edge(frozenset({"due"}), exact=False)}
    store = opened(server)
    (task,) = tasks(store)
    server.end = lambda done: ActResult(why="connection lost")
    (outcome,) = store.swap_all([Move(task, task._replace(due=0.0))])
    assert isinstance(outcome.error, Unavailable)
    assert str(outcome.error) == "unknown: connection lost"


def test_if_nothing_can_be_looked_at_the_outcome_is_unknown() -> None:
    """Each row then has the reason of both failures."""
    server = FakeServer(2)
    store = opened(server)
    moves = [Move(task, verbs.hold(task, 0.0)) for task in tasks(store)]

    def lose(done: Mapping[str, str]) -> ActResult:
        server.unreached, server.failure = {*server.mails}, "no route to host"
        raise Unavailable("connection lost")

    server.end = lose
    errors = [outcome.error for outcome in store.swap_all(moves)]
    assert {str(error) for error in errors} == {"unknown: connection lost; no route to host"}
    assert all(isinstance(error, Unavailable) for error in errors)


def test_a_line_with_a_refusal_is_the_reason() -> None:
    """A message whose own line says why not is failed with these words."""
    server = FakeServer(2)
    store = opened(server)
    moves = [Move(task, verbs.hold(task, 0.0)) for task in tasks(store)]
    server.end = lambda done: ActResult(
        {"M0000": "1.hold.a"}, {"M0001": "in delivery: PID 7"}, is_complete=True
    )
    outcomes = list(store.swap_all(moves))
    assert outcomes[0].error is None
    assert str(outcomes[1].error) == "in delivery: PID 7"


def test_a_deletion_whose_end_is_unknown_is_done_if_the_message_is_gone() -> None:
    """Its absence is what was wanted."""
    server = FakeServer(2)
    for mail in server.mails.values():
        mail[0] = "trash"
    store = opened(server)
    moves = [Move(task, None) for task in tasks(store)]

    def lose(done: Mapping[str, str]) -> ActResult:
        server.mails["M0001"] = ["trash", "1", "a"]
        return ActResult(why="killed")

    server.end = lose
    outcomes = list(store.swap_all(moves))
    assert [type(outcome.error) for outcome in outcomes] == [type(None), Unavailable]
    assert outcomes[0].note == "killed; looked again: not there any more"


def test_names_of_states_and_samples_are_counted_from_one_listing() -> None:
    """A word shows all tasks of its state; a sample is all of a listing, and the trash is measured
    by the same one."""
    server = FakeServer(9)
    server.problems = [Problem("corrupt/M0009", "damaged")]
    for ident in ("M0001", "M0002"):
        server.mails[ident][0] = "trash"
    clock = Clock()
    server.before_list = lambda: clock.wait(1.0)
    store = opened(server, clock)
    assert [task.id for task in tasks(store, "trash")] == ["M0001", "M0002"]
    counts, words, some, is_whole = store.sample(1)
    assert (counts, words, is_whole) == ({P: 7, H: 0, T: 2}, {}, True)
    names = {one.where if isinstance(one, Problem) else one.id for one in some}
    assert names == {*server.mails, "corrupt/M0009"}
    assert store.trash_bytes() == 20
    assert server.calls == ["list"] * 2
    clock.wait(COST_FACTOR)
    del server.mails["M0001"]
    assert store.trash_bytes() == 10


def test_controls_and_parts_are_those_of_the_server() -> None:
    """A refused or unknown control is not run."""
    store = opened(FakeServer(1))
    assert store.control("flush") == "did flush"
    for name in ("no", "nonsense"):
        with pytest.raises(Unsupported):
            store.control(name)
        with pytest.raises(Unsupported):
            store.forecast(name)
    (task,) = tasks(store)
    assert [part.name for part in store.parts(task)] == ["envelope"]
    assert store.size(task) == 10
    with pytest.raises(Unavailable):
        store.size(task._replace(bytes=None))
    image = store.read(task)
    assert store.restore_image(task, image, H) == task._replace(state=H)
    with pytest.raises(Unsupported):
        store.restore_image(task._replace(id="M0009"), image, H)
