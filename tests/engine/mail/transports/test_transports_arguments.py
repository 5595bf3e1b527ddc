"""Transports that run a program: recorders keep arguments, environment and input."""

import json
import sys
from pathlib import Path
from typing import Any

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

PROGRAMS = {name: name for name in ("sendmail", "msmtp", "mailx")}
PROGRAMS |= {"postfix": "sendmail", "exim": "exim4"}
"""The program that each transport runs."""


class Place:
    """A folder with one program, which a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"

    def transport(self, name: str, script: str = RECORDER, seconds: float = 30) -> Transport:
        """A transport that runs this script, and no other program of the machine."""
        program = PROGRAMS[name]
        path = self.folder / program
        path.write_text(script.format(python=sys.executable, folder=self.folder))
        path.chmod(0o755)
        environ = {"HOME": "/root", "NFTBAN_SMTP_PASS": "hunter2", "MAILRC": "/tmp/evil"}
        settings = MailSettings(programs={program: str(path)}, max_time=seconds)
        return LocalTransport(name, settings, System(str(self.folder), environ))

    def recorded(self) -> dict[str, Any]:
        """The arguments, environment and files of the recorder."""
        record: dict[str, Any] = json.loads(self.told.read_text())
        return record


ENVELOPE = ("-f", MAIL.sender, "--", MAIL.recipient)
TEXT = b"one\n ~!touch pwned\n ~~\n a ~ b\n.\n"


@each(("name", "words", "given"), [
    *((name, ("-i", *ENVELOPE), MAIL.data) for name in ("postfix", "sendmail", "msmtp")),
    ("exim", ("-i", "-oep", *ENVELOPE), MAIL.data),
    ("mailx", ("-n", "-s", MAIL.subject, "-r", MAIL.sender, MAIL.recipient), TEXT),
], place=Place)  # fmt: skip
def test_a_program_gets_envelope_and_mail_and_little_else(
    place: Place, name: str, words: tuple[str, ...], given: bytes
) -> None:
    """Sender and recipient are arguments, the mail comes as it is, to mailx as a text without
    commands. Our environment, files and folder are not seen, nor a password."""
    place.transport(name).send(MAIL, never)
    record = place.recorded()
    assert record["argv"] == [str(place.folder / PROGRAMS[name]), *words]
    assert (place.folder / "given").read_bytes() == given
    record["env"].pop("LC_CTYPE", None)  # of the recorder's own Python
    more = MAILX_ENVIRONMENT if name == "mailx" else {}
    assert record["env"] == {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/root", **more}
    assert record["cwd"] == "/"
    assert record["fds"] == [0, 1, 2, 3], "the last is that of its own listing"


def test_exim_is_known_behind_the_name_sendmail(tmp_path: Path) -> None:
    """A link's target decides the options; the printed reason is that of the failure."""
    place = Place(tmp_path)
    place.transport("exim", "#!/bin/sh\n[ $2 = -oep ] && echo message too big; exit 1\n")
    sendmail = place.transport("sendmail")
    (tmp_path / "sendmail").unlink()
    (tmp_path / "sendmail").symlink_to("exim4")
    with pytest.raises(NotSent) as failure:
        sendmail.send(MAIL, never)
    assert (failure.value.word, str(failure.value)) == ("rejected_too_large", "message too big")


@each("address", [
    "", "-C/tmp/evil", "-bd@example.com", "b@example.com\nBcc: evil@example.net",
    "b@example.com,evil@example.net", "|/bin/sh", "\u00e4@example.com",
])  # fmt: skip
@each("name", ["sendmail", "mailx"], place=Place)
def test_no_program_gets_a_hostile_address(place: Place, name: str, address: str) -> None:
    """Option, list, file or command: refused for good, as recipient and as sender, in one line."""
    transport = place.transport(name)
    for mail in (MAIL._replace(recipient=address), MAIL._replace(sender=address)):
        with pytest.raises(NotSent) as failure:
            transport.send(mail, never)
        assert (failure.value.reason, failure.value.permanent) == (Reason.REJECTED, True)
        assert str(failure.value).isprintable()
    assert not place.told.exists()


@each("address", [
    "o'brien@example.com", "a$b@example.com", "`id`@example.com", "a!b#c*d?{e}|f/g@example.com",
    "b@[192.0.2.1]", "b@[IPv6:2001:db8::1]", "user@example.xn--p1ai",
])  # fmt: skip
@each("name", ["sendmail", "mailx"], place=Place)
def test_a_program_gets_a_valid_address_as_one_word(place: Place, name: str, address: str) -> None:
    """Characters of an atom reach the program unchanged, as no shell reads its arguments."""
    place.transport(name).send(MAIL._replace(sender=address, recipient=address), never)
    assert place.recorded()["argv"].count(address) == 2


@each("address", ["+box@example.com", "%@example.com", "#a@example.com", "&a@x.org", "~a@x.org"],
      place=Place)  # fmt: skip
def test_mailx_refuses_an_address_that_it_takes_for_a_file(place: Place, address: str) -> None:
    """An address that begins like the name of a folder is one to mailx, and fine for others."""
    mail = MAIL._replace(recipient=address)
    with pytest.raises(NotSent, match="read it as a file"):
        place.transport("mailx").send(mail, never)
    assert not place.told.exists()
    place.transport("sendmail").send(mail, never)
    assert place.told.exists()


READS = "cat > /dev/null\n"


@each("name", PROGRAMS)
@each(("script", "word"), [
    ("exit 0", "unavailable_not_read"),
    (f"{READS}echo 'msmtp: cannot connect to x: Connection refused'; exit 69", "connect_refused"),
    ("exec sleep 600", "timeout"),
], place=Place)  # fmt: skip
def test_a_failure_has_its_word(place: Place, name: str, script: str, word: str) -> None:
    """By output and status; status 0 is none if the mail was read, within `max_time` seconds."""
    seconds = 0.2 if word == "timeout" else 30
    transport = place.transport(name, f"#!/bin/sh\n{script}\n", seconds)
    for size in (1, 1000, 1_000_000) if word.endswith("not_read") else (1,):
        with pytest.raises(NotSent) as failure:
            transport.send(MAIL._replace(data=b"x" * size, text="x" * size), never)
        assert failure.value.word == word
        assert word != "timeout" or "did not end within 0.2 s" in str(failure.value)
