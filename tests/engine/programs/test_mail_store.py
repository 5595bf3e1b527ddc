"""The store of a mail server: listings, looks, and batches of acts with any end."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.postfix import log_lines
from engine.live.folder_watch import FolderWatch
from engine.model import Edge, Edges, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.programs import mail_store
from engine.programs.mail_accounts import IDS_PER_LOOK, LOOKS_PER_POLL, RETRY_SECONDS, MailAccounts
from engine.programs.mail_server import UNSURE, ActResult, ListedMail, MailServer, MailSummary
from engine.programs.mail_store import ACCOUNT_READ, COST_FACTOR, LOGGED, SAMPLE_TASKS, MailStore
from engine.programs.prefix import HERE, Prefix
from engine.store import Control, Gone, Unavailable, Unsupported
from tests.tables import each

P, H, T = State.PENDING, State.HELD, State.TRASH
QUEUES = {"queue": P, "hold": H, "trash": T, "active": State.ACTIVE}
HEX = "{:06X}"
"""The form of ids as Postfix has them."""


class FakeServer(MailServer):
    """Messages in memory, by id: queue, version, details; what its programs print can be wrong."""

    states: Mapping[State, str] = {P: "queue", H: "hold", T: "trash"}
    words: Mapping[str, State] = {}
    controls: Mapping[str, Control] = {
        "flush": Control("flush"),
        "no": Control("no", refusal="off"),
    }
    ids_per_act = 3

    def __init__(self, number: int = 0, queue: str = "queue", form: str = "M{:04}") -> None:
        self.edges: Edges = {(P, H): Edge(), (H, P): Edge(), (P, T): Edge()}
        self.edges = {**self.edges, (T, None): Edge(undoable=False)}
        self.mails = {form.format(n): [queue, "1", "a"] for n in range(number)}
        self.now = 1000.0
        self.calls: list[str] = []  # what was run
        self.hidden: set[str] = set()  # messages that the next listing misses
        self.unreached: set[str] = set()  # messages that no look reaches
        self.unsure: set[str] = set()
        self.first_lines: list[ListedMail] = []
        self.problems: list[Problem] = []
        self.failure = ""  # why no listing is whole
        # what an act prints, of what it has done
        self.end: Callable[[Mapping[str, str]], ActResult] = partial(ActResult, is_complete=True)
        self.before_act: Callable[[], object] = lambda: None
        self.before_list: Callable[[], object] = lambda: None

    def wait(self, seconds: float) -> None:
        """Let seconds pass."""
        self.now += seconds

    @override
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        self.calls.append("list")
        self.before_list()
        yield from self.first_lines
        for ident in sorted(self.mails.keys() - self.hidden, reverse=True):
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
        its, error = self.summarize(ident, record), record.decode().split()[2][1:]
        return Task(ident, "mail", its.state, 0.0, rev=its.rev, bytes=10, error=error)

    @override
    def is_id(self, text: str) -> bool:
        return text[:1] in ("M", "0")

    @override
    def show(
        self, ids: Sequence[str], records: Mapping[str, bytes]
    ) -> Iterator[Task | Missing | Problem]:
        self.calls.append(f"show {len(ids)}")
        for ident in (one for one in ids if one not in self.unreached):
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
                    target = self.mails[old.id][0] = self.states[new.state]
                    done[old.id] = f"{mail_store.identity(old.rev).partition('.')[0]}.{target}.a"
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


def opened(server: FakeServer, **options: Any) -> MailStore:
    """A store on it, by its clock."""
    return MailStore(server, steady=lambda: server.now, pause=server.wait, **options)


def start(number: int, queue: str = "queue") -> tuple[FakeServer, MailStore]:
    """A server with so many messages in a queue, and a store on it."""
    server = FakeServer(number, queue)
    return server, opened(server)


def scanned(store: MailStore, *names: str) -> dict[str, object]:
    """The answers to a scan of names, or of all, by id."""
    answers = store.scan(set(names) or None)
    return {item.where if isinstance(item, Problem) else item.id: item for item in answers}


def tasks(store: MailStore, *names: str) -> list[Task]:
    """The tasks of some names, or all, in the order of ids."""
    items = scanned(store, *names).items()
    return [item for _, item in sorted(items) if isinstance(item, Task)]


def keys(some: Iterable[Task]) -> list[tuple[str, State, str]]:
    """Id, state and revision of each, as `verify` takes them."""
    return [(task.id, task.state, task.rev) for task in some]


def revisions(store: MailStore) -> dict[str, str]:
    """The revision of each message by a new listing."""
    assert store.changes.revisions is not None
    return {ident: rev for ident, _, rev in store.changes.revisions()}


def poll(store: MailStore, seconds: float = 0.25) -> Collection[str] | None:
    """The changed names after so many seconds; None if listings differ."""
    assert store.changes.wait is not None
    return store.changes.wait(seconds)


def polls(server: FakeServer, store: MailStore, seconds: float) -> list[Collection[str] | None]:
    """The answers of polls for so many seconds."""
    end, answers = server.now + seconds, []
    while server.now < end:
        answers.append(poll(store))
    return answers


def names_until(server: FakeServer, store: MailStore, seconds: float) -> list[str]:
    """The changed names that a store reports for so many seconds."""
    return [name for names in polls(server, store, seconds) for name in names or ()]


def moves(store: MailStore, change: Callable[[Task, float], Task | None]) -> list[Move]:
    """The move of each message by a verb."""
    return [Move(task, change(task, 0.0)) for task in tasks(store)]


def ask(task: Task, now: float) -> Task:
    """Ask for an attempt."""
    return task._replace(due=now)


def results(outcomes: Iterable[Outcome]) -> list[str]:
    """Each error with its type; what was done, with its revision and note."""
    return [
        f"{type(one.error).__name__}: {one.error}" if one.error else f"{one.rev} {one.note}".strip()
        for one in outcomes
    ]


def test_a_full_scan_has_a_sample_and_then_all_in_order() -> None:
    """The first lines are shown while the program prints; then all in the order of ids."""
    server, store = start(SAMPLE_TASKS + 50)
    server.mails["M0003"][0] = "hold"
    scanning = store.scan()
    sample = [next(scanning) for _ in range(SAMPLE_TASKS)]
    rest = [item.id for item in scanning if isinstance(item, Task)]
    assert isinstance(sample[0], Task) and sample[0].id == f"M{SAMPLE_TASKS + 49:04}"
    assert rest == sorted(server.mails)
    assert server.calls == ["list"]


def test_one_listing_alone_proves_no_absence() -> None:
    """A row stays until two listings in a row miss it; one that fails changes nothing."""
    server, store = start(3)
    assert len(tasks(store)) == 3
    server.failure, server.hidden = "connection lost", {"M0000", "M0001", "M0002"}
    with pytest.raises(Unavailable, match="connection lost"):
        tasks(store)
    server.failure = ""
    assert [task.id for task in tasks(store, "M0000")] == ["M0000"]
    server.hidden = {"M0001"}
    assert [*revisions(store)] == ["M0002", "M0000"]
    assert tasks(store, "M0001")[0].id == "M0001"  # a look finds it
    del server.mails["M0001"]
    revisions(store)
    server.calls.clear()
    assert scanned(store, "M0001") == {"M0001": Missing("M0001")}
    assert server.calls == []


def test_messages_that_moved_during_a_listing_are_counted() -> None:
    """Had twice, where the later line counts, or missed though a look finds it; each once."""
    server, counts = FakeServer(4), list[int]()
    server.first_lines = [ListedMail("M0000", b"hold 1 a")]
    store = opened(server, listed=lambda now, moved: counts.append(moved))
    assert [task.state for task in tasks(store)] == [P] * 4
    assert store.count_tasks() == {P: 4, H: 0, T: 0}
    server.hidden = {"M0001"}
    revisions(store)
    assert counts == [1] * 3
    for _ in range(2):
        scanned(store, "M0001", "M0002")
    assert counts == [1, 1, 1, 2]
    for expected in (None, ()):
        poll(store, 0.0)
        server.wait(100.0)
        assert poll(store, 0.0) == expected
    assert counts == [1, 1, 1, 2, 0]


def test_a_message_that_a_look_misses_is_looked_for_in_a_listing() -> None:
    """One look may miss what moves; a listing, if one is due, decides."""
    server, store = start(2)
    missing = ("M0009", "nonsense", "")
    assert scanned(store, *missing) == {name: Missing(name) for name in missing}
    assert server.calls == ["list", "show 1"]  # the first look of an instance is a listing
    server.calls.clear()
    server.unreached = {"M0001"}
    assert [task.id for task in tasks(store, "M0001")] == ["M0001"]
    del server.mails["M0000"]
    assert scanned(store, "M0000") == {"M0000": Missing("M0000")}
    assert server.calls == ["show 1", "list", "show 1", "list"]


def test_no_listing_is_run_before_its_time() -> None:
    """Listings cost the server at most 5 % of its time: until then, a row stays as it is."""
    server, store = start(3)
    server.before_list = lambda: server.wait(2.0)
    assert len(tasks(store)) == 3
    assert store.changes.scan_cost * 4 == COST_FACTOR * 2.0
    assert store.changes.recheck_seconds == 2 * server.poll_seconds
    server.calls.clear()
    del server.mails["M0000"]
    server.unreached, server.unsure = {"M0001"}, {"M0002"}
    answers = scanned(store, "M0000", "M0001", "M0002")
    assert server.calls == ["show 3"]
    assert set(answers) == {"M0001", "M0002"}  # as listed, and as looked at
    server.wait(COST_FACTOR * 2.0)
    answers = scanned(store, "M0000", "M0001", "M0002")
    assert answers["M0000"] == Missing("M0000")
    assert [task.rev for task in answers.values() if isinstance(task, Task)] == ["1.queue.a"] * 2


def test_what_a_listing_found_changed_is_not_looked_at_again() -> None:
    """The names of changed messages are answered from the records, once."""
    server, store = start(3)
    before = tasks(store)
    server.mails["M0001"][2] = "b"
    revs = revisions(store)
    assert [t.id for t in before if revs[t.id] != t.rev] == ["M0001"]
    server.calls.clear()
    assert tasks(store, "M0001")[0].rev == "1.queue.b"
    assert server.calls == []
    tasks(store, "M0001")
    assert server.calls == ["show 1"]


def test_after_an_act_no_record_is_used() -> None:
    """A moved message that no look reaches is listed, though no listing is due."""
    server, store = start(2)
    server.before_list = lambda: server.wait(2.0)
    first, second = tasks(store)
    server.unreached = {first.id, second.id}
    store.swap(first, verbs.hold(first, 0.0))
    server.calls.clear()
    assert [task.state for task in tasks(store, second.id)] == [P]
    assert server.calls == ["show 1"]
    assert [task.state for task in tasks(store, first.id)] == [H]
    assert server.calls == ["show 1", "show 1", "list"]


def test_changes_are_noticed_by_comparing_listings() -> None:
    """`wait` returns None only if a listing differs from the one before."""
    server, store = start(2)
    assert poll(store, 0.0) == ()
    assert server.calls == []
    assert polls(server, store, 5.5).count(None) == 1  # the first has nothing to compare with
    assert polls(server, store, 30.0).count(None) == 0
    assert server.calls == ["list"] * len(server.calls) and len(server.calls) > 4
    server.mails["M0001"][2] = "b"
    assert polls(server, store, 5.5).count(None) == 1


class Accounts(FakeServer):
    """A server whose listings have no accounts: all are `ann`, or none can be read (`why`)."""

    def __init__(self, number: int, cost: float = 0.0) -> None:
        super().__init__(number)
        self.accounts: MailAccounts = MailAccounts()
        self.why, self.cost = "", cost

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
        self.wait(self.cost)
        if self.why:
            raise Unavailable(self.why)
        for ident in self.mails.keys() & {*ids}:
            self.accounts.note(ident, "1", "ann")
        return self.mails.keys() & {*ids}


@each(("cost", "looks"), [(0.0, LOOKS_PER_POLL), (0.5, 1)])
def test_accounts_are_read_between_listings_within_limits(cost: float, looks: int) -> None:
    """Four looks to a poll, at most 5 % of the time; each message is reported once."""
    server = Accounts(5 * IDS_PER_LOOK, cost)
    store = opened(server)
    assert {task.account for task in tasks(store)} == {None}
    assert names_until(server, store, 5.0) == []
    names = names_until(server, store, server.poll_seconds)
    assert server.calls.count(f"accounts {IDS_PER_LOOK}") == looks
    assert len({*names}) == len(names) == looks * IDS_PER_LOOK
    server.calls.clear()
    read = tasks(store, *names)
    assert {task.account for task in read} == {"ann"}
    assert [f"{task.id}{ACCOUNT_READ}" for task in read] == sorted(names)
    assert server.calls == []
    names_until(server, store, 30.0)
    assert (server.accounts.describe() == "") == (looks > 1)


def test_an_account_never_brings_back_an_outdated_state() -> None:
    """A message that was looked at since its listing, or has left, keeps its row."""
    server = Accounts(3)
    store = opened(server)
    tasks(store)
    server.mails["M0001"][0] = "hold"
    assert [task.state for task in tasks(store, "M0001")] == [H]
    del server.mails["M0002"]
    names_until(server, store, 5.0)
    names = names_until(server, store, 5.0)
    assert sorted(names) == [f"M0000{ACCOUNT_READ}", f"M0001{ACCOUNT_READ}"]
    assert [task.id for task in tasks(store, *names, f"M0009{ACCOUNT_READ}")] == ["M0000"]
    assert server.accounts.describe() == "accounts of 2 of 3 read"


def test_accounts_that_cannot_be_read_disturb_nothing() -> None:
    """The reason is kept, the next try waits ten minutes, and listings go on."""
    server = Accounts(3)
    server.why = "postcat is not allowed"
    store = opened(server)
    tasks(store)
    assert names_until(server, store, RETRY_SECONDS - 60.0) == []
    assert server.calls.count("accounts 3") == 1 and server.calls.count("list") > 50
    for _ in "12":
        assert server.accounts.describe() == "accounts of 0 of 3 read: postcat is not allowed"
    server.why = ""
    tasks(store)
    assert len(names_until(server, store, 120.0)) == 3


@each("names", [(), ("queue",)])
def test_a_command_reads_accounts_before_its_scan(names: tuple[str, ...]) -> None:
    """Only if it asks for them; as many as are read from one listing to the next."""
    most = LOOKS_PER_POLL * IDS_PER_LOOK
    store = opened(Accounts(most + 7))
    store.read_accounts_first()
    known = [task.account for task in tasks(store, *names)]
    assert (known.count("ann"), known.count(None)) == (most, 7)
    server = Accounts(3)
    assert [task.account for task in tasks(opened(server))] == [None] * 3
    assert server.calls == ["list"]


def test_no_account_is_read_after_the_end() -> None:
    """A watch that is stopped during a look does not wait for it, and starts no other."""
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

    server = Blocked(3 * IDS_PER_LOOK)
    store = opened(server)
    tasks(store)
    watch = FolderWatch(store.changes, lambda: store, lambda names: None, lambda: None)
    watch.start(60)
    assert is_reading.wait(60)
    watch.stop()
    goes_on.set()
    assert is_closed.wait(60)
    assert server.calls.count(f"accounts {IDS_PER_LOOK}") == 1


def log_mails(path: Path, idents: Iterable[str], text: str) -> None:
    """Append a line of the log for each message."""
    with path.open("a") as file:
        file.writelines(f"2026-11-27T23:36:00+00:00 mx1 {text.format(one)}\n" for one in idents)


QUEUED = "postfix/qmgr[7]: {}: from=<a@b>, size=9, nrcpt=1 (queue active)"
DEFERRED = "postfix/smtp[7]: {}: to=<a@b>, relay=none, dsn=4.4.1, status=deferred (refused)"
REMOVED = "postfix/qmgr[7]: {}: removed"


def following(server: FakeServer, path: Path, prefix: Prefix = HERE) -> MailStore:
    """A store that follows a log, from its end on."""
    path.write_text("")
    log_mails(path, ["AAAAAA"], DEFERRED)
    log = log_lines.mail_log(str(path), prefix=prefix)._replace(facts=log_lines.NEW_LINES)
    store = opened(server, log=log)
    assert names_until(server, store, 1.0) == []
    assert len(tasks(store)) == len(server.mails)
    server.calls.clear()
    return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log that a store follows."""
    return tmp_path / "mail.log"


