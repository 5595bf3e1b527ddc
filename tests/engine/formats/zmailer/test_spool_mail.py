"""What verbs of an operator give to the router, and ask of the scheduler."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from engine.formats.zmailer import notify
from engine.formats.zmailer.environment import NOTIFY_SOCKET
from engine.formats.zmailer.notify import NotifySocket
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.spool import changes, marks
from engine.formats.zmailer.spool.control_file import parse_control_file
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import NOTICE_SECONDS, SpoolMail, read_form
from engine.model import Missing, Move, State, Task
from engine.operations.plans import bar_reason, preview_transitions, verb_refusal
from engine.store import Unavailable, Unsupported
from engine.system import files
from engine.verbs import VERBS, edit
from tests.store_contents import tasks_in
from tests.zmailer_spool import Spool, recipient

NOW = 1_795_170_000.0
SETTINGS = ReportSettings("mta.example")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """An empty spool."""
    return Spool(tmp_path).make()


@pytest.fixture
def store(spool: Spool) -> Iterator[ZmailerStore]:
    """A store that can give mail to the router."""
    with closing(open_store(spool)) as opened:
        yield opened


def open_store(spool: Spool, clock: Callable[[], float] = lambda: NOW) -> ZmailerStore:
    """Open one."""
    mail = partial(SpoolMail, clock=clock, settings=SETTINGS)
    return ZmailerStore(str(spool.root), clock, mail)


@contextmanager
def scheduled(spool: Spool, clock: Callable[[], float] = lambda: NOW) -> Iterator[ZmailerStore]:
    """A store while this process is taken for the scheduler of the spool."""
    (spool.root / ".pid.scheduler").write_text(f"{os.getpid()}\n")
    with chdir(spool.root / "transport"), closing(open_store(spool, clock)) as store:
        yield store


def tasks(store: ZmailerStore) -> list[Task]:
    """All tasks in the order of their lines."""
    return sorted(tasks_in(store).values(), key=lambda one: int(one.id.replace("/", "0000")))


def apply(store: ZmailerStore, verb: str, some: list[Task]) -> list[Exception | None]:
    """Apply a verb to tasks; the errors."""
    moves = [Move(task, VERBS[verb].function(task, NOW)) for task in some]
    return [outcome.error for outcome in store.swap_all(moves)]


def mails(spool: Spool) -> list[str]:
    """The mails in router/."""
    return [path.read_text() for path in sorted((spool.root / "router").iterdir())]


def triggers(spool: Spool) -> list[Path]:
    """The trigger files."""
    return sorted((spool.root / "transport").glob("*-etrn"))


@pytest.mark.parametrize(
    ("verb", "head", "status"),
    [("bounce", b"-killed", "Status: 5.7.0\n"), ("expire", b"-expire", "Status: 5.4.7\n")],
)
def test_recipients_that_an_operator_gives_up_are_reported_once(
    verb: str, head: bytes, status: str, spool: Spool, store: ZmailerStore
) -> None:
    """By one report a message, which stays in the spool for its scheduler."""
    path = spool.put(1001, recipient(user="one@d"), recipient(user="two@d"), recipient(user="3@d"))
    before = path.stat().st_mtime_ns
    moves = [Move(task, VERBS[verb].function(task, NOW)) for task in tasks(store)[:2]]
    outcomes = list(store.swap_all(moves))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert [outcome.rev for outcome in outcomes] == [task.rev for task in tasks(store)[:2]]
    (mail,) = mails(spool)
    assert mail.startswith("channel error\nerrormsg\n")
    assert (mail.count(status), "rfc822; 3@d" in mail) == (2, False)
    control = parse_control_file(path.read_bytes())
    assert [one.head[:7] for one in control.recipients] == [head, head, b" " * 7]
    assert len(control.diagnostics) == 2
    assert [line[1] for line in spool.lines(path, "d")] == ["+", "+"]
    assert path.stat().st_mtime_ns == before
    assert [task.state for task in tasks(store)] == [State.DEAD, State.DEAD, State.PENDING]
    for name in ("staged", "kept/transport"):
        assert not list((spool.root / ".spooldeck" / name).iterdir())


def test_no_report_is_written_if_the_sender_wants_none(spool: Spool, store: ZmailerStore) -> None:
    """NOTIFY=NEVER, and reports themselves: the recipient is given up all the same."""
    spool.put(1001, recipient(), "N NOTIFY=NEVER\n")
    path = spool.put(1002, recipient())
    path.write_text(path.read_text().replace("s local", "s error"))
    assert apply(store, "bounce", tasks(store)) == [None, None]
    assert (mails(spool), {task.state for task in tasks(store)}) == ([], {State.DEAD})


def test_rerouted_recipients_are_in_one_new_message(spool: Spool, store: ZmailerStore) -> None:
    """Waiting, held and failed ones, with the content of the message; then they are done."""
    spool.put(1001, *(recipient(user=f"{one}@d") for one in "abc"), recipient(user="d@d"))
    _, second, third, _ = tasks(store)
    store.swap(second, second._replace(state=State.HELD))
    store.swap(third, third._replace(state=State.DEAD))
    assert apply(store, "reroute", tasks(store)[:3]) == [None] * 3
    (mail,) = mails(spool)
    envelope, _, content = mail.partition("env-end\n")
    assert "from <a@b.example>\n" in envelope
    assert re.findall(r"\nto (.*)", envelope) == ["<a@d>", "<b@d>", "<c@d>"]
    assert content == "From: a@b.example\n\nall of it\n"
    assert [task.state for task in tasks(store)] == [State.DONE] * 3 + [State.PENDING]


def test_a_task_that_has_changed_is_not_ended(spool: Spool, store: ZmailerStore) -> None:
    """Neither is a mail written for it; without router/ the recipient still waits."""
    spool.put(1001, recipient())
    (task,) = tasks(store)
    store.swap(task, task._replace(state=State.HELD))
    (error,) = apply(store, "bounce", [task])
    assert ("1001/" in str(error), mails(spool)) == (True, [])
    (spool.root / "router").rmdir()
    spool.put(1002, recipient())
    (error,) = apply(store, "bounce", tasks(store)[1:])
    assert isinstance(error, Unavailable)
    assert [task.state for task in tasks(store)] == [State.HELD, State.PENDING]


def test_an_undo_of_a_bounce_sends_nothing(spool: Spool, store: ZmailerStore) -> None:
    """The recipient waits again; moving it to dead by its image is no bounce either."""
    spool.put(1001, recipient())
    (task,) = tasks(store)
    image = store.read(task)
    assert apply(store, "bounce", [task]) == [None]
    (dead,) = tasks(store)
    store.swap(dead, store.restore_image(dead, image, State.PENDING))
    (again,) = tasks(store)
    back = store.restore_image(again, store.read(again), State.DEAD)
    (outcome,) = store.swap_all([Move(again, back, store.read(again))])
    assert outcome.error is None
    assert len(mails(spool)) == 1


def test_verbs_that_write_mail_are_where_they_can(spool: Spool, store: ZmailerStore) -> None:
    """Edges name them; a store without the way to a router has none."""
    spool.put(1001, recipient())
    with closing(ZmailerStore(str(spool.root), lambda: NOW)) as plain:
        for verb in ("bounce", "expire", "reroute"):
            assert verb_refusal(store.edges, verb, State.PENDING) is None
            assert verb_refusal(plain.edges, verb, State.PENDING) == f"no {verb} from pending here"
    (preview,) = preview_transitions("bounce", {(State.PENDING, None, 0): 1}, store.edges)
    assert preview.transition == (State.PENDING, State.DEAD)
    assert "its sender gets a report" in preview.edge.warning
    (task,) = tasks(store)
    assert bar_reason(store.edges, "bounce", task, now=NOW) == ""
    assert not store.edges[State.PENDING, State.DEAD].warning
    none = "no scheduler is running: it tries all when it starts"
    assert verb_refusal(store.edges, "promote", State.PENDING) == none
    with pytest.raises(Unsupported, match="no scheduler is running"):
        store.swap(task, task._replace(due=0.0))


def test_a_host_is_woken_by_one_trigger_file(spool: Spool) -> None:
    """Each host once, by INODE-etrn with one line, which is no task; a notice names it."""
    spool.put(1001, recipient(), recipient(user="two"), recipient(host="other.example"))
    with (
        scheduled(spool) as store,
        closing(NotifySocket(f"{spool.root}/{NOTIFY_SOCKET}")) as socket,
    ):
        before = tasks(store)
        assert apply(store, "promote", before) == [None] * 3
        names = [path.name for path in triggers(spool)]
        assert sorted(socket.receive()) == names
        assert apply(store, "promote", before) == [None] * 3
        assert tasks(store) == before
        assert [item for item in store.scan(names) if not isinstance(item, Missing)] == []
    texts = sorted(path.read_text() for path in triggers(spool))
    assert texts == ["T mx.example\n", "T other.example\n"]
    assert names == [f"{path.stat().st_ino}-etrn" for path in triggers(spool)]


def test_a_hung_scheduler_is_waited_for_once(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a notice that is not taken the next do not wait; none is sent under the lock."""
    path = spool.put(1001, *(recipient(host=f"{one}.example") for one in "abc"))
    waits = list[float]()
    real = notify.send

    def send(socket: str, name: str, seconds: float = 0.0) -> bool:
        waits.append(seconds)
        with path.open("r+b") as file, marks.write_lock(file.fileno(), patience=0.0):
            return real(socket, name, seconds)

    monkeypatch.setattr(notify, "send", send)
    address, now = f"{spool.root}/{NOTIFY_SOCKET}", [NOW]
    with scheduled(spool, lambda: now[0]) as store, closing(NotifySocket(address)) as socket:
        while real(address, "1"):
            pass
        assert apply(store, "promote", tasks(store)) == [None] * 3
        assert waits == [NOTICE_SECONDS, 0.0, 0.0]
        assert set(socket.receive()) == {"1"}
        now[0] += 2.0
        assert apply(store, "promote", tasks(store)) == [None] * 3
        assert waits[3:] == [0.0, NOTICE_SECONDS, NOTICE_SECONDS]
    assert len(triggers(spool)) == 6


