"""Transports that run a program: recorders keep arguments, environment and input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine.config.mail_config import MailSettings
from engine.mail.model import Mail, NotSent, Reason, Transport
from engine.mail.transports.installed import System
from engine.mail.transports.local_programs import MAILX_ENVIRONMENT, LocalTransport
from engine.system.run_program import PATH
from tests.engine.sample_mails import never
from tests.tables import each

MAIL = Mail(
    id="mail-20260107T120102Z-a1b2c3d4",
    sender="nftban@web1.example.com",
    recipient="admin@example.com",
    subject="[NFTBan] =?utf-8?q?a_=22b=22?= $(id) `id` -f",
    data=b"From: x\nTo: other@example.net\nBcc: evil@example.net\nSubject: s\n\n.\n..\n$(id)\n",
    text="one\n~!touch pwned\n~~\n a ~ b\n.\n",
)

RECORDER = """\
#!{python}
import json, os, sys
told = {{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd()}}
told["fds"] = sorted(map(int, os.listdir("/proc/self/fd")))
with open("{folder}/told", "w") as file:
    json.dump(told, file)
with open("{folder}/given", "wb") as file:
    file.write(sys.stdin.buffer.read())
"""

PROGRAMS = {
    "postfix": "sendmail",
    "sendmail": "sendmail",
    "exim": "exim4",
    "msmtp": "msmtp",
    "mailx": "mailx",
}
"""The program that each transport runs."""

LIKE_SENDMAIL = ("postfix", "sendmail", "exim", "msmtp")


class Place:
    """A folder with one program, which a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def transport(self, name: str, script: str = RECORDER, seconds: float = 30) -> Transport:
        """A transport that runs this script, and no other program of the machine."""
        program = PROGRAMS[name]
        path = self.folder / program
        path.write_text(script.format(python=sys.executable, folder=self.folder))
        path.chmod(0o755)
        environ = {"HOME": "/root", "NFTBAN_SMTP_PASS": "hunter2", "MAILRC": "/tmp/evil"}
        settings = MailSettings(programs={program: str(path)}, max_time=seconds)
        return LocalTransport(name, settings, System(str(self.folder), environ))

    def recorded(self) -> dict[str, object]:
        """The arguments and environment of the recorder."""
        record: dict[str, object] = json.loads((self.folder / "told").read_text())
        return record

    def given(self) -> bytes:
        """The input of the recorder."""
        return (self.folder / "given").read_bytes()

    def untouched(self) -> bool:
        """Whether no recorder ran."""
        return not (self.folder / "told").exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder of its own."""
    return Place(tmp_path)


@each("name", LIKE_SENDMAIL, place=Place)
def test_a_program_like_sendmail_gets_envelope_and_mail(place: Place, name: str) -> None:
    """Sender and recipient are arguments, the mail comes as it is; no header names a recipient.
    Exim is asked to print why it refuses a mail."""
    place.transport(name).send(MAIL, never)
    path = str(place.folder / PROGRAMS[name])
    options = ["-oep"] if name == "exim" else []
    assert place.recorded()["argv"] == [
        path,
        "-i",
        *options,
        "-f",
        MAIL.sender,
        "--",
        MAIL.recipient,
    ]
    assert place.given() == MAIL.data


def test_exim_is_known_behind_the_name_sendmail(place: Place) -> None:
    """As Debian installs it: a link, whose target decides the options; the printed reason is that
    of the failure."""
    place.transport("exim", "#!/bin/sh\n[ $2 = -oep ] && echo message too big; exit 1\n")
    (place.folder / PROGRAMS["exim"]).rename(place.folder / "exim4")
    sendmail = place.transport("sendmail")
    (place.folder / "sendmail").unlink()
    (place.folder / "sendmail").symlink_to("exim4")
    with pytest.raises(NotSent) as failure:
        sendmail.send(MAIL, never)
    assert (failure.value.word, str(failure.value)) == ("rejected_too_large", "message too big")


def test_mailx_gets_subject_addresses_and_text(place: Place) -> None:
    """It makes the headers itself, so it gets the text alone; no line of it is a command."""
    place.transport("mailx").send(MAIL, never)
    path = str(place.folder / "mailx")
    expected = [path, "-n", "-s", MAIL.subject, "-r", MAIL.sender, MAIL.recipient]
    assert place.recorded()["argv"] == expected
    assert place.given() == b"one\n ~!touch pwned\n ~~\n a ~ b\n.\n"


@each("name", PROGRAMS, place=Place)
def test_a_program_finds_little_around_it(place: Place, name: str) -> None:
    """Neither our environment nor our files nor our folder: above all no password."""
    place.transport(name).send(MAIL, never)
    record = place.recorded()
    env = record["env"]
    assert isinstance(env, dict)
    env.pop("LC_CTYPE", None)  # of the recorder's own Python
    more = MAILX_ENVIRONMENT if name == "mailx" else {}
    assert env == {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/root", **more}
    assert record["cwd"] == "/"
    # The last is that of its own listing.
    assert record["fds"] == [0, 1, 2, 3]


HOSTILE = (
    "", "-C/tmp/evil", "-oQ/tmp@example.com", "-bd", "-bd@example.com",
    "b@example.com\nBcc: evil@example.net", "b@example.com\r\nRCPT TO:<evil@example.net>",
    "b@example.com> NOTIFY=NEVER", "b@example.com evil@example.net",
    "b@example.com,evil@example.net", "b@example.com;evil", "b@example.com\tx", "b@example.com\0",
    "b@example.com\x1b[2J", "b\x85@example.com", "b\u202e@example.com", "|/bin/sh", "/etc/passwd",
    "~root", '"a b"@example.com', "<b@example.com>", "$(id)@example.com", "`id`",
    ":include:/etc/passwd", "|/bin/sh@example.com", "/etc/passwd@example.com",
    "\u00e4@example.com", "\u0661@example.com",
)  # fmt: skip


@each("address", HOSTILE)
@each("name", ["sendmail", "mailx"], place=Place)
def test_no_program_gets_a_hostile_address(place: Place, name: str, address: str) -> None:
    """A text that could be an option, a second address, a file or a command is refused for good,
    as recipient and as sender, with a printable message."""
    transport = place.transport(name)
    for mail in (MAIL._replace(recipient=address), MAIL._replace(sender=address)):
        with pytest.raises(NotSent) as failure:
            transport.send(mail, never)
        assert failure.value.reason is Reason.REJECTED
        assert failure.value.permanent
        assert str(failure.value).isprintable()
    assert place.untouched()


@each("address", [
    "o'brien@example.com", "a$b@example.com", "`id`@example.com", "a!b#c*d?{e}|f/g@example.com",
    "b@[192.0.2.1]", "b@[IPv6:2001:db8::1]", "user@example.xn--p1ai",
])  # fmt: skip
@each("name", ["sendmail", "mailx"], place=Place)
def test_a_program_gets_any_valid_address_as_one_word(
    place: Place, name: str, address: str
) -> None:
    """Characters of an atom reach the program unchanged, as no shell reads its arguments."""
    place.transport(name).send(MAIL._replace(sender=address, recipient=address), never)
    argv = place.recorded()["argv"]
    assert isinstance(argv, list)
    assert argv.count(address) == 2
    (place.folder / "told").unlink()


def test_mailx_refuses_an_address_that_it_takes_for_a_file(tmp_path: Path) -> None:
    """An address that begins like the name of a folder is one to mailx, and fine for others."""
    place = Place(tmp_path)
    for address in ("+box@example.com", "%@example.com", "#a@example.com", "&a@x.org", "~a@x.org"):
        mail = MAIL._replace(recipient=address)
        with pytest.raises(NotSent, match="read it as a file"):
            place.transport("mailx").send(mail, never)
        assert place.untouched()
        place.transport("sendmail").send(mail, never)
        (tmp_path / "told").unlink()


@each("name", PROGRAMS)
@each("size", [1, 1000, 1_000_000], place=Place)
def test_a_program_must_read_the_whole_mail(place: Place, name: str, size: int) -> None:
    """Status 0 is no success if the program did not read the mail, of any size."""
    mail = MAIL._replace(data=b"x" * size, text="x" * size)
    with pytest.raises(NotSent) as failure:
        place.transport(name, "#!/bin/sh\nexit 0\n").send(mail, never)
    assert failure.value.word == "unavailable_not_read"


@each("name", ["exim", "mailx"])
@each(("script", "reason"), [
    ("echo 'postdrop: warning: mail_queue_enter' >&2; exit 75", Reason.UNAVAILABLE),
    ("exit 67", Reason.REJECTED), ("exit 68", Reason.DNS), ("kill -KILL $$", Reason.UNAVAILABLE),
    ("echo 'msmtp: cannot connect to x: Connection refused'; exit 69", Reason.CONNECT),
], place=Place)  # fmt: skip
def test_a_failure_has_its_reason(place: Place, name: str, script: str, reason: Reason) -> None:
    """Output and status of the program give the reason."""
    with pytest.raises(NotSent) as failure:
        place.transport(name, f"#!/bin/sh\ncat > /dev/null\n{script}\n").send(MAIL, never)
    assert failure.value.reason is reason


@each("name", ["sendmail", "mailx"], place=Place)
def test_a_program_has_as_long_as_the_settings_say(place: Place, name: str) -> None:
    """An attempt takes at most `max_time` seconds."""
    with pytest.raises(NotSent, match=r"did not end within 0\.2 s") as failure:
        place.transport(name, "#!/bin/sh\nexec sleep 600\n", seconds=0.2).send(MAIL, never)
    assert failure.value.reason is Reason.TIMEOUT
