"""Send by the real curl to a scripted server: TLS, passwords, refusals, timeouts."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import accounts
from engine.mail.model import Mail, NotSent
from engine.mail.transports.curl import Curl, configuration, quoted, wire
from engine.mailconf import MailSettings
from tests.mail.letters import BODIES, RECIPIENT, SENDER, a_mail, never, on_the_wire
from tests.mail.programs import needs, needs_root
from tests.mail.smtpd import (  # fmt: skip
    CUT,
    DROP,
    HOST,
    STALL,
    Certificate,
    Server,
    certificate,
    refusing,
    silent,
    swallowing,
)
from tests.tables import each

SECRET = 's3cret-with "quotes" \\ and café'


@pytest.fixture(autouse=True)
def curl() -> str:
    """The program that all of this is about."""
    return needs("curl")


@pytest.fixture
def pem(tmp_path: Path) -> Certificate:
    """The certificate of a server on this host."""
    return certificate(tmp_path / "pem")


def a_curl(port: int, **settings: Any) -> Curl:
    """The transport, for a relay on this host that may be used without TLS."""
    usual: dict[str, Any] = {"host": HOST, "port": port, "plain_hosts": (HOST,)}
    usual |= {"connect_timeout": 30, "max_time": 60}
    return Curl(MailSettings(**(usual | settings)), helo="here.example.org")


def safe(pem: Certificate, **settings: Any) -> dict[str, Any]:
    """Settings that require TLS with this certificate."""
    return {"plain_hosts": (), "ca_file": pem.cert, **settings}


def failure_of(transport: Curl, mail: Mail | None = None) -> NotSent:
    """Why it does not send."""
    with pytest.raises(NotSent) as caught:
        transport.send(mail or a_mail(), never)
    return caught.value


@each("body", BODIES)
def test_a_mail_arrives_as_it_was(body: str) -> None:
    """Every byte arrives, dots and empty lines too, with the line ends that SMTP asks for, under
    our own name and to the one recipient."""
    mail = a_mail(body)
    with Server() as server:
        a_curl(server.port).send(mail, never)
    (received,) = server.mails
    assert received.data == on_the_wire(mail)
    assert received[:3] == ("here.example.org", SENDER, (RECIPIENT,))
    assert sum(line.startswith("RCPT") for line in server.commands) == 1


def test_a_mail_is_encrypted_unless_plain_is_allowed(pem: Certificate) -> None:
    """TLS is required, and used where it is offered though plain mail is allowed."""
    with Server(tls=pem) as server:
        a_curl(server.port, **safe(pem)).send(a_mail(), never)
        a_curl(server.port).send(a_mail(), never)
    with Server() as plain:
        failure = failure_of(a_curl(plain.port, **safe(pem)))
    assert [mail.tls for mail in server.mails] == [True, True]
    assert failure.word == "tls_missing"
    assert "mail.plain_hosts" in str(failure), "the setting that an operator can change"
    assert not any(line.startswith("MAIL") for line in plain.commands)


def test_a_certificate_must_be_believed(pem: Certificate, tmp_path: Path) -> None:
    """A self-signed certificate and one of another host are refused."""
    other = certificate(tmp_path / "other", "mx.example.net")
    with Server(tls=pem) as unknown, Server(tls=other) as elsewhere:
        failures = [
            failure_of(a_curl(unknown.port, plain_hosts=())),
            failure_of(a_curl(elsewhere.port, plain_hosts=(), ca_file=other.cert)),
        ]
    assert [failure.word for failure in failures] == ["tls_certificate"] * 2
    assert "self-signed certificate" in str(failures[0])


def test_a_password_comes_from_the_settings_or_from_a_file(
    pem: Certificate, tmp_path: Path
) -> None:
    """A password with quotes, backslashes, blanks and non-ASCII letters arrives unchanged."""
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    with Server(tls=pem, logins={"me": SECRET}, login_needed=True) as server:
        for source in ({"password": SECRET}, {"password_file": str(file)}):
            a_curl(server.port, **safe(pem, user="me", **source)).send(a_mail(), never)
    assert [mail.login for mail in server.mails] == ["me", "me"]


@each("kind", ["readable", "folder", "link", "missing", "empty", "lines"])
def test_a_password_file_that_is_no_secret_is_not_used(kind: str, tmp_path: Path) -> None:
    """One that others may read, that is no plain file or holds more than a line is told of; the
    relay is not asked, and what the file holds is not told."""
    path = tmp_path / "password"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "real").write_text("hush")
        path.symlink_to("real")
    elif kind != "missing":
        path.write_text({"empty": "", "lines": "hush\nhush\n"}.get(kind, "hush"))
        path.chmod(0o644 if kind == "readable" else 0o600)
    with Server() as server:
        transport = a_curl(server.port, user="me", password_file=str(path))
        failure = failure_of(transport)

    assert (failure.word, failure.permanent) == ("auth_password_file", False)
    assert str(path) in str(failure)
    assert "hush" not in str(failure)
    assert kind in ("empty", "lines") or transport.absence(), "seen before it is opened"
    assert server.connections == 0


def test_a_wrong_password_is_reported_without_the_password(pem: Certificate) -> None:
    """The server's words are reported without the password, even if the server repeats it."""
    echo = f"535 5.7.8 wrong: {SECRET.encode().hex()} hush AG1lAGh1c2g= aHVzaA=="
    with Server(tls=pem, logins={"me": "right"}, auth=echo) as server:
        failure = failure_of(a_curl(server.port, **safe(pem, user="me", password="hush")))
    assert (failure.word, failure.permanent) == ("auth_535", False)
    assert str(failure).endswith("*** *** ***: Login denied")


