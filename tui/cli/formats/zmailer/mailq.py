"""The command `spooldeck zmailer mailq`: print a ZMailer queue as the original's mailq does."""

from __future__ import annotations

import getopt
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress

from engine.config.place_address import Address
from engine.formats.base.format import Setup
from engine.formats.known_formats import find_address
from engine.formats.zmailer.format import is_dump
from engine.formats.zmailer.mailq import job_text
from engine.formats.zmailer.mailq.client import MailqClient
from engine.formats.zmailer.mailq.connection import ANONYMOUS
from engine.formats.zmailer.mailq.queue_view import JobView, SchedulerView
from engine.formats.zmailer.mailq.report_text import report_lines, totals_lines
from engine.formats.zmailer.mailq.server import DEFAULT_PORT
from engine.formats.zmailer.mailq_store.source import RendezvousFile, parse_place
from engine.formats.zmailer.spool.control_file import parse_control_file
from engine.system import files
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from engine.values import NamedTuple

PASSWORD_VARIABLE = "SPOOLDECK_MAILQ_PASSWORD"
"""Variable of the environment with the password of the user of -U."""
LOCAL_HOST = "127.0.0.1"
_REPORTS = {1: "SHOW QUEUE THREADS", 2: "SHOW QUEUE SHORT", 3: "SHOW SNMP", 4: "SHOW COUNTERS"}
"""The report of so many -Q."""
_MAX_CONTROL_BYTES = 64 << 20
_MAX_PASSWORD_BYTES = 1024


class MailqOptions(NamedTuple):
    """The command line of mailq(1zm), as far as its listings need it."""

    address: str = ""
    reports: int = 0
    """Number of -Q."""
    is_verbose: bool = False
    channel: str = ""
    host: str = ""
    user: str = ""
    password_file: str = ""
    port: str = ""
    """A number, or the path of a UNIX socket."""

    def wants(self, channel: str, host: str) -> bool:
        """True for a thread that -c and -h name."""
        return self.channel in ("", channel) and self.host in ("", host)


def parse_options(words: list[str]) -> MailqOptions:
    """Parse the words of the command."""
    try:
        options, addresses = getopt.gnu_getopt(words, "Qvc:h:U:p:", ["password-file="])
    except getopt.GetoptError as error:
        fail(EX_USAGE, f"{safe_line(str(error))}: expected -Q -v -c -h -U -p, --password-file")
    if len(addresses) > 1:
        fail(EX_USAGE, f"{safe_line(addresses[1])}: expected one ADDRESS")
    values = dict(options)
    user, slash, _ = values.get("-U", "").partition("/")
    if slash:
        fail(
            EX_USAGE,
            f"-U {safe_line(user)}/...: other users can read a password there: give -U"
            f" {safe_line(user)} and set {PASSWORD_VARIABLE}, or use --password-file",
        )
    return MailqOptions(
        "".join(addresses),
        sum(name == "-Q" for name, _ in options),
        "-v" in values,
        channel=values.get("-c", ""),
        host=values.get("-h", ""),
        user=user,
        password_file=values.get("--password-file", ""),
        port=values.get("-p", ""),
    )


def mailq(setup: Setup, words: list[str]) -> int:
    """Print the threads with their messages, or a report; a rendezvous file is one of version 1."""
    options = parse_options(words)
    if is_dump(options.address):
        path = os.path.abspath(options.address)
        _print(_dump_text(RendezvousFile(path).read(), options))
        return 0
    client = MailqClient(parse_place(_find_server(setup, options)))
    with closing(client):
        if client.find_version() == 1:
            _print(_dump_text(client.dump(), options))
        else:
            _print(_server_text(client, options))
    return 0


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        for piece in line.replace("\r", "\n\t  ").split("\n"):  # a diagnostic has CR between lines
            print("\t".join(safe_line(field) for field in piece.split("\t")))


def _dump_text(view: SchedulerView, options: MailqOptions) -> Iterator[str]:
    if options.reports == 0:
        yield from job_text.dump_listing(view, options.wants, _details(options))
    elif options.reports < 3:
        with_threads = options.reports == 1
        yield from report_lines(view.groups, view.totals, view.now, with_threads=with_threads)
    else:
        yield from totals_lines(view.totals, in_seconds=True)


def _server_text(client: MailqClient, options: MailqOptions) -> Iterator[str]:
    if options.reports:
        yield from client.show(_REPORTS[min(options.reports, max(_REPORTS))])
        return
    groups, _ = client.threads()
    for group in groups:
        for thread in group.threads:
            if options.wants(thread.channel, thread.host):
                jobs = client.jobs(thread.channel, thread.host).jobs
                details = _details(options)
                yield from job_text.thread_listing(
                    thread.channel, thread.host, jobs, time.time(), details
                )


def _details(options: MailqOptions) -> job_text.Details:
    """What -v adds: read from the control files below $POSTOFFICE, if they are on this host."""
    office = os.environ.get("POSTOFFICE", "")
    if not options.is_verbose:
        return job_text.no_details
    if not office:
        fail(EX_USAGE, "-v reads control files: set POSTOFFICE to the folder of the spool")
    return lambda job: _message_details(f"{office}/transport", job)


def _message_details(folder: str, job: JobView) -> Iterator[str]:
    """Message id, sender and recipients of a job; nothing if its file is gone or unreadable."""
    with suppress(OSError, files.Refused):
        fd = files.open_file(f"{folder}/{job.path}")
        try:
            data = os.read(fd, _MAX_CONTROL_BYTES)
        finally:
            os.close(fd)
        control = parse_control_file(data)
        users = {one.offset: one.quad.user for one in control.recipients}
        recipients = [users[at].decode("utf-8", "replace") for at in job.offsets if at in users]
        names = (control.log_id, control.sender)
        identity, sender = (text.decode("utf-8", "replace") for text in names)
        yield from job_text.message_details(identity, sender, recipients)


# ---- who logs in where


def _find_server(setup: Setup, options: MailqOptions) -> Address:
    """The URL of the server, with the password of its user."""
    if "://" in options.address:
        return find_address(setup.config, options.address)
    login = f"{options.user}@" if options.user else ""
    if "/" in options.port or options.address.startswith("/"):
        path = os.path.abspath(options.port or options.address)
        address = find_address(setup.config, f"mailq+unix://{login}{path}")
    else:
        port = options.port or str(DEFAULT_PORT)
        if not port.isdecimal():
            fail(EX_USAGE, f"-p {safe_line(port)}: expected a port or the path of a socket")
        host = options.address or LOCAL_HOST
        host = f"[{host}]" if ":" in host else host
        address = find_address(setup.config, f"mailq://{login}{host}:{port}")
    if address.password or not options.user or options.user == ANONYMOUS:
        return address
    return address._replace(password=_read_password(options))


def _read_password(options: MailqOptions) -> str:
    """From the file of --password-file, the environment, or a prompt."""
    if options.password_file:
        fd = files.open_file(options.password_file)
        try:
            if os.fstat(fd).st_mode & 0o077:
                path = safe_line(options.password_file)
                fail(EX_USAGE, f"{path}: readable by others: run chmod 600")
            return os.read(fd, _MAX_PASSWORD_BYTES).decode().rstrip("\n")
        finally:
            os.close(fd)
    if password := os.environ.get(PASSWORD_VARIABLE, ""):
        return password
    if not sys.stdin.isatty():
        fail(EX_USAGE, f"no password of user {safe_line(options.user)}: set {PASSWORD_VARIABLE}")
    import getpass

    return getpass.getpass(f"password of {safe_line(options.user)}: ")
