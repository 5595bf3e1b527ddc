"""Mail handed to a server by SMTP: what arrives, and each error when it does not.

Most servers are real ones with given answers; a plain socket shows the bytes on the wire."""

import functools
import io
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.formats.kannader.mail_format import encode_wire
from engine.formats.kannader.settings import TLS
from engine.mail.model import BadMail, NotSent
from engine.mail.send import smtp_client
from engine.mail.send.smtp_client import SmtpDestination, WireMessage, smtp_path
from engine.mail.wire_format import CHUNK_BYTES
from engine.model import State, Task
from engine.system.answer_limit import AnswerLimit
from engine.text.error_pattern import fold_error, pattern_name, reply_code
from engine.work.handlers import Context, Failed, Fatal, Lacking, Postponed
from engine.work.smtp_send import SmtpSend
from tests import smtp_server
from tests.engine.descriptors import no_descriptors
from tests.engine.sample_mails import BODIES, HEADERS, unwired
from tests.smtp_server import CUT, DROP, HOST, STALL, Certificate, Server, refusing, silent
from tests.tables import each

TASK = Task("e7b1", "mail", State.ACTIVE, 1_795_170_000.0)
SENDER, RECIPIENT = "us@example.org", "admin@example.com"
MAIL = encode_wire(b"Subject: x\n\ntext\n")
SECRET = "s3cret of café"
Script: TypeAlias = dict[str, Any]
"""Answers of a server by their stage."""


