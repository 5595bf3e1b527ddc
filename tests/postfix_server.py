"""A real Postfix instance of its own: configuration, queue and data in a temporary folder, smtpd on
a high port of loopback. Mail is deferred without an attempt, but mail to `SINK_DOMAIN`."""

from __future__ import annotations

import json
import shutil
import smtplib
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.config.place_address import Address, places_folder
from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from engine.formats.postfix.instance import open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Move, Outcome, Task
from engine.programs.mail_accounts import MailAccounts
from engine.programs.mail_store import MailStore
from engine.programs.prefix import HERE, Prefix
from engine.verbs import VERBS
from tests.exim_server import free_port
from tests.programs import needs, needs_root

SINK_DOMAIN = "sink.example.test"
"""Mail to it is tried at the port `PostfixInstance.sink_port`, where a test may listen."""

WAIT_SECONDS = 60.0

MAIN_CF = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
syslog_name = postfix
myhostname = mx1.example.test
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
alias_maps =
local_recipient_maps =
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_authorized_xclient_hosts = 127.0.0.1
default_transport = smtp:[127.0.0.1]:9
defer_transports = smtp
transport_maps = texthash:{folder}/etc/transport
disable_dns_lookups = yes
smtp_host_lookup = native
minimal_backoff_time = 1000s
maillog_file = {folder}/log/mail.log
maillog_file_prefixes = {folder}
"""

MASTER_CF = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 1 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
sink unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
showq unix n - n - - showq
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


class PostfixInstance:
    """An instance; `start` it, and always `stop` it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config, self.queue = folder, folder / "etc", folder / "queue"
        self.marks = folder / "state"
        """The folder of our marks."""
        self.accounts = MailAccounts()
        """What stores on it share, as those of one process do."""
        self.port, self.sink_port, self._is_started = free_port(), free_port(), False
        for name in ("etc", "queue", "data", "log"):
            (folder / name).mkdir()
        for name in ("data", "log"):
            shutil.chown(folder / name, "postfix")
        self.configure("")
        (self.config / "master.cf").write_text(MASTER_CF.format(port=self.port))
        route = f"{SINK_DOMAIN} sink:[127.0.0.1]:{self.sink_port}\n"
        (self.config / "transport").write_text(route)

    def configure(self, more: str) -> None:
        """Write main.cf with more settings; `start` reads it."""
        text = MAIN_CF.format(folder=self.folder)
        (self.config / "main.cf").write_text(text + more)

    def run(self, program: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of Postfix, as another operator does."""
        return subprocess.run(
            [f"/usr/sbin/{program}", "-c", str(self.config), *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC"},
            cwd="/",
        )

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._is_started = True
        run = self.run("postfix", "start")
        assert run.returncode == 0, run.stderr
        self._await(lambda: "Mail system is down" not in self.run("postqueue", "-j").stderr)

    def stop(self) -> None:
        """Stop it, if it was started; a process that lists the queue may end after the others."""
        if self._is_started:
            self.run("postfix", "stop")
            self._await(lambda: "Mail system is down" in self.run("postqueue", "-j").stderr)
        self._is_started = False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It is stopped in the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def send(
        self,
        number: int,
        sender: str = "ana@mx1.example.test",
        domain: str = "far.example.test",
        login: str = "",
    ) -> list[str]:
        """Send mails of one recipient each by SMTP, as a client that has logged in or not; return
        their ids, in order."""
        ids = []
        with smtplib.SMTP("127.0.0.1", self.port) as client:
            if login:
                client.ehlo()
                assert client.docmd("XCLIENT", f"LOGIN={login}")[0] == 220
                client.ehlo()
            for n in range(number):
                client.mail(sender)
                client.rcpt(f"u{n}@{domain}")
                _, answer = client.data(f"Subject: m{n}\r\n\r\nbody of {n}\r\n".encode())
                ids.append(answer.decode().rpartition(" ")[2])
        return ids

    def listed(self) -> dict[str, str]:
        """The queue of each message, by its id."""
        lines = self.run("postqueue", "-j").stdout.splitlines()
        mails = [json.loads(line) for line in lines]
        return {mail["queue_id"]: mail["queue_name"] for mail in mails}

    def deferred(self, number: int, **how: str) -> list[str]:
        """Send mails, and wait until all are deferred; return their ids in sorted order."""
        ids = self.send(number, **how)
        self.await_queue(ids, "deferred")
        return sorted(ids)

    def await_queue(self, ids: Sequence[str], queue: str) -> None:
        """Wait until all these messages are in a queue; "" is none."""
        self._await(lambda: {its.get(one, "") for its in [self.listed()] for one in ids} <= {queue})

    def await_all(self, ids: Collection[str]) -> None:
        """Wait until these messages are listed, and no others: a listing is no snapshot."""
        self._await(lambda: {*self.listed()} == {*ids})

    def _await(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while not is_so():  # each call runs a program
            assert time.monotonic() < until, self.log()[-2000:]

    def await_log(self, text: str) -> None:
        """Wait until the mail log has a text."""
        self._await(lambda: bool(self.listed()) and text in self.log())

    def log(self) -> str:
        """Its mail log."""
        path = self.folder / "log/mail.log"
        return path.read_text() if path.exists() else ""

    def clear(self) -> None:
        """Delete all messages, and what is known of them."""
        self.run("postsuper", "-d", "ALL")
        self.accounts = MailAccounts()
        shutil.rmtree(self.marks, ignore_errors=True)

    def server(self, prefix: Prefix = HERE, **settings: str) -> PostfixServer:
        """The instance as a mail store uses it, here or through a prefix, with other settings."""
        instance, marks = open_instance(str(self.config), prefix), Marks(str(self.marks))
        instance = instance._replace(settings={**instance.settings, **settings})
        return PostfixServer(instance, marks, accounts=self.accounts)

    def store(self, prefix: Prefix = HERE, **settings: str) -> MailStore:
        """A store on it."""
        return MailStore(self.server(prefix, **settings))

    def setup(self) -> Setup:
        """The setup of its place, with our files in its folder."""
        return setup_for(Config(), str(self.config), {})._replace(state_folder=str(self.marks))


def change(store: MailStore, tasks: Iterable[Task], verb: str) -> list[Outcome]:
    """Change tasks by a verb; each has its outcome."""
    moves = [Move(task, VERBS[verb].function(task, time.time())) for task in tasks]
    outcomes = list(store.swap_all(moves))
    assert [outcome.move for outcome in outcomes] == moves
    return outcomes


def errors(store: MailStore, tasks: Iterable[Task], verb: str) -> list[Exception | None]:
    """Why each task was not changed by a verb."""
    return [outcome.error for outcome in change(store, tasks, verb)]


@contextmanager
def new_instance() -> Iterator[PostfixInstance]:
    """An instance that is not started."""
    needs("postfix")
    needs_root("Postfix starts as root only")
    with tempfile.TemporaryDirectory(prefix="sdpf", dir="/tmp") as name:
        Path(name).chmod(0o755)
        instance = PostfixInstance(Path(name))
        try:
            yield instance
        finally:
            instance.stop()
            # What commands of root keep for this place.
            own = places_folder(Address(str(instance.config)), {}, 0)
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def running_instance() -> Iterator[PostfixInstance]:
    """A started instance."""
    with new_instance() as instance:
        instance.start()
        yield instance
