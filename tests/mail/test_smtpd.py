"""The server of the mail tests itself: it answers as it is told, and keeps what it was given."""

import contextlib
import smtplib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.mail.smtpd import CUT, DROP, HOST, STALL, Server, certificate, refusing, silent

MAIL = b"Subject: x\r\n\r\n.\r\n..\r\n.dot\r\n\r\n"


def deliver(server: Server, tls: ssl.SSLContext | None = None, login: str = "") -> None:
    """One mail by Python's own client."""
    with smtplib.SMTP(HOST, server.port, "here.example.org") as client:
        if tls:
            client.starttls(context=tls)
        if login:
            client.login(*login.split(":"))
        client.sendmail("us@example.org", ["you@example.com"], MAIL)


def test_a_mail_is_kept_as_it_came() -> None:
    """Envelope, name and data are kept, without the dots that SMTP adds."""
    with Server() as server:
        deliver(server)

    (mail,) = server.mails
    assert mail == ("here.example.org", "us@example.org", ("you@example.com",), MAIL, False, "")
    assert "RCPT TO:<you@example.com>" in server.commands


def test_answers_come_one_after_the_other_and_then_the_usual() -> None:
    """Of a list of answers each is given once; after the last it is a server like any other."""
    with Server(rcpt=["450 4.2.1 later", ""], body=["554 5.7.1 no"]) as server:
        with pytest.raises(smtplib.SMTPRecipientsRefused, match="later"):
            deliver(server)
        with pytest.raises(smtplib.SMTPDataError, match="no"):
            deliver(server)
        deliver(server)

    assert len(server.mails) == len(server.refused) == 1
    assert server.connections == 3


@pytest.mark.parametrize("stage", ["greeting", "ehlo", "mail", "rcpt", "data", "body"])
def test_a_connection_breaks_off_where_it_is_told_to(stage: str) -> None:
    """Whatever the stage, the client sees the end of the connection instead of an answer."""
    script: dict[str, Any] = {stage: DROP}
    with Server(**script) as server, pytest.raises((smtplib.SMTPException, ConnectionError)):
        deliver(server)

    assert server.mails == []


def test_a_connection_breaks_off_in_the_middle_of_a_mail() -> None:
    """After the first line of the data nobody listens any more."""
    with Server(data=CUT) as server, pytest.raises((smtplib.SMTPException, ConnectionError)):
        deliver(server)

    assert server.mails == server.refused == []


def test_a_server_stalls_until_it_ends() -> None:
    """An answer that never comes holds the client, and its connection stays open."""
    with Server(mail=STALL) as server, contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection((HOST, server.port)))
        client.sendall(b"EHLO x\r\nMAIL FROM:<a@example.org>\r\n")

        assert server.stalled.wait(10)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            assert b"250 2" not in client.recv(9999), "no answer to MAIL"


def test_logins_and_encryption_are_kept_with_the_mail(tmp_path: Path) -> None:
    """Who logged in, over what, stands with the mail; a wrong password is refused."""
    pem = certificate(tmp_path)
    believing = ssl.create_default_context(cafile=pem.cert)
    believing.check_hostname = False
    with Server(tls=pem, logins={"user": "secret"}, login_needed=True) as server:
        deliver(server, believing, "user:secret")
        with pytest.raises(smtplib.SMTPAuthenticationError):
            deliver(server, believing, "user:wrong")
        with pytest.raises(smtplib.SMTPSenderRefused):
            deliver(server, believing)
        with pytest.raises(ssl.SSLError):
            deliver(server, ssl.create_default_context())

    (mail,) = server.mails
    assert (mail.tls, mail.login) == (True, "user")


def test_a_server_speaks_nothing_but_tls_where_it_is_told_to(tmp_path: Path) -> None:
    """As on port 465: the first byte is of the handshake."""
    pem = certificate(tmp_path, "localhost")
    believing = ssl.create_default_context(cafile=pem.cert)
    with (
        Server(tls=pem, smtps=True) as server,
        smtplib.SMTP_SSL("localhost", server.port, context=believing) as client,
    ):
        client.sendmail("us@example.org", ["you@example.com"], MAIL)

    assert server.mails[0].tls


def test_a_server_comes_back_where_it_was() -> None:
    """Entered again it listens at the same port; in between nobody does."""
    with Server() as server:
        deliver(server)
    with pytest.raises(ConnectionRefusedError):
        deliver(server)
    with server:
        deliver(server)

    assert len(server.mails) == 2


def test_ports_that_nobody_answers_at() -> None:
    """One refuses, and one takes the connection and says nothing."""
    with refusing() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    with silent() as port, socket.create_connection((HOST, port)) as client:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
