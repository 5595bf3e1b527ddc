"""The MAILQ server: exact texts, rights, limits, and peers that misbehave."""

import ipaddress
import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.mailq import acl
from engine.formats.zmailer.mailq.acl import digest, parse_users, read_users
from engine.formats.zmailer.mailq.server import MailqServer, listen_tcp, listen_unix
from engine.formats.zmailer.mailq.session import MailqSession, PreparedReports
from engine.store import Unavailable
from tests.mailq_samples import answers
from tests.mailq_server import USERS, SampleQueue


class SteppedServer:
    """A server that only moves when it is asked to, and its peers, all in this thread."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.queue, self.now = SampleQueue(), 1000.0
        self.path = str(folder / "s")
        self.server = MailqServer(
            [listen_unix(self.path)],
            self.queue,
            options.pop("users", USERS),  # type: ignore[arg-type]
            clock=lambda: self.now,
            wall_clock=lambda: 1_795_168_178.070584,
            **options,  # type: ignore[arg-type]
        )
        self.peers: list[socket.socket] = []

    def connect(self, *, is_accepted: bool = True) -> socket.socket:
        """A connected peer that does not block."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(self.path)
        peer.setblocking(False)
        self.peers.append(peer)
        if is_accepted:
            self.server.step()
        return peer

    def say(self, peer: socket.socket, data: bytes) -> bytes:
        """Send, let the server step, and read what is there."""
        peer.sendall(data)
        return self.hear(peer)

    def hear(self, peer: socket.socket) -> bytes:
        """Let the server step, and read what is there."""
        received = b""
        while True:
            self.server.step()
            try:
                data = peer.recv(1 << 16)
            except BlockingIOError:
                return received
            if not data:
                return received + b"<EOF>"
            received += data

    def close(self) -> None:
        """Close the peers and the server."""
        for peer in self.peers:
            peer.close()
        self.server.close()

    def log_in(self, name: str = "root", password: str = "s3cret") -> socket.socket:
        """A peer that has logged in."""
        peer = self.connect()
        challenge = self.hear(peer).decode().split("\n")[1]
        answer = digest(challenge, password)
        assert self.say(peer, f"AUTH {name} {answer}\n".encode()) == b"+OK\n"
        return peer


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedServer]:
    """A server of version 2."""
    with closing(SteppedServer(tmp_path)) as made:
        yield made


def test_recorded_digests_are_ours() -> None:
    """The digests that the original's server accepted are those of the whole challenge line."""
    recorded = {"nobody": "nobody", "root": "s3cret", "qonly": "pw"}
    checked = set()
    for session in ("session-nobody.txt", "session-root.txt"):
        challenge = ""
        for command, lines in answers(session):
            challenge = next((line for line in lines if line.startswith("220 ")), challenge)
            name, _, sent = command.removeprefix("AUTH ").partition(" ")
            if command.startswith("AUTH ") and lines == ["+OK"]:
                assert digest(challenge, recorded[name]) == sent
                checked.add(name)
    assert checked == {*recorded}


def test_nothing_is_done_before_a_login(stepped: SteppedServer) -> None:
    """Challenges differ; all else than AUTH has the original's answers."""
    for number in (1, 2):
        expected = f"version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1795168178.70584.{number}\n"
        assert stepped.hear(stepped.connect()) == expected.encode()

    unknown = "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS"
    for command, answer in (
        ("AUTH root 0123", "-BAD USER OR PASSWORD"),
        ("AUTH zzz 0123", unknown),
        ("AUTH", unknown),
        ("SHOW SNMP", "-BAD; USER MUST AUTHENTICATE"),
        ("KILL MSG 7", "-BAD; USER MUST AUTHENTICATE"),
    ):
        peer = stepped.connect()
        stepped.hear(peer)
        assert stepped.say(peer, f"{command}\n".encode()) == f"{answer}\n".encode()
    assert stepped.queue.asked == []


