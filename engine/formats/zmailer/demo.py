"""ZMailer's demo place: a spool with our scheduler, its agents and mail servers.

The files are written as the router writes them; those of the past have the tags and diagnostics
that agents leave. No router runs: what is given to it stays in router/.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping, Sequence

from engine.demo.keeper import HOUR, MINUTE, DemoSettings
from engine.demo.smtp_server import DemoSmtpServer
from engine.formats.zmailer.diagnostics import format_diagnostic
from engine.formats.zmailer.spool.control_file import Diagnostic, parse_control_file
from engine.system import files
from engine.values import NamedTuple

ENOUGH_MESSAGES = 200
"""Number of messages at which the traffic pauses."""

FOLDERS = ("transport", "queue", "router", "freezer", "postman", "public")

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""Addresses of the mail servers; each is a thread of the scheduler."""

CONF = """\
# The clauses of the demo.
PARAMmailqsock=UNIX:{folder}/mailq.sock
*/*
    interval=20s expiry=3d retries="1 1 2 3 5 8 13 21 34" maxthr=1 overfeed=1
    user={uid} group={gid}
smtp/\\[127.0.0.3\\]
    maxring=1 command="{program} zmailer agent smtp -p {port}"
smtp/*
    maxchannel=10 maxring=2 command="{program} zmailer agent smtp -p {port}"
hold/*
    interval=1m maxchannel=1 command="{program} zmailer agent hold"
"""


class SampleMail(NamedTuple):
    """One kind of message; `{n}` is a number."""

    sender: str
    recipients: tuple[tuple[str, str, str], ...]
    """Channel, host and user of each."""
    subject: str
    weight: int
    error: str = ""
    """What the remote host said when it was tried; "" if it was not."""
    tag: str = " "


SAMPLES = (
    SampleMail(
        "shop@example.net",
        (("smtp", "[127.0.0.1]", "anna{n}@north.example.org"),),
        "Your order {n}",
        8,
    ),
    SampleMail(
        "news@example.net",
        (
            ("smtp", "[127.0.0.1]", "bert{n}@north.example.org"),
            ("smtp", "[127.0.0.2]", "carla{n}@south.example.com"),
            ("smtp", "[127.0.0.3]", "busy{n}@east.example.com"),
        ),
        "News of week {n}",
        4,
    ),
    SampleMail(
        "office@example.net",
        (("smtp", "[127.0.0.2]", "busy{n}@south.example.com"),),
        "Minutes of meeting {n}",
        4,
        "450 4.2.0 mailbox busy, try again later",
    ),
    SampleMail(
        "office@example.net",
        (("smtp", "[127.0.0.3]", "gone{n}@west.example.com"),),
        "Invoice {n}",
        weight=3,
        error="550 5.1.1 no such user here",
        tag="-",
    ),
    SampleMail(
        "list@example.net", (("uucp", "oldhost", "gina{n}"),), "A channel without a clause", 1
    ),
    SampleMail("cron@example.net", (("hold", "age:1h", "hugo"),), "Nightly report {n}", 1),
)


class DemoPostoffice:
    """A POSTOFFICE with waiting, deferred and failed recipients, a lock of a dead agent, and a
    parked file, for which a scheduler is started."""

    name, interval = "postoffice", 4.0
    work: Mapping[str, Sequence[str]]

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Make the spool with the mail of the last hours, and its scheduler.conf."""
        folder, now = settings.folder, settings.now
        self._root, self._random = f"{folder}/{self.name}", random.Random(7)
        for name in FOLDERS:
            files.make_folders(f"{self._root}/{name}", 0o755)
        first = DemoSmtpServer()
        port = first.server_address[1]
        self._servers = [first, *(DemoSmtpServer(host, port) for host in HOSTS[1:])]
        conf = f"{folder}/scheduler.conf"
        words = CONF.format(
            folder=folder,
            program=" ".join(settings.program),
            port=port,
            uid=os.geteuid(),
            gid=os.getegid(),
        )
        files.replace_file(conf, words.encode())
        scheduler = ("zmailer", "scheduler", "-i", "-P", self._root, "-f", conf)
        self.work = {self.name: (*scheduler, "-L", f"{folder}/scheduler.log")}
        for number in range(60):
            self._put(self._choose(), now - 6 * HOUR + number * 6 * MINUTE)
        self._put(SAMPLES[0]._replace(tag="~"), now - 7 * HOUR)
        files.replace_file(f"{self._root}/freezer/4711", b"i 4711\nr torn when the disk was full")
        return {"stores": f"  zmailer: {{scheduler_conf: {conf}, log: {folder}/scheduler.log}}\n"}

    def open(self) -> None:
        """Start the mail servers."""
        for server in self._servers:
            server.start()

    def close(self) -> None:
        """Close the mail servers."""
        for server in self._servers:
            server.server_close()

    def add(self, now: float) -> None:
        """Add a message, as the router does."""
        if len(os.listdir(f"{self._root}/transport")) < ENOUGH_MESSAGES:
            self._put(self._choose()._replace(error="", tag=" "), now)

    def _choose(self) -> SampleMail:
        (kind,) = self._random.choices(SAMPLES, [one.weight for one in SAMPLES])
        return kind

    def _put(self, kind: SampleMail, at: float) -> None:
        """Write message and control file under the inode number of the message."""
        number = self._random.randrange(10, 99)
        subject = kind.subject.format(n=number)
        headers = f"From: {kind.sender}\nSubject: {subject}\n"
        draft = f"{self._root}/public/{self._random.getrandbits(48):x}"
        envelope = "external\n"
        files.replace_file(draft, f"{envelope}{headers}\n{subject}.\n".encode())
        name = str(os.stat(draft).st_ino)
        os.utime(draft, (at, at))
        os.rename(draft, f"{self._root}/queue/{name}")
        body = len(envelope) + len(headers) + 1
        lines = [
            "@ 0x00000007",
            f"i {name}",
            f"o {body}",
            f"l <{name}.{number}@example.net>",
            f"e {kind.sender}",
            f"s local {kind.sender} {kind.sender} 1",
        ]
        slot = _ended_pid() if kind.tag == "~" else ""
        for channel, host, user in kind.recipients:
            lines.append(f"r{kind.tag}{slot:<10} {channel} {host} {user.format(n=number)} 65534")
        text = "\n".join([*lines, "m", headers, ""]).encode()
        for one in parse_control_file(text).recipients if kind.error else ():
            action = b"failed" if kind.tag == "-" else b"delayed"
            code, status = kind.error.split(" ")[:2]
            notary = (
                one.quad.user,
                action,
                status.encode(),
                f"smtp; {code} ({kind.error})".encode(),
                b"dns; " + one.quad.host,
                b"smtp[4711]",
            )
            said = f"\r<<- RCPT To:<{one.quad.user.decode()}>\r->> {kind.error}"
            diagnostic = Diagnostic(at + MINUTE, notary, said.encode())
            text += format_diagnostic(text, one.offset, diagnostic)
        draft = f"{self._root}/transport/.{name}"
        files.replace_file(draft, text)
        os.utime(draft, (at, at))
        os.rename(draft, f"{self._root}/transport/{name}")


def _ended_pid() -> str:
    """The PID of a process that has ended, in six columns as agents write it."""
    with subprocess.Popen(["true"]) as process:
        return f"{process.pid:6}"
