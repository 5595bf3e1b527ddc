"""Deliver by the installed curl, msmtp, mailx and Postfix to a scripted server on loopback."""

import email.policy
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, NotSent, Transport, Unused
from engine.mail.transports.curl import Curl, quote_value, render_config, with_crlf
from engine.mail.transports.installed import System
from engine.mail.transports.local_programs import LocalTransport
from engine.system import users
from tests import smtp_server
from tests.engine import sample_mails
from tests.engine.mail.transports.postfix_null_client import NullClient
from tests.engine.sample_mails import BODIES, RECIPIENT, SENDER, a_mail, never, on_the_wire
from tests.programs import a_script, needs, needs_root
from tests.smtp_server import CUT, DROP, HOST, STALL, Certificate, Server, refusing, silent
from tests.tables import each


def failure_of(transport: Transport, mail: Mail | None = None) -> NotSent:
    """The failure of an attempt."""
    with pytest.raises(NotSent) as caught:
        transport.send(mail or a_mail(), never)
    return caught.value


def a_curl(port: int, **settings: Any) -> Curl:
    """The transport, for a relay on this host that may be used without TLS."""
    needs("curl")
    usual: dict[str, Any] = {"host": HOST, "port": port, "plain_hosts": (HOST,)}
    usual |= {"connect_timeout": 30, "max_time": 60}
    return Curl(MailSettings(**(usual | settings)), helo="here.example.org")


def local(name: str, home: Path, program: str) -> LocalTransport:
    """The transport that runs a program for a user with this home folder."""
    settings = MailSettings(programs={name: program}, max_time=60)
    return LocalTransport(name, settings, System(environ={"HOME": str(home)}))


def msmtprc(home: Path, port: int, *more: str) -> Path:
    """msmtp's configuration in a home folder, for a server on this host."""
    config_lines = ["account default", f"host {HOST}", f"port {port}", "domain here.example.org"]
    path = home / ".msmtprc"
    path.write_text("\n".join([*config_lines, "timeout 20", *more, ""]))
    path.chmod(0o600)
    return path


def an_msmtp(home: Path, port: int, *more: str) -> LocalTransport:
    """The transport, with the configuration in this home folder."""
    msmtprc(home, port, *more)
    return local("msmtp", home, needs("msmtp"))


def a_mailx(home: Path, port: int) -> LocalTransport:
    """The transport, with Debian's mailx, which is configured to send by msmtp."""
    mailx, msmtp = needs("bsd-mailx"), needs("msmtp")
    handed = a_script(home / "sendmail", f'exec {msmtp} --file={msmtprc(home, port)} "$@"')
    (home / "mailrc").write_text(f"set sendmail={handed}\n")
    run = a_script(home / "mailx", f'MAILRC={home}/mailrc exec {mailx} "$@"')
    return local("mailx", home, run)


TRANSPORTS: dict[str, Callable[[Path, int], Transport]] = {
    "curl": lambda folder, port: a_curl(port),
    "msmtp": an_msmtp,
    "mailx": a_mailx,
}
"""What each makes in a folder to send to a server on this host."""
CURL, MSMTP, BOTH, ALL = ("curl",), ("msmtp",), ("curl", "msmtp"), tuple(TRANSPORTS)


@pytest.mark.parametrize("name", BOTH)
@each(("names", "mail", "quit"), [
    *((BOTH, a_mail(body), "") for body in BODIES),
    *((CURL, a_mail(sender=address, recipient=address), "") for address in (
        "o'brien@example.com", "a$b`c!{d}@example.com", "b@[192.0.2.1]",
    )),
    *((CURL, a_mail(), end) for end in (DROP, STALL, "500 what")),
])  # fmt: skip
def test_a_mail_arrives_as_it_was(
    name: str, names: tuple[str, ...], mail: Mail, quit: str, tmp_path: Path
) -> None:
    """Every byte arrives, with the line ends of SMTP, under our own name, from and to any valid
    address; a 250 after the data is the success, with any answer to QUIT."""
    if name not in names:
        return
    with Server(quit=quit) as server:
        short = quit and a_curl(server.port, max_time=2)
        transport = short or TRANSPORTS[name](tmp_path, server.port)
        assert transport.absence() is None
        transport.send(mail, never)
        (received,) = server.mails
    assert received.data == on_the_wire(mail)
    assert received[:3] == ("here.example.org", mail.sender, (mail.recipient,))
    assert sum(line.startswith("RCPT") for line in server.commands) == 1