def test_commands_of_one_line(stepped: SteppedServer) -> None:
    """Each command has the original's answer; KILL says what happened."""
    unknown = "-MAILQ2 Unknown command, or refused by access control; VERB='{}' REST='{}'".format
    for user, command, answer in (
        ("root", "SHOW FOO", unknown("SHOW", "FOO")),
        ("root", "FROB", unknown("FROB", "")),
        ("root", "show SNMP", unknown("show", "SNMP")),
        ("root", "AUTH root x", unknown("AUTH", "root x")),
        ("root", "FR\x1bB", unknown("FR�B", "")),
        ("qonly", "SHOW SNMP", unknown("SHOW", "SNMP")),
        ("qonly", "SHOW QUEUE THREADS", unknown("SHOW", "QUEUE THREADS")),
        ("qonly", "SHOW THREAD smtp a.test", unknown("SHOW", "THREAD smtp a.test")),
        ("qonly", "ETRN a.test", "-No ETRN allowed for you."),
        ("nobody", "KILL MSG I/F/3276785", "-No KILL allowed for you."),
        ("root", "ETRN a.test", "+OK; an ETRN started something."),
        ("root", "ETRN nosuch.test", "+OK; an ETRN didn't start anything."),
        ("root", "ETRN", "+OK; an ETRN didn't start anything."),
        ("root", "KILL MSG I/F/3276785\r", "+OK; KILLed something."),
        ("root", "KILL MSG 9", "-ERR no such message"),
        ("root", "KILL THREAD smtp a.test", "+OK; KILLed something."),
        ("root", "KILL THREAD smtp z.test", "-ERR no such thread"),
        ("root", "KILL ALL", "-Unknown request."),
    ):
        peer = stepped.log_in(user, {"root": "s3cret", "nobody": "nobody", "qonly": "pw"}[user])
        assert stepped.say(peer, f"{command}\n".encode()).decode() == f"{answer}\n"


@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_command_has_an_answer_that_controls_no_terminal(lines: list[str]) -> None:
    """Any text is answered, and its control characters are not repeated."""
    challenge = "220 MAILQ-V2-CHALLENGE: 1.2.3"
    session = MailqSession(PreparedReports(SampleQueue()), USERS, None, challenge)
    session.answer(f"AUTH root {digest(challenge, 's3cret')}")
    for line in lines:
        text = session.answer(line).data.decode("utf-8", "surrogateescape")
        assert text.replace("\n", "").isprintable(), text


def test_exact_kill_answers_as_the_original(tmp_path: Path) -> None:
    """With `is_exact`, KILL MSG is always OK with an empty line, and KILL THREAD is unknown."""
    with closing(SteppedServer(tmp_path, is_exact=True)) as exact:
        peer = exact.log_in()
        assert exact.say(peer, b"KILL MSG 9\n") == b"+OK; KILLed something.\n\n"
        assert exact.say(peer, b"KILL THREAD smtp a.test\n") == b"-Unknown request.\n\n"


def test_reports_end_with_a_dot_and_double_leading_dots(stepped: SteppedServer) -> None:
    """Reports have the lines of the view; a leading dot in a line is doubled. While the view is the
    same, its text is only written; a changed view is rendered again."""
    stepped.queue.all_jobs[0] = stepped.queue.all_jobs[0]._replace(path=".hidden")
    peer = stepped.log_in()
    lines = stepped.say(peer, b"SHOW THREAD smtp a.test\n").decode().split("\n")
    assert lines[0] == "+OK until LF.LF"
    assert lines[1].startswith("#smtp/a.test/0  N=2   R=2   A=5  W=60s QA=2m")
    assert lines[2].startswith("..hidden\t0\talice@local.test\t169\t")
    assert lines[-2:] == [".", ""]
    assert stepped.say(peer, b"SHOW THREAD smtp nosuch\n") == b"+OK until LF.LF\n.\n"
    for command in ("SNMP", "QUEUE SHORT", "QUEUE THREADS", "QUEUE THREADS2", "COUNTERS"):
        lines = stepped.say(peer, f"SHOW {command}\n".encode()).decode().split("\n")
        assert (lines[0], lines[-2:]) == ("+OK until LF.LF", [".", ""])
        assert len(lines) > 4

    first, second = (stepped.say(stepped.log_in(), b"SHOW QUEUE THREADS\n") for _ in range(2))
    assert first == second
    stepped.queue.kill_message("I/F/3276785")
    assert b"b.test" not in stepped.say(stepped.log_in(), b"SHOW QUEUE THREADS\n")