def test_messages_that_the_log_names_are_looked_at_between_listings(path: Path) -> None:
    """Those that were tried, and new ones that still wait a while later; no listing is run."""
    server = FakeServer(4, form=HEX)
    server.unsure = {"000001"}
    store = following(server, path)
    server.mails["00000A"] = ["hold", "1", "a"]
    del server.mails["000002"]
    log_mails(path, ["00000A", "00000B"], QUEUED)
    log_mails(path, ["00000C"], "postfix/smtpd[7]: {}: client=a[192.0.2.1]")
    log_mails(path, ["000001"], DEFERRED)
    log_mails(path, ["000002"], REMOVED)
    log_mails(path, ["000003"], QUEUED.replace("postfix", "other"))
    warning = "postfix/smtpd[7]: {}: hostname a does not resolve to address 192.0.2.1"
    log_mails(path, ["warning"], warning)
    names = names_until(server, store, 2.0)
    assert names == [f"000001{LOGGED}"]
    log_mails(path, ["00000B"], REMOVED)
    names += names_until(server, store, 5.0)
    assert names == [f"000001{LOGGED}", f"00000A{LOGGED}"]
    server.calls.clear()
    shown = {task.id: (task.state, task.error) for task in tasks(store, *names)}
    assert shown == {"000001": (P, "refused"), "00000A": (H, "")}
    assert server.calls == ["show 2"]