def children(parent: int) -> Iterator[Path]:
    """The processes that a process has started and not waited for, in /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # gone meanwhile
        if fields[1] == str(parent):
            yield stat.parent


def test_the_password_is_nowhere_to_be_seen(pem: Certificate, monkeypatch: Any) -> None:
    """While curl runs its command line and its environment hold no password, no address and no
    word of the mail, though our own environment may hold the password; nor is it in a file."""
    monkeypatch.setenv("NFTBAN_SMTP_PASS", SECRET)
    outcome: list[NotSent] = []
    done = threading.Event()
    with Server(tls=pem, logins={"me": SECRET}, rcpt=STALL) as server:
        transport = a_curl(server.port, **safe(pem, user="me", password=SECRET))

        def send() -> None:
            with pytest.raises(NotSent) as caught:
                transport.send(a_mail("a word"), done.is_set)
            outcome.append(caught.value)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            assert server.stalled.wait(20), "curl has logged in"
            supervisors = [int(path.name) for path in children(os.getpid())]
            (process,) = [path for each in supervisors for path in children(each)]
            assert (process / "comm").read_text() == "curl\n"
            seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            held = {os.readlink(fd) for fd in (process / "fd").iterdir()}  # noqa: PTH115
        finally:
            done.set()
            sender.join(20)

    for word in (SECRET, "s3cret", "me:", "a word", RECIPIENT, SENDER, "NFTBAN"):
        assert word.encode() not in seen
    assert not [path for path in held if path.startswith("/tmp") or "password" in path]
    assert outcome[0].word == "unavailable_stopped"
    assert "s3cret" not in repr(outcome[0]) + repr(transport)


def test_what_others_left_for_curl_is_not_used(monkeypatch: Any, tmp_path: Path) -> None:
    """A .curlrc, a proxy in the environment and a word in a home folder change nothing."""
    (tmp_path / ".curlrc").write_text('mail-rcpt = "evil@example.net"\ntrace = "/tmp/evil"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    with refusing() as nowhere, Server() as server:
        for name in ("ALL_PROXY", "all_proxy", "SMTP_PROXY", "smtp_proxy"):
            monkeypatch.setenv(name, f"socks5://{HOST}:{nowhere}")
        a_curl(server.port).send(a_mail(), never)
    assert server.mails[0].recipients == (RECIPIENT,)


@each("address", [
    "b@example.com\r\nRCPT TO:<evil@example.com", "<b@example.com> NOTIFY=NEVER", "-o/tmp/x",
    'b@example.com"\nurl = "smtp://127.0.0.1', "a@example.com,b@example.com", "",
])  # fmt: skip
def test_an_address_that_is_more_than_one_reaches_nobody(address: str) -> None:
    """Sender or recipient: it is refused before curl is started."""
    with Server() as server:
        for mail in (a_mail(recipient=address), a_mail(sender=address)):
            failure = failure_of(a_curl(server.port), mail)
            assert (failure.word, failure.permanent) == ("rejected_address", True)
    assert server.connections == 0


@each(("script", "word"), [
    ({"greeting": "554 5.3.2 go away"}, "unavailable_554"),
    ({"greeting": DROP}, "connect_lost_before_data"),
    ({"rcpt": DROP}, "connect_lost_before_data"), ({"data": DROP}, "connect_lost_before_data"),
    ({"mail": "550 5.1.8 bad sender"}, "rejected_550"),
    ({"mail": "530 5.7.0 who are you"}, "auth_530"),
    ({"rcpt": "450 4.2.1 busy"}, "unavailable_450"),
    ({"rcpt": "550 5.1.1 no such user"}, "rejected_550"),
    ({"data": "452 4.3.1 no space"}, "unavailable_452"),
    ({"data": "554 5.5.1 no"}, "rejected_554"), ({"data": CUT}, "connect_lost"),
    ({"body": "451 4.7.1 greylisted"}, "unavailable_451"),
    ({"body": "554 5.7.1 spam"}, "rejected_554"), ({"body": DROP}, "connect_lost"),
    ({"body": "999 what"}, "connect_lost"),
])  # fmt: skip
def test_what_a_server_does_is_understood(script: dict[str, Any], word: str) -> None:
    """At whatever stage it says no or breaks off: the word is right, only a no to the mail itself
    is for ever, and the server's own words are told."""
    with Server(**script) as server:
        failure = failure_of(a_curl(server.port))
    assert failure.word == word
    assert failure.permanent == word.startswith("rejected")
    (answer,) = script.values()
    assert answer in (DROP, CUT, "999 what") or str(failure).startswith(answer)
    assert failure.doubtful == (word == "connect_lost"), "nobody said no"
    assert server.mails == []