@pytest.mark.parametrize("name", TRANSPORTS)
@each(("names", "script", "word"), [
    (BOTH, {"greeting": "554 5.3.2 go away"}, "unavailable_554"),
    (CURL, {"greeting": DROP}, "connect_lost_before_data"),
    (CURL, {"rcpt": DROP}, "connect_lost_before_data"),
    (CURL, {"data": DROP}, "connect_lost_before_data"),
    (CURL, {"mail": "550 5.1.8 bad sender"}, "unavailable_550"),
    (CURL, {"mail": "552 5.3.4 too large"}, "rejected_552"),
    (BOTH, {"mail": "530 5.7.0 who are you"}, "auth_530"),
    (ALL, {"rcpt": "450 4.2.1 busy"}, "unavailable_450"),
    (ALL, {"rcpt": "550 5.1.1 no such user"}, "rejected_550"),
    (MSMTP, {"rcpt": "550 5.7.23 authentication (SPF) failed"}, "rejected_550"),
    (CURL, {"data": "452 4.3.1 no space"}, "unavailable_452"),
    (BOTH, {"data": "554 5.5.1 no"}, "rejected_554"),
    (BOTH, {"data": CUT}, "connect_lost"),
    (BOTH, {"body": "451 4.7.1 greylisted"}, "unavailable_451"),
    (BOTH, {"body": "554 5.7.1 spam"}, "rejected_554"),
    (BOTH, {"body": DROP}, "connect_lost"),
    (CURL, {"body": "999 what"}, "connect_lost"),
    (MSMTP, {"body": "what?"}, "connect_lost"),
])  # fmt: skip
def test_each_answer_of_a_server_has_its_word(
    name: str, names: tuple[str, ...], script: dict[str, Any], word: str, tmp_path: Path
) -> None:
    """Only a refusal of the mail itself is permanent, only a lost answer to its data leaves a
    doubt, curl reports the server's own words, and mailx leaves no dead.letter behind."""
    if name not in names:
        return
    with Server(**script) as server:
        failure = failure_of(TRANSPORTS[name](tmp_path, server.port))
    assert (failure.word, failure.permanent) == (word, word.startswith("rejected"))
    assert failure.may_be_accepted == (word == "connect_lost"), "no server refused it"
    (answer,) = script.values()
    quotes = name == "curl" and answer not in (DROP, CUT, "999 what")
    assert not quotes or str(failure).startswith(answer)
    assert server.mails == [] and not (tmp_path / "dead.letter").exists()


SECRET = 's3cret-with "quotes" \\ and café'


def safe(pem: Certificate, **settings: Any) -> dict[str, Any]:
    """Settings that require TLS with this certificate."""
    return {"plain_hosts": (), "ca_file": pem.cert, **settings}


def test_a_mail_is_encrypted_unless_plain_is_allowed(pem: Certificate) -> None:
    """TLS is required, and used where it is offered though plain mail is allowed."""
    with Server(tls=pem) as server, Server() as plain:
        a_curl(server.port, **safe(pem)).send(a_mail(), never)
        a_curl(server.port).send(a_mail(), never)
        failure = failure_of(a_curl(plain.port, **safe(pem)))
    assert [mail.tls for mail in server.mails] == [True, True]
    assert failure.word == "tls_missing"
    assert "mail.plain_hosts" in str(failure), "the setting that an operator can change"
    assert not any(line.startswith("MAIL") for line in plain.commands)


def test_a_password_comes_from_the_settings_or_a_file(pem: Certificate, tmp_path: Path) -> None:
    """A password with quotes, backslashes, blanks and non-ASCII letters arrives unchanged."""
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    with Server(tls=pem, logins={"me": SECRET}, login_needed=True) as server:
        for source in ({"password": SECRET}, {"password_file": str(file)}):
            a_curl(server.port, **safe(pem, user="me", **source)).send(a_mail(), never)
    assert [mail.login for mail in server.mails] == ["me", "me"]


@each(("kind", "make"), [
    ("readable", lambda path: path.write_text("hush") and path.chmod(0o644)),
    ("folder", Path.mkdir), ("link", lambda path: path.symlink_to("real")),
    ("missing", lambda path: None),
    ("empty", lambda path: path.touch(0o600)),
    ("lines", lambda path: path.write_text("hush\nhush\n") and path.chmod(0o600)),
])  # fmt: skip
def test_a_password_file_that_is_no_secret_is_not_used(
    kind: str, make: Callable[[Path], object], tmp_path: Path
) -> None:
    """It is refused before the relay is asked, and its content is not reported."""
    (tmp_path / "real").write_text("hush")
    make(path := tmp_path / "password")
    with Server() as server:
        transport = a_curl(server.port, user="me", password_file=str(path))
        failure = failure_of(transport)
    assert (failure.word, failure.permanent) == ("auth_password_file", False)
    assert str(path) in str(failure) and "hush" not in str(failure)
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