def test_one_look_at_logged_messages_in_the_time_of_a_poll(path: Path) -> None:
    """Others wait for the next listing, which is later by what the look took; none far away."""
    server = FakeServer(2 * IDS_PER_LOOK, form=HEX)
    store = following(server, path)
    for number in (IDS_PER_LOOK, 0):
        log_mails(path, server.mails, DEFERRED)
        assert len(names_until(server, store, 2.0)) == number
    assert server.calls == []
    store._logged.costs += [0.1, 0.1]
    names_until(server, store, COST_FACTOR * 0.2 - 0.25)
    assert server.calls == []
    names_until(server, store, 1.0)
    assert server.calls == ["list"]
    far = following(server, path, Prefix("far", ("env",)))
    log_mails(path, server.mails, DEFERRED)
    assert names_until(server, far, 3.0) == []


def test_looks_never_put_off_the_listing_for_long(path: Path) -> None:
    """Once they have delayed it by the time between two listings, there is none before it."""
    server = FakeServer(9, form=HEX)
    store = following(server, path)
    for second in range(20):
        log_mails(path, [HEX.format(second % 9)], DEFERRED)
        store._logged.costs += [1.0] * bool(names_until(server, store, 1.0))
    assert server.calls == ["list", "list"]


def test_a_row_that_no_listing_has_leaves_with_the_second_one(path: Path) -> None:
    """A message that comes and leaves between two listings has a row from the look at it."""
    server = FakeServer(1, form=HEX)
    store = following(server, path)
    names_until(server, store, 6.0)
    server.mails["00000A"] = ["queue", "1", "a"]
    log_mails(path, ["00000A"], DEFERRED)
    names = names_until(server, store, 1.5)
    assert [task.id for task in tasks(store, *names)] == ["00000A"]
    del server.mails["00000A"]
    assert None in [poll(store) for _ in range(40)]  # compared, though listings are the same
    assert revisions(store) and store._absent == {"00000A": 1}
    assert revisions(store)
    assert scanned(store, "00000A") == {"00000A": Missing("00000A")}
    assert store._moved == set()


