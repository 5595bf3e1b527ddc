"""Deliver by the installed msmtp, mailx and Postfix; mails arrive byte for byte."""

from __future__ import annotations

import email.policy
import tempfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from engine.mail.model import Cause, Mail, NotSent, Transport, Unused
from engine.mail.transports.mailx import Mailx
from engine.mail.transports.msmtp import Msmtp
from engine.mail.transports.postfix import Postfix
from engine.mail.transports.sendmail import Sendmail
from engine.mail.transports.system import System
from engine.mailconf import MailSettings
from tests.mail.letters import (
    BODIES,
    MANY_DOTS,
    NASTY,
    RECIPIENT,
    SENDER,
    a_mail,
    never,
    on_the_wire,
)
from tests.mail.nullclient import NullClient
from tests.mail.programs import a_script, needs
from tests.mail.smtpd import CUT, DROP, HOST, Server, certificate, refusing
from tests.tables import each

each_body = pytest.mark.parametrize("body", BODIES, ids=len)


def msmtprc(home: Path, port: int, *more: str) -> Path:
    """msmtp's configuration in a home folder, for a server on this host."""
    said = ["account default", f"host {HOST}", f"port {port}", "domain here.example.org"]
    path = home / ".msmtprc"
    path.write_text("\n".join([*said, "timeout 20", *more, ""]))
    path.chmod(0o600)
    return path


def failure_of(transport: Transport, mail: Mail | None = None) -> NotSent:
    """Why it does not send."""
    with pytest.raises(NotSent) as caught:
        transport.send(mail or a_mail(), never)
    return caught.value


# msmtp


def an_msmtp(home: Path) -> Msmtp:
    """The transport, for a user with this home folder."""
    programs = {"msmtp": needs("msmtp")}
    return Msmtp(MailSettings(programs=programs, max_time=60), System(environ={"HOME": str(home)}))


@each_body
def test_msmtp_delivers_what_it_was_given(body: str, tmp_path: Path) -> None:
    """Each byte of a mail is what the server has in the end."""
    mail = a_mail(body)
    transport = an_msmtp(tmp_path)
    with Server() as server:
        msmtprc(tmp_path, server.port)
        assert transport.absence() is None
        transport.send(mail, never)
    (received,) = server.mails
    assert received.data == on_the_wire(mail)
    assert received[:3] == ("here.example.org", SENDER, (RECIPIENT,))


@each(("script", "word"), [
    ({"greeting": "554 5.3.2 go away"}, "unavailable_554"),
    ({"mail": "530 5.7.0 who are you"}, "auth_530"),
    ({"rcpt": "450 4.2.1 busy"}, "unavailable_450"),
    ({"rcpt": "550 5.7.23 authentication (SPF) failed"}, "rejected_550"),
    ({"data": "554 5.5.1 no"}, "rejected_554"), ({"data": CUT}, "connect_lost"),
    ({"body": "451 4.7.1 greylisted"}, "unavailable_451"),
    ({"body": "554 5.7.1 spam"}, "rejected_554"), ({"body": DROP}, "connect_lost"),
    ({"body": "what?"}, "connect_lost"),
])  # fmt: skip
def test_messages_of_the_installed_msmtp_are_understood(
    script: dict[str, Any], word: str, tmp_path: Path
) -> None:
    """Each answer of a server has its word."""
    transport = an_msmtp(tmp_path)
    with Server(**script) as server:
        msmtprc(tmp_path, server.port)
        failure = failure_of(transport)
    assert failure.word == word
    assert failure.permanent == word.startswith("rejected")
    assert server.mails == []


def test_a_connection_lost_within_tls_leaves_a_doubt(tmp_path: Path) -> None:
    """With STARTTLS and with TLS from the start a missing answer of msmtp's server is a doubt."""
    pem = certificate(tmp_path / "pem")
    trust = ("tls on", f"tls_trust_file {pem.cert}")
    for smtps in (False, True):
        with Server(tls=pem, smtps=smtps, body=DROP) as server:
            msmtprc(tmp_path, server.port, *trust, *(["tls_starttls off"] if smtps else []))
            failure = failure_of(an_msmtp(tmp_path))
        assert (failure.word, failure.doubtful) == ("connect_lost", True)


def test_connection_failures_of_msmtp_are_understood(tmp_path: Path) -> None:
    """Each has its word: refused, no such host, bad certificate, no TLS, wrong password."""
    transport = an_msmtp(tmp_path)
    pem = certificate(tmp_path / "pem")
    trust = ("tls on", f"tls_trust_file {pem.cert}")
    login = ("auth on", "user me")
    with Server(tls=pem, logins={"me": "right"}) as server, Server() as plain, refusing() as none:
        for port, more, word in (
            (none, (), "connect_refused"),
            (25, (f"host {'x' * 64}.example.org",), "dns_not_found"),
            (server.port, ("tls on",), "tls_certificate"),
            (plain.port, trust, "tls_missing"),
            (server.port, (*trust, *login, "password wrong"), "auth_535"),
        ):
            msmtprc(tmp_path, port, *more)
            assert failure_of(transport).word == word
        msmtprc(tmp_path, server.port, *trust, *login, "password right")
        transport.send(a_mail(), never)
    assert (server.mails[0].tls, server.mails[0].login) == (True, "me")


# mailx