def test_a_running_curl_does_not_show_the_password(pem: Certificate, monkeypatch: Any) -> None:
    """Its command line, environment and files have neither that, nor address, nor mail."""
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
            below = [path for each in supervisors for path in children(each)]
            (process,) = [path for path in below if (path / "comm").read_text() == "curl\n"]
            shown = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            held = {os.readlink(fd) for fd in (process / "fd").iterdir()}  # noqa: PTH115
        finally:
            done.set()
            sender.join(20)
    for word in (SECRET, "s3cret", "me:", "a word", RECIPIENT, SENDER, "NFTBAN"):
        assert word.encode() not in shown
    assert not [path for path in held if path.startswith("/tmp") or "password" in path]
    assert outcome[0].word == "unavailable_stopped"
    assert "s3cret" not in repr(outcome[0]) + repr(transport)


def test_foreign_curl_settings_are_not_used(monkeypatch: Any, tmp_path: Path) -> None:
    """A .curlrc in the home folder and a proxy in the environment change nothing."""
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
def test_a_recipient_that_is_two_addresses_is_refused(address: str) -> None:
    """Sender or recipient: it is refused before curl is started."""
    with Server() as server:
        for mail in (a_mail(recipient=address), a_mail(sender=address)):
            failure = failure_of(a_curl(server.port), mail)
            assert (failure.word, failure.permanent) == ("rejected_address", True)
    assert server.connections == 0


def test_connection_failures_have_different_words(tmp_path: Path, pem: Certificate) -> None:
    """Refused, lost packets, no such host, a self-signed certificate and one of another host."""
    other = smtp_server.certificate(tmp_path, "mx.example.net")
    unknown, elsewhere = Server(tls=pem), Server(tls=other)
    with unknown, elsewhere, refusing() as nowhere, smtp_server.swallowing() as lost:
        for port, settings, word in (
            (nowhere, {}, "connect_refused"),
            (lost, {"connect_timeout": 0.2}, "connect_timeout"),
            # No label is that long, so no name server is asked.
            (25, {"host": f"{'x' * 64}.example.org"}, "dns_not_found"),
            (elsewhere.port, safe(other), "tls_certificate"),
            (unknown.port, {"plain_hosts": ()}, "tls_certificate"),
        ):
            assert (failure := failure_of(a_curl(port, **settings))).word == word
    assert "self-signed certificate" in str(failure)


@pytest.mark.deep
def test_a_silent_relay_is_left_in_time() -> None:
    """No greeting, or no answer to the mail itself, which curl waits for beyond its own limit."""
    with silent() as port:
        mute = failure_of(a_curl(port, max_time=0.2))
    with Server(body=STALL) as server:
        stalled = failure_of(a_curl(server.port, max_time=0.5))
    assert (mute.word, stalled.word) == ("timeout_before_data", "timeout")
    assert (mute.may_be_accepted, stalled.may_be_accepted) == (False, True), "none had begun"
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
    assert (absence is not None and why in absence.reason) if why else absence is None


def test_the_configuration_of_curl_is_safe() -> None:
    """IPv6 in brackets, TLS on port 465, quotes escaped, line breaks refused, lines with CRLF."""
    settings = MailSettings(host="2001:db8::1", port=465)
    config = render_config(settings, "here.example.org", a_mail(), "", "/dev/fd/3").decode()
    assert 'url = "smtps://[2001:db8::1]:465/here.example.org"\n' in config
    assert 'connect-timeout = "30.000"\nmax-time = "30.000"\n' in config  # with the greeting
    assert quote_value('a"b\\c') == '"a\\"b\\\\c"'
    with pytest.raises(NotSent, match="control character in curl's setting cacert"):
        a_curl(25, ca_file="/x\nuser = y").send(a_mail(), never)
    assert with_crlf(b"a\n\nb\r\nc\rd") == b"a\r\n\r\nb\r\nc\r\nd\r\n"
    assert with_crlf(b"a\n\n") == b"a\r\n\r\n"


def test_root_sends_as_the_owner_of_the_spool() -> None:
    """For another account curl runs with the rights of that account."""
    needs("curl")
    needs_root("to run curl as nobody")
    with Server() as server:
        usual = MailSettings(host=HOST, port=server.port, plain_hosts=(HOST,), max_time=60.0)
        Curl(usual, "here.example.org", users.account_named("nobody")).send(a_mail(), never)
    assert [mail.data for mail in server.mails] == [on_the_wire(a_mail())]


def test_a_connection_lost_within_tls_leaves_a_doubt(tmp_path: Path, pem: Certificate) -> None:
    """With STARTTLS and with TLS from the start a missing answer of msmtp's server is a doubt."""
    for more in ((), ("tls_starttls off",)):
        with Server(tls=pem, smtps=bool(more), body=DROP) as server:
            trust = ("tls on", f"tls_trust_file {pem.cert}", *more)
            failure = failure_of(an_msmtp(tmp_path, server.port, *trust))
        assert (failure.word, failure.may_be_accepted) == ("connect_lost", True)