def test_a_look_at_logged_messages_leaves_what_it_misses_to_the_listing(path: Path) -> None:
    """Such a message keeps its row; a look that fails costs what it took."""
    server = FakeServer(3, form=HEX)
    server.unsure = {"000001"}
    store = following(server, path)
    del server.mails["000000"]
    assert scanned(store, f"000000{LOGGED}", f"000001{LOGGED}") == {}
    assert server.calls == ["show 2"]
    store = following(server, path)

    def fail(ids: Sequence[str], records: Mapping[str, bytes]) -> Iterator[Task]:
        server.wait(60.0)
        raise Unavailable("not ended after 60 s")

    server.show = fail  # type: ignore[method-assign]
    assert scanned(store, f"000002{LOGGED}") == {}
    assert [*store._logged.take_costs()] == [60.0]


def test_a_failed_attempt_is_no_change() -> None:
    """State, queue and identity are compared; if no look reaches it, one listing decides."""
    server, store = start(4)
    seen = keys(tasks(store))
    server.unreached = {*server.mails, "M0009"}
    server.calls.clear()
    assert len([*store.verify([*seen, ("M0009", P, "1.queue.a")])]) == 4
    assert server.calls == ["show 5", "list"]
    server.unreached = set()
    server.mails["M0000"][2] = "b"
    server.mails["M0001"][1] = "2"
    server.mails["M0002"][0] = "hold"
    del server.mails["M0003"]
    (task,) = store.verify([*seen, ("nonsense", P, ""), ("M0009", P, "1.queue.a")])
    assert isinstance(task, Task) and keys([task]) == seen[:1]


