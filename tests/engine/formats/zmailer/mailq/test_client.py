"""The MAILQ client on our server, and on peers that stall, lie or send anything."""

import functools
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from engine.formats.zmailer.mailq import connection, report_text
from engine.formats.zmailer.mailq.acl import Right
from engine.formats.zmailer.mailq.client import MailqClient
from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.store import Unavailable, Unsupported
from engine.system.answer_limit import AnswerLimit
from tests.mailq_samples import read_dump
from tests.mailq_server import NOW, SAMPLE_JOBS, RunningServer, serving


def client_of(path: str, user: str = "root", password: str = "s3cret") -> MailqClient:
    """A client of a UNIX socket, which waits 0.3 s for an answer."""
    address = ServerAddress("mailq+unix://x", path, user=user, password=password)
    return MailqClient(address, lambda: NOW, seconds=0.3)


@contextmanager
def client_on(path: str, user: str = "root", password: str = "s3cret") -> Iterator[MailqClient]:
    """That client, which is closed in the end."""
    with closing(client_of(path, user, password)) as client:
        yield client


@contextmanager
def peer(folder: Path, *scripts: Sequence[bytes | None]) -> Iterator[str]:
    """A peer that sends one script on each connection: bytes, or None to wait for a command.

    After the script it waits until the client closes.
    """
    path = str(folder / "peer")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()

    def run() -> None:
        for script in scripts:
            with closing(listener.accept()[0]) as link, suppress(OSError):
                play(link, script)

    def play(link: socket.socket, script: Sequence[bytes | None]) -> None:
        for part in script:
            if part is None:
                link.recv(4096)
            elif part == b"<EOF>":
                return
            else:
                link.sendall(part)
        while link.recv(4096):
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        thread.join(2.0)
        listener.close()
        assert not thread.is_alive(), "the client did not connect as often, or did not close"


HELLO = b"version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1.2.3\n"
OK = [HELLO, None, b"+OK\n", None]
"""A peer's part of a login with a first command."""


def test_all_that_a_server_shows_is_read(running: RunningServer) -> None:
    """Threads, totals, jobs and counters are those of the server's view."""
    view = running.queue.view(with_jobs=False)
    with client_on(running.path) as client:
        assert client.find_version() == 2
        assert client.threads() == (view.groups, view.totals)
        assert client.jobs("smtp", "a.test").jobs == (SAMPLE_JOBS[0], SAMPLE_JOBS[2])
        held = (view.groups[0].threads[0], (SAMPLE_JOBS[3],))
        assert client.jobs("hold", "ns:c.test/any") == held
        assert client.jobs("smtp", "none") == (None, ())
        (line,) = [one for one in client.show("SHOW COUNTERS") if "MasterPID" in one]
        assert line.split(None, 2) == ["SYS.SchedulerMasterPID", "7", "NOT PRESENT!"]


@pytest.mark.parametrize("is_exact", [False, True])
def test_rights_are_found_without_a_change(tmp_path: Path, is_exact: bool) -> None:
    """Each right is tried by a command that changes nothing; stray empty lines do not confuse."""
    with serving(tmp_path, is_exact=is_exact) as server:
        for user, password, rights in (
            ("root", "s3cret", {*Right}),
            ("nobody", "nobody", {Right.SNMP, Right.QQ, Right.TT, Right.ETRN}),
            ("qonly", "pw", {Right.QQ}),
        ):
            with client_on(server.path, user, password) as client:
                assert [{*client.find_rights()} for _ in range(2)] == [rights] * 2
        assert server.queue.all_jobs == [*SAMPLE_JOBS]


def test_changes_are_asked_for(running: RunningServer) -> None:
    """ETRN and both kinds of KILL reach the queue; a refusal is an error with the answer."""
    with client_on(running.path) as client, client_on(running.path, "qonly", "pw") as poor:
        assert client.request("ETRN a.test") == "+OK; an ETRN started something."
        client.request("KILL MSG I/F/3276785")
        client.request("KILL THREAD hold ns:c.test/any")
        assert [job.path for job in running.queue.all_jobs] == ["G/W/3268638"]
        for one, words, why in (
            (client, "KILL MSG 9", "KILL MSG 9: -ERR no such message"),
            (client, "KILL MSG 9\nKILL MSG G/W/3268638", "control characters"),
            (poor, "KILL MSG G/W/3268638", "-No KILL allowed for you"),
        ):
            with pytest.raises(Unsupported, match=why):
                one.request(words)


def test_a_dump_of_version_1_is_read(tmp_path: Path) -> None:
    """Version 1 gives its dump, and has no rights and no commands; so does the recorded one."""
    with serving(tmp_path, users=None) as server, client_on(server.path) as client:
        view = client.dump()
        assert (client.find_version(), client.find_rights()) == (1, frozenset())
        assert [job.path for job in view.jobs] == [job.path for job in SAMPLE_JOBS]
        assert view.groups == server.queue.view(with_jobs=False).groups
        for ask in (client.threads, lambda: client.request("KILL MSG 7")):
            with pytest.raises(Unsupported, match="version 1"):
                ask()
    with peer(tmp_path, [read_dump().encode(), b"<EOF>"]) as path:
        assert len(client_of(path).dump().jobs) == 17