def test_connection_failures_of_msmtp_are_understood(tmp_path: Path, pem: Certificate) -> None:
    """Each has its word: refused, no such host, bad certificate, no TLS, wrong password."""
    trust, login = ("tls on", f"tls_trust_file {pem.cert}"), ("auth on", "user me")
    with Server(tls=pem, logins={"me": "right"}) as server, Server() as plain, refusing() as none:
        for port, more, word in (
            (none, (), "connect_refused"),
            (25, (f"host {'x' * 64}.example.org",), "dns_not_found"),
            (server.port, ("tls on",), "tls_certificate"),
            (plain.port, trust, "tls_missing"),
            (server.port, (*trust, *login, "password wrong"), "auth_535"),
        ):
            assert failure_of(an_msmtp(tmp_path, port, *more)).word == word
        an_msmtp(tmp_path, server.port, *trust, *login, "password right").send(a_mail(), never)
    assert (server.mails[0].tls, server.mails[0].login) == (True, "me")


@each("text", [
    "text\n", sample_mails.NASTY, "Grüße, café €\n\n", sample_mails.MANY_DOTS,
    "~! touch FOLDER/pwned\n~r /etc/passwd\n~b evil\n",
])  # fmt: skip
def test_mailx_delivers_the_text_it_was_given(text: str, tmp_path: Path) -> None:
    """The text arrives byte for byte, under its subject, from whom and to whom it was; a line that
    begins with a tilde is no command."""
    text = text.replace("FOLDER", str(tmp_path))
    with Server() as server:
        a_mailx(tmp_path, server.port).send(a_mail()._replace(text=text), never)
    (received,) = server.mails
    header, body = received.data.split(b"\r\n\r\n", 1)
    read = message_from_bytes(header, policy=email.policy.default)
    assert body == re.sub("^~", " ~", text, flags=re.MULTILINE).encode().replace(b"\n", b"\r\n")
    assert not (tmp_path / "pwned").exists()
    assert received[1:3] == (SENDER, (RECIPIENT,))
    assert (read["From"], read["To"], read["Subject"]) == (SENDER, RECIPIENT, "a café")
    assert b"\r\nSubject: =?utf-8?q?a_caf=C3=A9?=\r\n" in header + b"\r\n"
    assert read.get_content_charset() == "utf-8"


@pytest.fixture(scope="module")
def relay() -> Iterator[Server]:
    """Where that Postfix hands its mail to."""
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def postfix(relay: Server) -> Iterator[NullClient]:
    """A running Postfix."""
    # Not in pytest's folder, which only we may enter: its processes run as other users.
    with tempfile.TemporaryDirectory(prefix="postfix") as folder:
        Path(folder).chmod(0o755)
        client = NullClient(Path(folder))
        try:
            client.start(relay.port)
            yield client
        finally:
            client.stop()


@each("name", ["postfix", "sendmail"])
@each("body", BODIES[:-1])
def test_postfix_delivers_a_mail(body: str, name: str, postfix: NullClient, relay: Server) -> None:
    """By either transport every byte reaches the relay, below the one header of Postfix."""
    settings = MailSettings(programs={"sendmail": postfix.sendmail}, method=name, max_time=60)
    relay.mails.clear()
    mail = a_mail(body)
    LocalTransport(name, settings, System()).send(mail, never)
    assert relay.wait_for(1), postfix.said()
    (received,) = relay.mails
    added, _, rest = received.data.partition(b"From: Us")
    assert b"From: Us" + rest == on_the_wire(mail)
    assert added.startswith(b"Received: by here.example.org (Postfix")
    assert added.count(b"\r\n") == 2, "one header, on two lines"
    assert received[1:3] == (SENDER, (RECIPIENT,))


def test_a_postfix_that_runs_is_seen(postfix: NullClient, relay: Server, tmp_path: Path) -> None:
    """By the lock in its queue, not in another; a mail too large for it is refused for good."""
    programs = {"sendmail": postfix.sendmail, "postfix": needs("postfix")}
    settings = MailSettings(programs=programs, max_time=60)
    relay.mails.clear()
    LocalTransport("postfix", settings, System()).send(a_mail(), never)
    assert relay.wait_for(1), postfix.said()
    assert LocalTransport("postfix", settings, System(postfix.root)).absence() is None
    stopped = Unused(Cause.STOPPED, "Postfix is not running")
    assert LocalTransport("postfix", settings, System(str(tmp_path))).absence() == stopped
    mail = a_mail(sample_mails.MANY_DOTS)
    failure = failure_of(LocalTransport("postfix", settings, System()), mail)
    assert (failure.word, failure.permanent) == ("rejected_too_large", True)
    assert str(failure).endswith("message file too big")