def test_nobody_there_is_told_apart() -> None:
    """A port that refuses, a host that no name server is asked for, packets that get lost."""
    with refusing() as port:
        refused = failure_of(a_curl(port))
    with swallowing() as port:
        lost = failure_of(a_curl(port, connect_timeout=0.2))
    # No label is that long, so nobody is asked for it.
    unknown = failure_of(a_curl(25, host=f"{'x' * 64}.example.org"))
    words = [failure.word for failure in (refused, lost, unknown)]
    assert words == ["connect_refused", "connect_timeout", "dns_not_found"]


@pytest.mark.deep
def test_a_relay_that_says_nothing_is_left_in_time() -> None:
    """No greeting, or no answer to the mail itself, which curl waits for beyond its own limit."""
    with silent() as port:
        mute = failure_of(a_curl(port, max_time=0.2))
    with Server(body=STALL) as server:
        stalled = failure_of(a_curl(server.port, max_time=0.5))
    assert [mute.word, stalled.word] == ["timeout_before_data", "timeout"]
    assert (mute.doubtful, stalled.doubtful) == (False, True), "the mail had not begun to leave"
    assert not (mute.permanent or stalled.permanent)
    assert str(stalled) == "curl did not end within 1.5 s"
    assert not [p for p in children(os.getpid()) if (p / "comm").read_text() == "curl\n"]


@each(("settings", "why"), [
    ({"host": ""}, "no relay"),
    ({"programs": {"curl": "/nonexistent/curl"}}, "curl is not installed: /nonexistent/curl"),
    ({"user": "me"}, "no password"),
    ({"user": "me:you", "password": "x"}, "colon"),
    ({}, ""),
    ({"user": "me", "password": "x"}, ""),
])  # fmt: skip
def test_a_reason_why_curl_cannot_be_used(settings: dict[str, Any], why: str) -> None:
    """`absence` names the missing or wrong setting."""
    absence = a_curl(25, **settings).absence()
    assert (absence is not None and why in absence.words) if why else absence is None


def test_the_configuration_of_curl_is_safe() -> None:
    """IPv6 hosts are in brackets, port 465 is TLS, quotes are escaped, line breaks refused, and
    lines of a mail end with CRLF."""
    settings = MailSettings(host="2001:db8::1", port=465)
    config = configuration(settings, "here.example.org", a_mail(), "", "/dev/fd/3").decode()
    assert 'url = "smtps://[2001:db8::1]:465/here.example.org"\n' in config
    assert quoted('a"b\\c') == '"a\\"b\\\\c"'
    with pytest.raises(NotSent, match="control character in what curl is told as cacert"):
        a_curl(25, ca_file="/x\nuser = y").send(a_mail(), never)
    assert wire(b"a\n\nb\r\nc\rd") == b"a\r\n\r\nb\r\nc\r\nd\r\n"
    assert wire(b"a\n\n") == b"a\r\n\r\n"


def test_root_sends_as_the_owner_of_the_spool() -> None:
    """For another account curl runs with the rights of that account."""
    needs_root("to run curl as nobody")
    with Server() as server:
        usual = MailSettings(host=HOST, port=server.port, plain_hosts=(HOST,), max_time=60.0)
        Curl(usual, "here.example.org", accounts.named("nobody")).send(a_mail(), never)
    assert [mail.data for mail in server.mails] == [on_the_wire(a_mail())]