def send(
    to: Server | int,
    contents: bytes = MAIL,
    sender: str = SENDER,
    recipient: str = RECIPIENT,
    cancelled: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> None:
    """One attempt, at a server on this host."""
    port = to if isinstance(to, int) else to.port
    usual: dict[str, Any] = {"host": HOST, "port": port, "helo": "here.example.org"}
    messages = [WireMessage(sender, recipient, io.BytesIO(contents))]
    handler = SmtpSend(lambda task: messages.pop(), SmtpDestination(**{**usual, **settings}))
    with closing(handler):
        handler(TASK, Context(is_cancelled=cancelled))


def failure(kind: type[Failed], *args: Any, **how: Any) -> str:
    """What an attempt says that fails; of exactly this kind."""
    with pytest.raises(Failed) as caught:
        send(*args, **how)
    assert type(caught.value) is kind, caught.value
    return str(caught.value)


def secret_file(folder: Path, secret: str = SECRET, mode: int = 0o600) -> str:
    """A file with the password."""
    path = folder / "secret"
    path.write_text(f"{secret}\n")
    path.chmod(mode)
    return str(path)


def a_letter(contents: io.BytesIO | None = None, sender: str = SENDER) -> WireMessage:
    """A mail to the usual recipient."""
    return WireMessage(sender, RECIPIENT, contents or io.BytesIO(MAIL))


def handler_of(server: Server | int, *letters: WireMessage) -> closing[SmtpSend]:
    """A handler that sends these mails to a server on this host."""
    messages, port = list(letters), server if isinstance(server, int) else server.port
    to = SmtpDestination(HOST, port)
    return closing(SmtpSend(lambda task: messages.pop(0), to))


def commands(server: Server, word: str) -> list[str]:
    """The commands that begin with a word."""
    return [line for line in server.commands if line.upper().startswith(word)]


# ---- what arrives


def test_a_mail_arrives_byte_for_byte() -> None:
    """In any piece, without the dots that SMTP adds; every byte goes through, as 8-bit."""
    texts = [(HEADERS + "\n" + body).encode() for body in BODIES]
    texts.append(b"Subject: x\n\n" + bytes(c for c in range(256) if c not in b"\r\n") + b"\n")
    pieces = []
    for size in (*(CHUNK_BYTES - n for n in (3, 2, 1, 0)), 3 * CHUNK_BYTES + 1):
        lines = b"Subject: x\r\n\r\n" + b"..\r\n" * (size // 4 - 10)
        pieces.append(lines + b"x" * (size - len(lines) - 5) + b"\r\n.\r\n")
        assert len(pieces[-1]) == size
    with Server() as server:
        for contents in (*map(encode_wire, texts), *pieces):
            send(server, contents)
    expected = [*(text.replace(b"\n", b"\r\n") for text in texts), *map(unwired, pieces)]
    assert [mail.data for mail in server.mails] == expected
    assert {mail[:3] for mail in server.mails} == {("here.example.org", SENDER, (RECIPIENT,))}
    assert any(line.endswith("BODY=8BITMIME") for line in server.commands)


def test_the_null_sender_and_odd_addresses_arrive_as_they_are_written() -> None:
    """A bounce has the null sender; quotes and the address of a host stay what they are."""
    addresses = ['"q uo\\"te"@[192.0.2.7]', "x@[IPv6:2001:db8::1]", "postmaster"]
    with Server() as server:
        for sender in ("<>", ""):
            send(server, sender=sender)
        for address in addresses:
            send(server, recipient=address)
    null = [line.startswith("MAIL FROM:<>") for line in commands(server, "MAIL")]
    assert null == [True, True, False, False, False]
    assert commands(server, "RCPT")[2:] == [f"RCPT TO:<{address}>" for address in addresses]


# ---- what is never sent


NOT_WIRE = [
    b"", b"Subject: x\r\n\r\ntext\r\n", b"Subject: x\n\ntext\n.\n", b"text.\r\n", b".\r\n.\r\n",
    b"a\r\n.\r\nMAIL FROM:<x@example.org>\r\n.\r\n", b"a\n.\nb\r\n.\r\n", b"a\n.\r\nb\r\n.\r\n",
    b"a\r.\r\nb\r\n.\r\n", b"a\r\n.\rb\r\n.\r\n", b"x" * (CHUNK_BYTES - 2) + b"\r\n.\r\nb\r\n.\r\n",
    b"x" * (CHUNK_BYTES - 3) + b"\r\n.\r\nb\r\n.\r\n",
    b"x" * (CHUNK_BYTES - 4) + b"\n.\nb\r\n.\r\n",
]  # fmt: skip
NO_ADDRESS = [
    "a@example.org>\r\nRCPT TO:<b@example.org", "a@example.org\nx", "a@example.org> SIZE=1",
    "a@exa mple.org", "a b@example.org", "a@b@example.org", "a\x00@example.org",
    "a\x85@example.org", "a\u2028@example.org", '"a\r\nb"@example.org', "a@[192.0.2.7]>", "a@",
    "@example.org", "<a@example.org>", '{"localpart":{"X":{"raw":"a"}},"hostname":null}',
]  # fmt: skip
LOOKALIKES = ["a@b\uff1ec.org", "a@b\uff20c.org", "a@\uff3b1.2.3.4\uff3d", "a@b\uff0cc.org"]


def test_a_mail_that_could_smuggle_reaches_no_server() -> None:
    """Contents with a wrong end, an address with a command, or one that changes on its way: no
    server is called. Only what is before the @ needs more than ASCII."""
    wrong = [({"recipient": one}, "is ambiguous in a host name") for one in LOOKALIKES]
    for field in ("sender", "recipient"):
        wrong += [({field: address}, "not a valid SMTP address") for address in NO_ADDRESS]
    with Server() as server:
        for contents in NOT_WIRE:
            assert failure(Fatal, server, contents).startswith("not in wire form")
        for fields, why in (*wrong, ({"recipient": "<>"}, "no recipient")):
            assert why in failure(Fatal, server, **fields)
        assert server.connections == 0
    assert smtp_path("user@élégance.fr") == "<user@xn--lgance-9uab.fr>"
    with pytest.raises(BadMail):
        smtp_path("user@é lance.fr")


# ---- what the server says


@each("stage", ["mail", "rcpt", "data", "body"])
def test_4xx_is_tried_again_and_5xx_is_not(stage: str) -> None:
    """4xx fails the attempt, 5xx the mail; equal words behind two codes are two errors."""
    answers = ["450 4.2.0 not now, u7", "452 4.2.0 not now, u8", "550 5.1.1 no such user"]
    script: Script = {stage: answers}
    with Server(**script) as server:
        busy, full = failure(Failed, server), failure(Failed, server)
        never = failure(Fatal, server)
        send(server)
    assert busy.startswith("unavailable_450: 450 4.2.0 not now, u7")
    assert never.startswith("rejected_550: 550 5.1.1 no such user")
    assert len(server.mails) == 1
    assert [reply_code(busy), reply_code(full)] == ["450", "452"]
    assert fold_error(busy).startswith("unavailable_450: 450 4.2.0 not now, u# - ")
    assert pattern_name(fold_error(busy)) != pattern_name(fold_error(full))


MANY = encode_wire(b"Subject: x\n\n" + (b"y" * 70 + b"\n") * 200_000)
IN_DOUBT = "in doubt: it may have been accepted"


@each(("answers", "settings", "error"), [
    # answers of the server, settings, error
    *((dict.fromkeys([stage, "helo"], "554 5.3.2 closed"), {}, "unavailable_554: 554 5.3.2 closed")
      for stage in ("greeting", "ehlo")),
    *(({stage: DROP}, {}, "connect_lost: ") for stage in ("greeting", "ehlo", "mail", "rcpt")),
    ({"data": DROP}, {}, "connect_lost: "),
    ({"data": CUT}, {"contents": MANY}, "connect_lost: "),
    ({"body": DROP}, {}, f"connect_lost: {IN_DOUBT}"),
    ({"rcpt": STALL}, {"timeout": 0.3}, "timeout: "),
    ({"body": STALL}, {"timeout": 0.3}, f"timeout: {IN_DOUBT}"),
    *((dict.fromkeys([stage, "helo"], "354 go on"), {}, "connect_protocol: ")
      for stage in ("greeting", "ehlo", "mail", "rcpt")),
    *(({"body": answer}, {}, f"connect_protocol: {IN_DOUBT}: {answer}")
      for answer in ("300 go on", "354 go on", "399 what")),
])  # fmt: skip
def test_a_broken_connection_leaves_a_doubt_only_after_the_last_dot(
    answers: Script, settings: dict[str, Any], error: str
) -> None:
    """Before the last line no server can have taken the mail: it is tried again. After it only 2xx
    is an acceptance; a lost connection or a senseless answer is a doubt."""
    with Server(**answers) as server:
        error_text = failure(Failed, server, **settings)
    assert error_text.startswith(error)
    assert ("doubt" in error_text) == ("doubt" in error)
    assert "doubt" in error or server.mails == server.refused == []


def test_any_odd_answer_to_the_mail_is_a_doubt_and_none_to_quit() -> None:
    """Words without a code are a doubt; HELO follows EHLO, and no answer to QUIT undoes a yes."""
    with listening(lambda line: b"250 ok\r\n" if line != b".\r\n" else b"hello\r\n") as (port, _):
        assert failure(Failed, port).startswith("connect_protocol: in doubt")
    with Server(ehlo="502 5.5.1 what?", quit=DROP) as server:
        send(server)
    assert [mail.helo for mail in server.mails] == ["here.example.org"]


def test_a_server_that_dribbles_is_left_in_time() -> None:
    """Lines of an answer that never ends keep each step alive, and not the attempt."""
    over = threading.Event()

    def dribble(connection: socket.socket) -> None:
        while not over.wait(0.05):
            connection.sendall(b"220-not yet\r\n")

    with serving(dribble) as slow:
        error_text = failure(Failed, slow, timeout=300, max_time=0.5)
        over.set()
    # Of the attempt, or of the read that the same deadline cuts short.
    late = ("timeout: not done within 0.5 s", "timeout: timed out - greeting")
    assert error_text.startswith(late)


def test_a_host_without_a_server_is_tried_again() -> None:
    """Refused, unknown, silent: each is a failure, told apart by its word."""
    with refusing() as refused, silent() as mute, smtp_server.swallowing() as lost:
        for port, how, word in (
            (refused, {}, "connect_refused: "),
            (mute, {"timeout": 0.2}, "timeout: "),
            (lost, {"connect_timeout": 0.2}, "connect_timeout: "),
            (25, {"host": "nowhere.invalid", "tls": "none"}, "dns_not_found: "),
        ):
            assert failure(Failed, port, **how).startswith(word)


# ---- encryption and logins


def test_a_mail_is_encrypted_unless_disabled(pem: Certificate, tmp_path: Path) -> None:
    """Only this host is spoken to in the clear by default. A server whose certificate is another's
    or unreadable gets no mail, unless any will do; without required TLS none goes."""
    hosts = ("127.0.0.1", "::1", "localhost", "relay.example.org", "192.0.2.1")
    assert [SmtpDestination(host).encryption for host in hosts] == ["none"] * 3 + ["required"] * 2
    assert smtp_client.TLS == TLS
    for tls in ("required", "wrapped"):
        with Server(tls=pem, smtps=tls == "wrapped") as server:
            assert failure(Failed, server, tls=tls).startswith("tls_certificate: ")
            assert not commands(server, "MAIL")
            send(server, tls=tls, ca_file=pem.cert)
        assert server.mails[0].tls
    with Server() as server:
        assert failure(Failed, server, tls="required").startswith("tls_missing: ")
        error_text = failure(Failed, server, tls="wrapped", ca_file=str(tmp_path / "none.pem"))
        assert error_text.startswith("tls_certificate: cannot use the certificates in ")
        send(server, tls="opportunistic")
    with Server(tls=pem, starttls=["454 4.7.0 not now"]) as server:
        assert failure(Failed, server, tls="required").startswith("tls_missing: ")
        send(server, tls="opportunistic")
        send(server, tls="none")
    assert [mail.tls for mail in server.mails] == [True, False]


def test_a_login_arrives_or_fails_without_the_password(tmp_path: Path, pem: Certificate) -> None:
    """User and password may have any letters; to another host a login needs verified TLS."""
    for secret in ("plain", "of café"):
        path = secret_file(tmp_path, secret)
        with Server(tls=pem, logins={"me": secret}, login_needed=True) as server:
            send(server, tls="required", ca_file=pem.cert, user="me", password_file=path)
        assert server.mails[0].login == "me"
    login: dict[str, Any] = {"user": "me", "password_file": secret_file(tmp_path)}
    with Server(logins={"me": "another"}, login_needed=True) as server:
        wrong = failure(Failed, server, **login)
        assert wrong.startswith("auth_535: ") and SECRET not in wrong
        assert failure(Failed, server).startswith("auth_530: ")
        secret_file(tmp_path, mode=0o644)
        error_text = failure(Failed, server, **login)
        assert error_text.startswith("auth_password_file: ") and "0600" in error_text
    secret_file(tmp_path, "plain")
    with Server() as server:
        assert failure(Failed, server, **login).startswith("auth_missing: ")
    for tls in ("none", "opportunistic"):
        assert "without TLS" in SmtpDestination("relay.example.org", tls=tls, **login).fault
    error_text = failure(Failed, 25, host="192.0.2.1", tls="none", **login)
    assert error_text.startswith("unavailable_configuration: ")


# ---- what a server must offer: bytes on the wire


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that serves one connection, on a thread of its own."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        bound.listen()

        def accept() -> None:
            with suppress(OSError), bound.accept()[0] as connection:  # or none comes
                serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield bound.getsockname()[1]
        with suppress(OSError):
            bound.shutdown(socket.SHUT_RDWR)
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def listening(answer: Callable[[bytes], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each line, and keeps every byte; b"" answers nothing."""
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"220 raw\r\n")
        inside = False
        for line in connection.makefile("rb"):
            received.append(line)
            if inside and line != b".\r\n":
                continue
            inside = line.upper().startswith(b"DATA")
            connection.sendall(b"354 go on\r\n" if inside else answer(line))

    with serving(serve) as port:
        yield port, received


def offering(*words: bytes) -> Callable[[bytes], bytes]:
    """The answers of a server that offers these extensions."""
    offer = b"".join(b"250-%s\r\n" % word for word in (b"raw", *words)) + b"250 HELP\r\n"
    return lambda line: offer if line.upper().startswith(b"EHLO") else b"250 ok\r\n"


def test_the_bytes_behind_data_are_those_of_the_contents() -> None:
    """Nothing is escaped again, added or taken away."""
    contents = encode_wire(b"Subject: x\n\n.\n..\n.a\n\xff\n\n")
    with listening(offering(b"8BITMIME", b"SIZE 1000")) as (port, received):
        send(port, contents)
    start = received.index(b"DATA\r\n")
    assert b"".join(received[start + 1 :]) == contents + b"quit\r\n"
    assert received[1] == b"MAIL FROM:<us@example.org> SIZE=%d BODY=8BITMIME\r\n" % len(contents)


def test_a_small_mail_waits_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Body and end come in one segment, without Nagle: no delayed ACK costs 40 ms a mail."""
    first: list[bytes] = []
    delays: list[int] = []
    connected = smtp_client._SmtpSession._connect

    def spied(session: smtp_client._SmtpSession) -> tuple[socket.socket, socket.socket]:
        connection, wire = connected(session)
        delays.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return connection, wire

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"220 raw\r\n")
        while line := connection.recv(CHUNK_BYTES):
            if line.upper().startswith(b"DATA"):
                connection.sendall(b"354 go on\r\n")
                first.append(connection.recv(CHUNK_BYTES))
            connection.sendall(b"250 ok\r\n")

    monkeypatch.setattr(smtp_client._SmtpSession, "_connect", spied)
    with serving(serve) as port:
        send(port)
    assert (first, delays) == ([MAIL], [1])


def test_text_beyond_ascii_needs_a_server_that_takes_it() -> None:
    """To any other the mail can never go; addresses go as UTF-8 where that is offered."""
    with listening(offering()) as (port, received):
        assert "8BITMIME" in failure(Fatal, port, encode_wire(b"Subject: x\n\n\xff\n"))
    assert not [line for line in received if line.startswith(b"MAIL")]
    with listening(offering(b"8BITMIME")) as (port, _):
        assert "SMTPUTF8" in failure(Fatal, port, recipient="üser@example.com")
    with listening(offering(b"SMTPUTF8", b"8BITMIME")) as (port, received):
        send(port, recipient="üser@example.com")
    assert received[1] == b"MAIL FROM:<us@example.org> SMTPUTF8\r\n"
    assert received[2] == "RCPT TO:<üser@example.com>\r\n".encode()


def test_unreadable_contents_are_no_failure_of_the_mail() -> None:
    """It is given back, uncounted, for an hour: before anybody is called, and while it is sent."""

    class Failing(io.BytesIO):
        def __init__(self, good: int) -> None:
            super().__init__(MAIL)
            self.good = good

        def read(self, size: int | None = -1) -> bytes:
            self.good -= 1
            if self.good < 0:
                raise OSError(5, "Input/output error")
            return super().read(size)

    for good in (0, 2):
        letter = a_letter(Failing(good))
        with Server() as server, pytest.raises(Postponed, match="Input/output error") as caught:
            handler = SmtpSend(lambda task: letter, SmtpDestination(HOST, server.port), lambda: 7.0)  # noqa: B023
            handler(TASK, Context())
        assert caught.value.due == 7 + 3600
        assert server.mails == server.refused == []
        assert server.connections == bool(good)


def test_contents_that_shrink_are_broken_off() -> None:
    """A mail whose end is not there any more is never ended as if it were whole."""

    class Shrinking(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            self.truncate(20)
            return super().seek(offset, whence)

    letter = a_letter(Shrinking(encode_wire(b"Subject: x\n\n" + b"text\n" * 20)))
    failing = pytest.raises(Failed, match="shorter")
    with Server() as server, handler_of(server, letter) as handler, failing:
        handler(TASK, Context())
    assert server.mails == server.refused == []
    assert letter.contents.closed


def test_a_worker_without_descriptors_makes_no_attempt() -> None:
    """The task is given back, and its kind rests; the server sees nothing."""
    with Server() as server:
        send(server)  # loads all modules
        for host in (HOST, "localhost"):
            with no_descriptors(), pytest.raises(Lacking, match="Too many open files"):
                send(server, host=host)
    assert len(server.mails) == 1


SENDERS = ["a@example.org", "b@example.org", "c@example.org"]


def send_over_one(server: Server, fails_at: int | None = None) -> None:
    """Send a mail from each sender by one handler, one after the other."""
    with handler_of(server, *(a_letter(sender=sender) for sender in SENDERS)) as handler:
        for number in range(len(SENDERS)):
            with pytest.raises(Fatal) if number == fails_at else nullcontext():
                handler(TASK, Context())


HELLO, ONE_MAIL = ["EHLO"], ["MAIL", "RCPT", "DATA"]
AGAIN = [*HELLO, *ONE_MAIL, "MAIL", *HELLO, *ONE_MAIL, *ONE_MAIL, "QUIT"]


@each(("script", "most", "commands"), [
    ({}, 9, [*HELLO, *ONE_MAIL * 3, "QUIT"]),
    ({}, 2, [*HELLO, *ONE_MAIL * 2, "QUIT", *HELLO, *ONE_MAIL, "QUIT"]),
    *(({"mail": ["", answer]}, 9, AGAIN) for answer in (
        DROP, "421 4.3.2 closing", "452 4.3.1 no more mails here",
    )),
])  # fmt: skip
def test_mails_share_a_connection(
    monkeypatch: pytest.MonkeyPatch, script: Script, most: int, commands: list[str]
) -> None:
    """A limited number after one EHLO; one that is lost or refuses MAIL is replaced, uncounted."""
    monkeypatch.setattr(smtp_client, "MAILS_PER_CONNECTION", most)
    with Server(**script) as server:
        send_over_one(server)
    assert [mail.sender for mail in server.mails] == SENDERS
    assert [line.split()[0].upper() for line in server.commands] == commands
    assert server.connections == commands.count("EHLO")


def test_a_refused_mail_ends_its_connection() -> None:
    """The next mail begins on a new connection: no reply is mistaken for one to another mail."""
    with Server(rcpt=["", "550 5.1.1 unknown"]) as server:
        send_over_one(server, fails_at=1)
    assert (server.connections, len(server.mails), len(commands(server, "MAIL"))) == (2, 2, 3)


def test_an_unused_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mail it is closed with QUIT, so that an idle worker holds none."""
    monkeypatch.setattr(smtp_client, "KEEP_SECONDS", 0.0)
    ended = threading.Event()

    def answer(line: bytes) -> bytes:
        if line == b"quit\r\n":
            ended.set()
        return b"250 ok\r\n"

    with listening(answer) as (port, _), handler_of(port, a_letter()) as handler:
        handler(TASK, Context())
        assert ended.wait(60)


def test_one_thread_watches_all_attempts_of_a_handler() -> None:
    """Attempts that run at the same time are checked for cancellation on one thread, and end."""
    asked: set[int] = set()
    failures: list[Failed] = []

    def cancelled() -> bool:
        asked.add(threading.get_ident())
        return server.connections == 2

    def attempt() -> None:
        with pytest.raises(Failed, match=r"^unavailable_stopped: it was stopped - ") as caught:
            handler(TASK, Context(is_cancelled=cancelled))
        failures.append(caught.value)

    with Server(greeting=STALL) as server, handler_of(server, a_letter(), a_letter()) as handler:
        threads = [threading.Thread(target=attempt) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failures) == 2 and len(asked) == 1


def send_to_all(
    server: Server, people: list[smtp_client.WireRecipient], sender: str, **how: Any
) -> smtp_client.ServerAnswer:
    """Send a mail to several recipients in one transaction."""
    how |= {"to": SmtpDestination(HOST, server.port), "cancelled": lambda: False}
    with closing(smtp_client.Connections()) as connections:
        how["connections"] = connections
        return smtp_client.send_to_all(sender, people, io.BytesIO(MAIL), **how)


def test_several_recipients_get_one_mail_and_each_refusal_is_known() -> None:
    """Each is accepted or refused in one transaction; a bad address is never sent, and DSN only
    where it is offered. If all are refused, no DATA is sent."""
    addresses = ("a@d.example", "no address", "b@d.example", "c@d.example")
    people = [smtp_client.WireRecipient(one, "NOTIFY=SUCCESS") for one in addresses]
    with Server(rcpt=["", "450 4.2.1 later", "550 5.1.1 unknown"]) as server:
        answer = send_to_all(server, people, "s@d.example", notify="RET=HDRS")
    (mail,) = server.mails
    assert (mail.recipients, answer.reply) == (("a@d.example",), "250 2.0.0 accepted")
    refusals = [getattr(one, "word", type(one).__name__) for one in answer.refusals]
    assert refusals == ["NoneType", "BadMail", "unavailable_450", "rejected_550"]
    assert not answer.notifies
    assert not any("NOTIFY" in one or "RET" in one for one in server.commands)
    with Server(rcpt="550 5.1.1 unknown") as server:
        answer = send_to_all(server, people[2:], "")
    assert (answer.reply, len(answer.refusals)) == ("", 2)
    assert all(isinstance(one, NotSent) and one.permanent for one in answer.refusals)
    assert not commands(server, "DATA")


# ---- an answer without end


@contextmanager
def endless(answers: int, line: bytes) -> Iterator[int]:
    """A server that answers so many commands, and then repeats a line for ever."""
    replies = [b"220 x\r\n", *[b"250 x\r\n"] * 3, b"354 x\r\n"][:answers]

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            for reply in replies:
                connection.sendall(reply)
                received.readline()
            while answers == 5 and received.readline() != b".\r\n":
                pass
            while True:
                connection.sendall(line * 100)

    with serving(serve) as port:
        yield port


@each("line", [b"250-x\r\n", b"250-" + b"y" * 900 + b"\r\n", b"z" * 1000])
@each("answers", range(6))
def test_an_answer_without_end_is_a_failure(answers: int, line: bytes) -> None:
    """At any stage; after the whole mail it may have been accepted."""
    with endless(answers, line) as port:
        message = failure(Failed, port, tls="none")
    assert "answer of more than" in message or "Line too long" in message
    assert ("it may have been accepted" in message) is (answers == 5)


def test_an_answer_by_smtp_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line now and then does not prolong an answer; each wait is taken for 200 of 300 s."""
    ticks = (200.0 * n for n in itertools.count())
    slow = functools.partial(AnswerLimit, clock=lambda: next(ticks))
    monkeypatch.setattr(smtp_client, "AnswerLimit", slow)
    for limit in ("MAX_ANSWER_BYTES", "MAX_ANSWER_LINES"):
        monkeypatch.setattr(smtp_client, limit, 1 << 30)
    with endless(1, b"250-x\r\n") as port:
        assert "no whole answer within 300 s" in failure(Failed, port, tls="none")