def test_a_command_ends_with_its_line(stepped: SteppedServer) -> None:
    """Commands in one packet are answered in order; QUIT in any case ends the connection. One
    without its LF is not run, even if the peer closes behind it; without end it is refused at 4096
    bytes, and the connection is closed."""
    replies = stepped.say(stepped.log_in(), b"ETRN x\nKILL X\r\n\nquit\nSHOW SNMP\n").split(b"\n")
    etrn = b"+OK; an ETRN didn't start anything."
    assert replies == [etrn, b"-Unknown request.", b"+Bye bye", b"<EOF>"]
    assert (stepped.server.connections, stepped.queue.asked) == ({}, ["ETRN x"])

    peer = stepped.log_in()
    text = b"".join(stepped.say(peer, b"x" * 1024) for _ in range(4))
    assert text == b"-Command too long.\n<EOF>"

    peer = stepped.log_in()
    assert stepped.say(peer, b"KILL MSG I/F") == b""
    peer.close()
    stepped.peers.remove(peer)
    stepped.server.step()
    assert (stepped.server.connections, stepped.queue.asked) == ({}, ["ETRN x"])


def test_connections_are_limited(stepped: SteppedServer) -> None:
    """To 21, and to 90 s each, also in the middle of an answer."""
    busy, slow = stepped.log_in(), stepped.connect()
    stepped.now += 89.0
    stepped.say(busy, b"SHOW SNMP\n")
    assert len(stepped.server.connections) == 2
    stepped.now += 1.0
    stepped.server.step()
    assert not stepped.server.connections
    assert stepped.hear(slow).endswith(b"<EOF>")

    peers = [stepped.connect() for _ in range(22)]
    assert len(stepped.server.connections) == 21
    assert stepped.hear(peers[-1]) == b"<EOF>"
    peers[0].close()
    stepped.server.step()
    assert b"CHALLENGE" in stepped.hear(stepped.connect())


def test_a_slow_reader_delays_no_other_peer(stepped: SteppedServer) -> None:
    """A peer that does not read keeps waiting; others are answered, and steps are short."""
    job = stepped.queue.all_jobs[0]
    stepped.queue.all_jobs = [job._replace(host=f"h{n}.test") for n in range(1500)]
    slow, quick = stepped.log_in(), stepped.log_in()
    slow.sendall(b"SHOW QUEUE THREADS\n" * 8 + b"ETRN h1.test\n")
    for _ in range(5):
        stepped.server.step()
    assert stepped.queue.asked == []  # what it sent behind is not handled yet
    assert stepped.say(quick, b"KILL X\n") == b"-Unknown request.\n"
    assert stepped.hear(slow).count(b"+OK until LF.LF\n") == 8
    assert stepped.queue.asked == ["ETRN h1.test"]


def test_version_1_writes_a_dump_and_closes(tmp_path: Path) -> None:
    """Without users it is version 1: all is written on accept, without `with_jobs` no jobs."""
    (tmp_path / "q").mkdir()
    for folder, with_jobs in ((tmp_path, True), (tmp_path / "q", False)):
        with closing(SteppedServer(folder, users=None, with_jobs=with_jobs)) as old:
            text = old.hear(old.connect()).decode()
        assert text.startswith("version zmailer 1.0\nVertices:\n")
        assert ("Channels:" in text) is with_jobs
        assert "\nEnd:\nhold/*/0\n" in text and text.endswith("stored 9\n<EOF>")


# ---- users

ORIGINAL = """# test auth file
nobody:nobody:SNMP QQ TT ETRN: [127.0.0.0]/8 [ipv6.0::1]/128
nobody:nobody:SNMP ETRN: [0.0.0.0]/0 [ipv6.0::0]/0
root:s3cret:ALL: [127.0.0.0]/8
qonly:pw:QQ: ![127.0.0.2]/32,[127.0.0.0]/8
nokey:pw:BOGUS: [127.0.0.0]/8
local:pw:TT:
"""