def test_only_what_is_not_woken_has_an_error(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the same batch that is written is reported as made, also on a full disk."""

    def full_disk(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "create_file", full_disk)
    spool.put(1001, recipient(), recipient(user="two"))
    with scheduled(spool) as store:
        held, woken = tasks(store)
        changed = (VERBS["hold"].function(held, NOW), VERBS["promote"].function(woken, NOW))
        first, second = store.swap_all(map(Move, (held, woken), changed))
        assert first.error is None
        assert "No space left" in str(second.error)
        assert [task.state for task in tasks(store)] == [State.HELD, State.PENDING]


def test_a_host_is_woken_only_now(spool: Spool) -> None:
    """A due time in the future is refused by the form and by the store, and no host is tried."""
    spool.put(1001, recipient())
    with scheduled(spool) as store:
        (task,) = tasks(store)
        problem = store.edges[State.PENDING, State.PENDING].value_problem
        assert problem("due", NOW, NOW) == ""
        assert "only be started now" in problem("due", NOW + 1, NOW)
        with pytest.raises(Unsupported, match="only be started now"):
            store.swap(task, edit(task, NOW, due=NOW + 3600))
        assert triggers(spool) == []
        store.swap(task, edit(task, NOW, due=NOW))
        assert len(triggers(spool)) == 1


def test_a_host_can_be_woken_again(spool: Spool) -> None:
    """Each order of an operator asks for a delivery, also one soon after another."""
    spool.put(1001, recipient())
    times = [NOW]
    with scheduled(spool, lambda: times[-1]) as store:
        for later in (0.0, 0.5, 2.0):
            times.append(NOW + later)
            assert apply(store, "promote", tasks(store)) == [None]
    assert len(triggers(spool)) == 2


def test_the_form_of_a_report_is_read_if_it_is_there(tmp_path: Path) -> None:
    """Else the built-in one is used."""
    (tmp_path / "delivery").write_text("SUB Subject: Bad news\n\nSorry.\n")
    assert read_form(str(tmp_path)).subject == b"Bad news"
    assert b"report" in read_form(str(tmp_path), "none").body


def test_links_that_a_killed_process_left_are_removed(spool: Spool, store: ZmailerStore) -> None:
    """A held recipient was given up by a process that was killed before it sent the report."""
    spool.put(1001, recipient(user="one@d"), recipient(user="two@d"))
    kept = spool.root / ".spooldeck/kept/transport"
    assert apply(store, "hold", tasks(store)[:1]) == [None]
    if (child := os.fork()) == 0:
        changes._send_all = lambda _: os._exit(9)  # type: ignore[assignment]
        apply(store, "bounce", tasks(store)[:1])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert list(kept.iterdir()) and not mails(spool)

    list(store.verify(()))
    assert not list(kept.iterdir()) and len(mails(spool)) == 1