def test_an_old_connection_is_replaced(
    running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is older than 80 s, or that the server has closed, is replaced."""
    with client_on(running.path) as client:
        client.threads()
        monkeypatch.setattr(connection, "CONNECTION_SECONDS", -1.0)
        client.threads()
        monkeypatch.undo()
    totals = running.queue.view(with_jobs=False).totals._replace(messages_in=99)
    lines = report_text.totals_lines(totals)
    answer = "\n".join(["+OK until LF.LF", *lines, ".\n"]).encode()
    with peer(tmp_path, [*OK, answer, b"<EOF>"], [*OK, answer]) as path, client_on(path) as client:
        client.threads()
        assert client.threads()[1].messages_in == 99


def test_a_change_is_never_sent_twice(tmp_path: Path) -> None:
    """If the connection ends before the answer to a KILL, it is an error: it may have been done."""
    with peer(tmp_path, [*OK, b"+OK\n", None, b"<EOF>"]) as path:
        client = client_of(path)
        client.request("ETRN a")
        with pytest.raises(Unavailable, match="closed the connection"):
            client.request("KILL MSG 7")


LONG = b"x" * 70_000
BAD_PEERS: list[tuple[Sequence[bytes | None], str]] = [
    ([b""], "no answer within 0.3 s"),
    ([b"<EOF>"], "closed the connection"),
    ([b"220 smtp.example ESMTP\n"], "'version zmailer' 1.0 or 2.0"),
    ([b"version zmailer 2.0\n550 NO ACCESS FOR YOU\n"], "refuses this host: 550 NO ACCESS"),
    ([HELLO, None, b"-BAD USER OR PASSWORD\n"], "refuses the login of user root: -BAD USER OR"),
    ([*OK, b"+OK until LF.LF\nKids: 1\n"], "no answer within"),
    ([*OK, b"+OK until LF.LF\nx\n", b"<EOF>"], "middle of an answer"),
    ([*OK, b"\n\n+OK until LF.LF\n    \x1b[2J\n.\n"], "THREADS: line 1: '    �[2J', expe"),
    ([*OK, b"-no\x1b\n"], "SHOW QUEUE THREADS: -no�"),
    ([LONG], "more than 64 KiB"),
    ([*OK, b"+OK until LF.LF\n" + LONG], "more than 64 KiB"),
    ([*OK, b"+OK until LF.LF\n" + LONG + b"\n"], "than 64 KiB"),
]


@pytest.mark.parametrize(("script", "words"), BAD_PEERS)
def test_a_bad_peer_is_one_line(tmp_path: Path, script: Sequence[bytes | None], words: str) -> None:
    """A peer that stalls, ends, refuses or sends anything is an error of one line that names it."""
    with (
        peer(tmp_path, script) as path,
        client_on(path) as client,
        pytest.raises((Unavailable, Unsupported)) as caught,
    ):
        client.threads()
    message = str(caught.value)
    assert message.startswith("mailq+unix://x: ") and words in message
    assert message.isprintable() and "s3cret" not in message


DUMP = b"ab\n" * 30_000
"""A dump of version 1 without end."""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([*OK, b"+OK until LF.LF\n", b"abcde\n" * 20_000], "more than 97 KiB"),
        ([*OK, b"+OK until LF.LF\n", b"\n" * 30_000], "more than 20,000 lines"),
        ([*OK, b"\n" * 30_000], "more than 20,000 lines"),
        ([b"\n" * 70_000], "an empty line, expected"),
        ([HELLO, None, b"\n" * 70_000], "more than 64 KiB"),
        ([DUMP], "more than 20,000 lines"),
    ],
)
def test_an_answer_ends_at_its_limits(
    tmp_path: Path, script: Sequence[bytes | None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and lines of an answer are limited (here less); before the login to few."""
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 100_000)
    monkeypatch.setattr(connection, "MAX_ANSWER_LINES", 20_000)
    with peer(tmp_path, script) as path, pytest.raises(Unavailable, match=words):
        (client_of(path).dump if script == [DUMP] else client_of(path).threads)()


@pytest.mark.parametrize("begin", [[HELLO, None], [*OK, b"+OK until LF.LF\n"], []])
def test_an_answer_has_one_deadline(
    tmp_path: Path, begin: Sequence[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that sends a byte now and then is at an end with the time of an answer."""
    ticks = (0.2 * n for n in itertools.count())
    slow = functools.partial(AnswerLimit, clock=lambda: next(ticks))
    monkeypatch.setattr(connection, "AnswerLimit", slow)
    drip = [*begin, *[b"a"] * 1000]
    with peer(tmp_path, drip) as path, pytest.raises(Unavailable, match="no answer within"):
        client_of(path).threads()


def test_no_server_is_one_clear_line(tmp_path: Path) -> None:
    """A missing socket and a closed port are errors of one line."""
    with pytest.raises(Unavailable, match="No such file"):
        client_of(str(tmp_path / "none")).threads()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = ServerAddress(f"mailq://127.0.0.1:{port}", "", "127.0.0.1", port)
    with pytest.raises(Unavailable, match="Connection refused"):
        MailqClient(address).threads()