def test_the_first_fitting_line_of_a_user_decides() -> None:
    """Name, address and rights decide; a UNIX socket only fits a line without addresses; a line
    with an unknown right, too few fields or a bad address is named, and admits no user."""
    users, wrong = parse_users(ORIGINAL)
    for name, peer, rights in (
        ("nobody", "127.0.0.1", "SNMP QQ TT ETRN"),
        ("nobody", "10.0.0.1", "SNMP ETRN"),
        ("nobody", "::1", "SNMP QQ TT ETRN"),
        ("nobody", "::ffff:127.0.0.9", "SNMP QQ TT ETRN"),
        ("nobody", "", ""),
        ("root", "127.9.9.9", "SNMP QQ TT ETRN KILL"),
        ("root", "10.0.0.1", ""),
        ("qonly", "127.0.0.1", "QQ"),
        ("qonly", "127.0.0.2", ""),
        ("nokey", "127.0.0.1", ""),
        ("local", "", "TT"),
        ("local", "8.8.8.8", "TT"),
    ):
        user = acl.find_user(users, name, ipaddress.ip_address(peer) if peer else None)
        assert {*rights.split()} == {*(user.rights if user else ())}
    assert wrong == ("line 6: unknown right, expected SNMP, QQ, TT, ETRN, KILL, ALL or NONE",)
    assert "s3cret" not in repr(users)
    users, wrong = parse_users("a:b\n\n*x\nc:d:ALL: 127.0.0.1\ne:f:ALL:[1.2.3.4]/99\ng:h:ALL:\n")
    assert [user.name for user in users] == ["g"]
    assert [line[:6] for line in wrong] == ["line 1", "line 4", "line 5"]


def test_a_file_of_users_must_be_private(tmp_path: Path) -> None:
    """A file that others can read, a folder, and a missing file are refused in one line."""
    path, open_to_others = tmp_path / "auth", tmp_path / "open"
    for one, mode in ((path, 0o600), (open_to_others, 0o640)):
        one.write_text(ORIGINAL)
        one.chmod(mode)
    for wrong, why in (
        (tmp_path / "none", "No such file"),
        (open_to_others, "chmod 600"),
        (tmp_path, "plain file"),
    ):
        with pytest.raises(Unavailable, match=why):
            read_users(str(wrong))
    assert len(read_users(str(path))[0]) == 6


def test_a_peer_that_no_line_admits_is_refused(tmp_path: Path) -> None:
    """A peer whose address fits no line gets 550 in place of a challenge."""
    users, _ = parse_users("root:s3cret:ALL: [10.0.0.0]/8\n")
    with closing(SteppedServer(tmp_path, users=users)) as closed:
        answer = closed.hear(closed.connect())
    assert answer == b"version zmailer 2.0\n550 NO ACCESS FOR YOU\n<EOF>"


# ---- sockets


def test_tcp_is_on_the_loopback_address(tmp_path: Path) -> None:
    """By default a TCP listener is reached from this host only."""
    with listen_tcp(port=0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        busy = listener.getsockname()[1]
        with pytest.raises(Unavailable, match=f"TCP:127.0.0.1:{busy}: "):
            listen_tcp(port=busy)
        made = MailqServer([listener], SampleQueue(), parse_users("a:b:QQ:[127.0.0.0]/8")[0])
        with socket.create_connection(("127.0.0.1", busy)) as peer:
            made.step(1.0)
            assert peer.recv(20) == b"version zmailer 2.0\n"
        made.close()


def test_a_dead_socket_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    """A socket that no process listens on is replaced; a file or a served socket is not."""
    dead, file = tmp_path / "s", tmp_path / "file"
    file.write_text("mine")
    listen_unix(str(dead)).close()
    with listen_unix(str(dead)):
        assert stat.S_IMODE(dead.stat().st_mode) == 0o666
        for path, why in (
            (dead, "another process"),
            (file, "no socket"),
            (tmp_path / "none/s", "No such file"),
        ):
            with pytest.raises(Unavailable, match=why):
                listen_unix(str(path))
    assert file.read_text() == "mine"


def test_running_out_of_descriptors_is_no_loop(stepped: SteppedServer) -> None:
    """Without a free descriptor the oldest connection is closed, so that a waiting one gets in."""
    stepped.connect()
    late = stepped.connect(is_accepted=False)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        stepped.server.step()
        assert not stepped.server.connections
        assert b"CHALLENGE" in stepped.hear(late)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