def test_acts_are_grouped_and_each_move_has_its_outcome() -> None:
    """By queue and target, up to a batch; what was just verified is not looked at again."""
    server, store = start(7)
    server.mails["M0001"][0] = "hold"
    seen = list(store.verify(keys(tasks(store))))
    server.calls.clear()
    chosen = [
        Move(task, verbs.release(task, 0.0) if task.state is H else verbs.hold(task, 0.0))
        for task in sorted((t for t in seen if isinstance(t, Task)), key=lambda task: task.id)
    ]
    outcomes = list(store.swap_all(chosen))
    assert [(outcome.move, outcome.error) for outcome in outcomes] == [(m, None) for m in chosen]
    acts = ["act queue 2", "show 1", "act hold 1", "act queue 3", "act queue 1"]
    assert server.calls == acts
    assert [outcome.rev for outcome in outcomes] == [task.rev for task in tasks(store)]


@each(
    ("queue", "end"),
    [("trash", None), ("trash", P), ("hold", P), ("hold", T), ("queue", State.DEAD)],
)
def test_acts_are_looked_at_before_each_if_needed(queue: str, end: State | None) -> None:
    """A message that became another one during the act before is Gone, though verified."""
    server = FakeServer(6, queue)
    server.edges = {(QUEUES[queue], end): Edge(undoable=end is not State.DEAD)}
    server.states = {**server.states, State.DEAD: "dead"}
    store = opened(server)
    olds = [task for task in store.verify(keys(tasks(store))) if isinstance(task, Task)]
    server.before_act = lambda: server.mails["M0005"].__setitem__(1, "2")
    chosen = [Move(old, None if end is None else old._replace(state=end)) for old in olds]
    outcomes = list(store.swap_all(chosen))
    assert [type(outcome.error) for outcome in outcomes] == [type(None)] * 5 + [Gone]
    assert server.mails["M0005"] == [queue, "2", "a"]