def a_mailx(folder: Path, port: int) -> Mailx:
    """The transport, with Debian's mailx; it hands mail to msmtp, as its own configuration says."""
    mailx, msmtp = needs("bsd-mailx"), needs("msmtp")
    handed = a_script(folder / "sendmail", f'exec {msmtp} --file={msmtprc(folder, port)} "$@"')
    (folder / "mailrc").write_text(f"set sendmail={handed}\n")
    run = a_script(folder / "mailx", f'MAILRC={folder}/mailrc exec {mailx} "$@"')
    home = {"HOME": str(folder)}
    return Mailx(MailSettings(programs={"mailx": run}, max_time=60), System(environ=home))


@each("text", ["text\n", NASTY.replace("~", "!"), "Grüße, café €\n\n", MANY_DOTS])
def test_mailx_delivers_the_text_it_was_given(text: str, tmp_path: Path) -> None:
    """The plain text arrives byte for byte, dots, long lines and letters beyond ASCII too, under
    the subject that was given, from whom and to whom it was."""
    mail = a_mail()._replace(text=text)
    with Server() as server:
        a_mailx(tmp_path, server.port).send(mail, never)
    (received,) = server.mails
    header, body = received.data.split(b"\r\n\r\n", 1)
    read = message_from_bytes(header, policy=email.policy.default)
    assert body == text.encode().replace(b"\n", b"\r\n")
    assert received[1:3] == (SENDER, (RECIPIENT,))
    assert (read["From"], read["To"]) == (SENDER, RECIPIENT)
    assert b"\r\nSubject: =?utf-8?q?a_caf=C3=A9?=\r\n" in header + b"\r\n"
    assert read["Subject"] == "a café"
    assert read.get_content_charset() == "utf-8"


def test_mailx_runs_no_command_of_the_text(tmp_path: Path) -> None:
    """A line that begins with a tilde is text, whatever it says."""
    mail = a_mail()._replace(text=f"~! touch {tmp_path}/pwned\n~r /etc/passwd\n~b evil\n")
    with Server() as server:
        a_mailx(tmp_path, server.port).send(mail, never)
    assert server.mails[0].recipients == (RECIPIENT,)
    assert server.mails[0].data.endswith(b"pwned\r\n ~r /etc/passwd\r\n ~b evil\r\n")
    assert not (tmp_path / "pwned").exists()


def test_mailx_tells_that_it_failed(tmp_path: Path) -> None:
    """What went wrong behind it is understood, and no dead.letter is left in the home folder."""
    with Server(rcpt=["550 5.1.1 no such user", "450 4.2.1 busy"]) as server:
        transport = a_mailx(tmp_path, server.port)
        never_, later = failure_of(transport), failure_of(transport)
    assert (never_.word, never_.permanent) == ("rejected_550", True)
    assert (later.word, later.permanent) == ("unavailable_450", False)
    assert not (tmp_path / "dead.letter").exists()


# Postfix


@pytest.fixture(scope="module")
def relay() -> Iterator[Server]:
    """Where that Postfix hands its mail to."""
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def postfix(relay: Server) -> Iterator[NullClient]:
    """A Postfix that is gone when the tests are over, whatever happens."""
    # Not in pytest's folder, which only we may enter: its processes run as other users.
    with tempfile.TemporaryDirectory(prefix="postfix") as folder:
        Path(folder).chmod(0o755)
        client = NullClient(Path(folder))
        try:
            client.start(relay.port)
            yield client
        finally:
            client.stop()


@each("way", [Postfix, Sendmail])
@each("body", BODIES[:-1])
def test_postfix_delivers_what_it_was_given(
    body: str, way: type[Postfix | Sendmail], postfix: NullClient, relay: Server
) -> None:
    """By either transport a mail goes into the queue of a Postfix, and from there to the relay:
    every byte of it, below the one header that each server adds."""
    settings = MailSettings(programs={"sendmail": postfix.sendmail}, method=way.name, max_time=60)
    relay.mails.clear()
    mail = a_mail(body)
    way(settings, System()).send(mail, never)
    assert relay.wait_for(1), postfix.said()
    (received,) = relay.mails
    added, _, rest = received.data.partition(b"From: Us")
    assert b"From: Us" + rest == on_the_wire(mail)
    assert added.startswith(b"Received: by here.example.org (Postfix")
    assert added.count(b"\r\n") == 2, "one header, on two lines"
    assert received[1:3] == (SENDER, (RECIPIENT,))


def test_a_postfix_that_runs_is_seen(postfix: NullClient, relay: Server, tmp_path: Path) -> None:
    """Its master holds a lock in its queue; the Postfix of another queue does not count."""
    programs = {"sendmail": postfix.sendmail, "postfix": needs("postfix")}
    settings = MailSettings(programs=programs)
    relay.mails.clear()
    Postfix(settings, System()).send(a_mail(), never)
    assert relay.wait_for(1), postfix.said()
    assert Postfix(settings, System(postfix.root)).absence() is None
    stopped = Unused(Cause.STOPPED, "Postfix does not run")
    assert Postfix(settings, System(str(tmp_path))).absence() == stopped


def test_a_mail_that_is_too_large_for_postfix_is_refused_for_ever(postfix: NullClient) -> None:
    """Its sendmail tells that at once."""
    settings = MailSettings(programs={"sendmail": postfix.sendmail}, max_time=60)
    failure = failure_of(Postfix(settings, System()), a_mail(MANY_DOTS))
    assert (failure.word, failure.permanent) == ("rejected_too_large", True)
    assert str(failure).endswith("message file too big")