def test_a_bar_is_asked_of_a_message_as_it_is_now() -> None:
    """One that was purged again since it was seen is kept, and the others are deleted."""
    server = FakeServer(2, "trash")
    server.edges = {(T, None): Edge(undoable=False, bars=lambda task, now: task.error)}
    store = opened(server)
    chosen = moves(store, verbs.expunge)
    server.mails["M0001"][2] = "a:again"
    assert results(store.swap_all(chosen)) == ["", "Unsupported: :again"]
    assert [*server.mails] == ["M0001"]


def test_a_look_that_fails_takes_no_outcome_from_the_act_before() -> None:
    """What was done stays done; the others have the reason."""
    server, store = start(2)
    server.mails["M0001"][0] = "hold"
    queued, held = tasks(store)
    list(store.verify(keys([queued])))

    def lose() -> None:
        server.unreached, server.failure = {*server.mails}, "connection lost"

    server.before_act = lose
    chosen = [Move(queued, verbs.hold(queued, 0.0)), Move(held, verbs.release(held, 0.0))]
    assert results(store.swap_all(chosen)) == ["1.hold.a", "Unavailable: connection lost"]


def test_a_move_is_looked_at_before_any_act() -> None:
    """What has changed since is Gone, as is the second of two moves of one task."""
    server, store = start(2)
    chosen = moves(store, verbs.hold)
    server.mails["M0000"][1] = "2"
    server.calls.clear()
    assert results(store.swap_all(chosen)) == ["Gone: M0000: changed", "1.hold.a"]
    assert server.calls == ["show 2", "act queue 1"]
    task = tasks(store)[0]
    held, purged = verbs.hold(task, 0.0), verbs.purge(task, 0.0)
    ends = (task._replace(state=State.ACTIVE), held._replace(error="x"), held, purged)
    chosen = [Move(None, task), *(Move(task, end) for end in ends)]
    errors = [type(outcome.error) for outcome in store.swap_all(chosen)]
    assert errors[:3] == [Unsupported] * 3
    assert {*errors[3:]} == {Gone, type(None)}
    assert list(store.take(0.0, "me", 9)) == []


def test_the_lines_of_an_act_that_ended_well_decide() -> None:
    """A refusal is the reason; without a line, another operator has moved it meanwhile."""
    server, store = start(3)
    server.before_act = lambda: server.mails["M0002"].__setitem__(0, "hold")
    server.end = lambda done: ActResult(
        {"M0000": "1.hold.a"}, {"M0001": "in delivery: PID 7"}, is_complete=True
    )
    assert results(store.swap_all(moves(store, verbs.hold))) == [
        "1.hold.a",
        "Unsupported: in delivery: PID 7",
        "Gone: not in queue any more",
    ]


GONE, DONE = "lost; looked again: not there any more", "lost; looked again: done"
FAILED, NO_MORE = "Unavailable: lost; looked again: unchanged", "Gone: not there any more"


@pytest.mark.parametrize(
    ("queue", "change", "after", "expected"),
    [
        # done in its target, failed if it is unchanged, else gone
        ("queue", verbs.hold, "hold queue -", [f"1.hold.a {DONE}", FAILED, NO_MORE]),
        # a release: delivered since, or in delivery now
        (
            "hold",
            verbs.release,
            "- active",
            [f"Unavailable: unknown: {GONE}", f"1.active.a {DONE}"],
        ),
        # no look shows whether a request has arrived
        ("queue", ask, "queue", ["Unavailable: unknown: lost"]),
        # absence is what a deletion wants
        ("trash", verbs.expunge, "- trash", [GONE, FAILED]),
    ],
)
@pytest.mark.parametrize("reached", [True, False])
def test_after_an_unknown_end_all_are_looked_at_again(
    queue: str,
    change: Callable[[Task, float], Task | None],
    after: str,
    expected: list[str],
    reached: bool,
) -> None:
    """What the server may have gone on with is unknown, and no act is repeated."""
    server = FakeServer(len(expected), queue)
    server.edges = {**server.edges, (P, P): Edge(frozenset({"due"}), exact=False)}
    store = opened(server)
    chosen = moves(store, change)

    def lose(done: Mapping[str, str]) -> ActResult:
        queues = zip([move.old.id for move in chosen if move.old], after.split(), strict=True)
        server.mails = {ident: [its, "1", "a"] for ident, its in queues if its != "-"}
        server.unreached = set() if reached else {*server.mails}
        return ActResult(why="lost")

    server.end = lose
    assert results(store.swap_all(chosen)) == expected
    assert sum(call.startswith("act") for call in server.calls) == 1


def test_if_nothing_can_be_looked_at_the_outcome_is_unknown() -> None:
    """Each row then has the reason of both failures."""
    server, store = start(2)
    chosen = moves(store, verbs.hold)

    def lose(done: Mapping[str, str]) -> ActResult:
        server.unreached, server.failure = {*server.mails}, "no route to host"
        raise Unavailable("connection lost")

    server.end = lose
    text = "Unavailable: unknown: connection lost; no route to host"
    assert results(store.swap_all(chosen)) == [text] * 2


def test_names_of_states_and_samples_are_counted_from_one_listing() -> None:
    """The trash is measured by the same one; a problem is looked up without running anything."""
    server, store = start(9)
    server.problems = [Problem("corrupt/M0009", "damaged")]
    for ident in ("M0001", "M0002"):
        server.mails[ident][0] = "trash"
    server.before_list = lambda: server.wait(1.0)
    assert [task.id for task in tasks(store, "trash")] == ["M0001", "M0002"]
    counts, words, some, is_whole = store.sample(1)
    assert (counts, words, is_whole) == ({P: 7, H: 0, T: 2}, {}, True)
    names = {one.where if isinstance(one, Problem) else one.id for one in some}
    assert names == {*server.mails, "corrupt/M0009"}
    assert store.trash_bytes() == 20
    assert [*store.scan({"M0009"})] == server.problems
    assert server.calls == ["list"] * 2
    server.wait(COST_FACTOR)
    del server.mails["M0001"]
    assert store.trash_bytes() == 10


def test_controls_and_parts_are_those_of_the_server() -> None:
    """A refused or unknown control is not run."""
    _, store = start(1)
    assert store.control("flush") == "did flush"
    for name in ("no", "nonsense"):
        for call in (store.control, store.forecast):
            with pytest.raises(Unsupported):
                call(name)
    (task,) = tasks(store)
    assert [part.name for part in store.parts(task)] == ["envelope"]
    assert store.size(task) == 10
    with pytest.raises(Unavailable):
        store.size(task._replace(bytes=None))
    image = store.read(task)
    assert store.restore_image(task, image, H) == task._replace(state=H)
    with pytest.raises(Unsupported):
        store.restore_image(task._replace(id="M0009"), image, H)
