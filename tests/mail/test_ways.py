"""Which way of sending mail is used: by what is installed and runs, by what was said, by whom an
operator suspended.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import accounts
from engine.mail.model import Cause, Mail, NotSent, Reason, Unused, absent
from engine.mail.transports import Ways
from engine.mail.transports.memory import Memory
from engine.mail.transports.system import System
from engine.mailconf import METHODS, MailSettings
from tests.mail.programs import needs_root
from tests.tables import each

TRAP = '#!/bin/sh\necho "$0" >> {folder}/run\n'
"""What every program of the machines below would do, were it run."""

POSTFIX = ("/usr/sbin/postfix", "/usr/sbin/sendmail", "/etc/postfix/main.cf", "Postfix")
SENDMAIL = ("/usr/sbin/sendmail", "sendmail")
EXIM4 = ("/usr/sbin/exim4", "/usr/sbin/sendmail", "exim4")
MSMTP = ("/usr/bin/msmtp", "/etc/msmtprc")
MAILX = ("/usr/bin/mailx", "/usr/sbin/sendmail")


class Machine:
    """A machine in a folder: its files, and the processes that /proc shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pid = 0
        self._held: list[int] = []
        self.process("init")

    def has(self, things: Iterable[str]) -> None:
        """Put there what begins with `/`: a program where programs are, else a file; what does
        not is the name of a process, or Postfix, which holds its lock."""
        for thing in things:
            if thing == "Postfix":
                self.runs_postfix()
            elif not thing.startswith("/"):
                self.process(thing)
            else:
                path = self._file(thing)
                path.write_text(TRAP.format(folder=self.folder))
                path.chmod(0o755 if "bin/" in thing or "lib/" in thing else 0o644)

    def _file(self, path: str) -> Path:
        found = self.folder / path[1:]
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def process(self, name: str, state: str = "S", uid: int = 0, within: str = "") -> int:
        """Start one that is named so; answers with its number. `within` is its number in a
        container."""
        self._pid += 1
        folder = self.folder / "proc" / str(self._pid)
        folder.mkdir(parents=True)
        said = f"Name:\t{name}\nState:\t{state} (as it is)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        (folder / "status").write_text(f"{said}NSpid:\t{self._pid}{within}\n")
        return self._pid

    def runs_postfix(self, queue: str = "/var/spool/postfix") -> Path:
        """Start one with this queue; answers with the path of its lock."""
        path = self._file(f"{queue}/pid/master.pid")
        self._held.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path

    def stop_postfix(self) -> None:
        """Stop all of them; their files stay."""
        while self._held:
            os.close(self._held.pop())

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_postfix()

    def ways(
        self,
        method: str = "",
        host: str = "",
        account: accounts.Account | None = None,
        **settings: Any,
    ) -> Ways:
        """Its ways of sending mail; without curl, which is looked for elsewhere."""
        environ = {"HOME": "/root", "XDG_CONFIG_HOME": "/root/config"}
        programs = {"curl": str(self.folder / "usr/bin/curl")}
        said = MailSettings(method=method, host=host, programs=programs)._replace(**settings)
        return Ways(said, system=System(str(self.folder), environ, account))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with nothing but its first process."""
    with Machine(tmp_path) as machine:
        yield machine


def chosen(ways: Ways, suspended: Collection[str] = ()) -> str:
    """The name of the transport that is used; "" for none."""
    transport = ways.choose(suspended).transport
    return transport.name if transport else ""


@each(
    ("things", "name"),
    [
        ((), ""),
        (POSTFIX, "postfix"),
        (POSTFIX[:3], ""),
        ((*POSTFIX[:3], "master"), ""),
        ((*POSTFIX[:3], "sendmail"), ""),
        (("/usr/sbin/postfix", "Postfix"), ""),
        (("/usr/sbin/postfix", "/usr/lib/sendmail", "Postfix"), "postfix"),
        (("/usr/sbin/sendmail", "Postfix"), "sendmail"),
        (SENDMAIL, "sendmail"),
        (("/usr/lib/sendmail", "sendmail-mta"), "sendmail"),
        # Whether it needs a daemon only its own program knows.
        (SENDMAIL[:1], "sendmail"),
        (EXIM4[:2], "sendmail"),
        (("/usr/sbin/exim", "exim"), "exim"),
        (("/usr/sbin/exim",), ""),
        (MSMTP, "msmtp"),
        (MSMTP[:1], ""),
        (("/usr/local/bin/msmtp", "/root/.msmtprc"), "msmtp"),
        (("/usr/bin/msmtp", "/root/config/msmtp/config"), "msmtp"),
        (MAILX, "sendmail"),
        (MAILX[:1], ""),
        # It would take the mail, and keep it until somebody starts Postfix.
        ((*MAILX, *POSTFIX[:3]), ""),
        (("/usr/bin/curl",), ""),
        ((*POSTFIX, *SENDMAIL, *EXIM4, *MSMTP, *MAILX), "postfix"),
        ((*SENDMAIL, *EXIM4, *MSMTP, *MAILX), "sendmail"),
        (("/usr/sbin/exim4", "exim4", *MSMTP), "exim"),
    ],
    machine=Machine,
)
def test_the_first_that_is_installed_and_runs_is_used(
    machine: Machine, things: Iterable[str], name: str
) -> None:
    """The order is that of the contract; a program alone is not enough."""
    machine.has(things)

    assert chosen(machine.ways()) == name


@each(
    ("things", "settings", "name"),
    [
        (("/usr/bin/curl",), {}, "curl"),
        (("/usr/bin/curl", *MAILX[:1]), {}, "curl"),
        (("/usr/bin/curl", *MSMTP), {}, "msmtp"),
        (("/usr/bin/curl", *POSTFIX), {}, "postfix"),
        (("/usr/bin/curl", *POSTFIX), {"prefer_relay": True}, "curl"),
        (POSTFIX, {"prefer_relay": True}, "postfix"),
        (("/usr/bin/curl", *POSTFIX), {"prefer_relay": True, "host": ""}, "postfix"),
    ],
    machine=Machine,
)
def test_curl_is_fifth_or_first(
    machine: Machine, things: Iterable[str], settings: dict[str, Any], name: str
) -> None:
    """With a relay curl comes after msmtp, or before all where that was asked for."""
    machine.has(things)

    assert chosen(machine.ways(**{"host": "relay.example.com", **settings})) == name


@each(
    ("things", "method", "name"),
    [
        ((*POSTFIX, *MAILX), "mailx", "mailx"),
        ((*POSTFIX, *MSMTP), "msmtp", "msmtp"),
        # A program that takes mail without a daemon is enough where it is meant.
        (SENDMAIL[:1], "sendmail", "sendmail"),
        (EXIM4[:1], "exim", "exim"),
        (POSTFIX, "sendmail", "sendmail"),
        # Of a Postfix that is stopped it would be taken, and lie there.
        (POSTFIX[:3], "sendmail", ""),
        ((*POSTFIX[:3], "/usr/bin/mailx"), "mailx", ""),
        # Nothing takes the place of what was meant.
        (POSTFIX[:3], "postfix", ""),
        ((*POSTFIX, "/usr/bin/msmtp"), "msmtp", ""),
        (POSTFIX, "exim", ""),
        (POSTFIX, "curl", ""),
        (POSTFIX, "none", ""),
        (POSTFIX, "memory", "memory"),
        ((), "memory", "memory"),
    ],
    machine=Machine,
)
def test_a_forced_method_is_the_only_one(
    machine: Machine, things: Iterable[str], method: str, name: str
) -> None:
    """What was forced is used or nothing is, and of every other it is told that it was not."""
    machine.has(things)
    ways = machine.ways(method)

    choice = ways.choose()

    assert chosen(ways) == name
    if not name:
        assert set(choice.why_not) == set(METHODS)
        others = {why for other, why in choice.why_not.items() if other != method}
        forced = f"another method is forced: {method}"
        none = "no mail is sent: the method is none"
        assert others == {Unused(Cause.BARRED, none if method == "none" else forced)}


def test_a_suspended_transport_is_passed_over(machine: Machine) -> None:
    """The next one takes its place, unless it was forced."""
    machine.has((*POSTFIX, *MSMTP))
    ways = machine.ways()

    choice = ways.choose({"postfix"})

    assert choice.transport is not None
    assert choice.transport.name == "msmtp"
    assert choice.why_not["postfix"].cause is Cause.SUSPENDED
    assert list(choice.why_not) == ["postfix", "sendmail", "exim"]
    assert chosen(ways) == "postfix", "once it is resumed"
    assert chosen(ways, {"postfix", "msmtp"}) == ""
    assert chosen(machine.ways("postfix"), {"postfix"}) == ""


def test_busybox_is_no_mail_system(machine: Machine) -> None:
    """Its sendmail has no queue and only forwards to a server on port 25."""
    machine.has(("/bin/busybox", *MSMTP))
    (machine.folder / "usr/sbin").mkdir(parents=True)
    (machine.folder / "usr/sbin/sendmail").symlink_to(machine.folder / "bin/busybox")

    assert chosen(machine.ways()) == "msmtp"
    assert chosen(machine.ways("sendmail")) == "sendmail"


def test_why_each_is_not_used_is_told(machine: Machine) -> None:
    """Of a machine without mail one learns what it lacks."""
    machine.has((*POSTFIX[:3], "/usr/bin/msmtp", "/usr/sbin/exim4"))
    folder = machine.folder

    why_not = machine.ways().choose().why_not

    assert why_not == {
        "postfix": Unused(Cause.STOPPED, "Postfix does not run"),
        "sendmail": Unused(Cause.STOPPED, "it is Postfix's, and Postfix does not run"),
        "exim": Unused(Cause.STOPPED, "Exim does not run: no process named exim, exim4"),
        "msmtp": absent(
            "not configured: no /etc/msmtprc or /root/.msmtprc or /root/config/msmtp/config "
            "that we may read"
        ),
        "curl": absent(f"curl is not installed: {folder}/usr/bin/curl"),
        "mailx": absent(
            f"not installed: no {folder}/usr/bin/mailx or {folder}/bin/mailx that may be run"
        ),
    }


@each(
    ("process", "name"),
    [({}, "exim"), ({"state": "Z"}, ""), ({"state": "X"}, ""), ({"within": "\t7"}, "")],
    machine=Machine,
)
def test_a_daemon_lives_and_is_not_a_containers(
    machine: Machine, process: dict[str, str], name: str
) -> None:
    """A dead process that nobody buried sends nothing, and one in a container not from here."""
    machine.has(EXIM4[:1])
    machine.process("exim4", **process)  # type: ignore[arg-type]

    assert chosen(machine.ways()) == name


@each(
    ("said", "queue"),
    [
        ("", "/var/spool/postfix"),
        ("queue_directory = /srv/queue\n", "/srv/queue"),
        ("#queue_directory = /old\nqueue_directory=/a\nqueue_directory =  /srv/b \n", "/srv/b"),
    ],
    machine=Machine,
)
def test_postfix_runs_while_the_lock_of_its_master_is_held(
    machine: Machine, said: str, queue: str
) -> None:
    """The lock lies in the queue that main.cf names; a file that nobody holds is an old one."""
    machine.has(POSTFIX[:3])
    main_cf = machine.folder / "etc/postfix/main.cf"
    main_cf.unlink()
    main_cf.symlink_to("main.cf.here")  # as who keeps configurations elsewhere has it
    main_cf.write_text(f"compatibility_level = 3.6\n{said}")
    lock = machine.runs_postfix(queue)

    assert chosen(machine.ways()) == "postfix"
    machine.stop_postfix()
    assert lock.exists()
    assert chosen(machine.ways()) == ""


@each(
    ("process", "name"),
    [({}, "postfix"), ({"uid": 1000}, ""), ({"state": "Z"}, ""), ({"within": "\t1"}, "")],
    machine=Machine,
)
def test_where_the_lock_is_not_for_us_its_process_counts(
    machine: Machine, process: dict[str, Any], name: str
) -> None:
    """Who may not ask for the lock looks for root's own master; anybody can name a process so."""
    machine.has(POSTFIX[:3])
    lock = machine.runs_postfix()
    lock.rename(lock.with_name("elsewhere"))
    lock.symlink_to("elsewhere")  # a link is what nobody, not even root, opens here
    machine.process("master", **process)

    assert chosen(machine.ways()) == name


@each("hidden", ["folders", "files", "all"], machine=Machine)
def test_where_processes_are_hidden_a_forced_postfix_is_believed(
    machine: Machine, hidden: str
) -> None:
    """Where others' processes are not seen (hidepid=2), not read (hidepid=1) or there is no /proc
    nobody can tell whether Postfix runs, unless by its lock: only who forces it knows."""
    machine.has((*POSTFIX[:3], *EXIM4[:1]))
    lock = machine.runs_postfix()
    lock.rename(lock.with_name("elsewhere"))
    lock.symlink_to("elsewhere")
    if hidden == "files":
        (machine.folder / "proc/1/status").unlink()
    else:
        (machine.folder / f"proc{'/1' if hidden == 'folders' else ''}").rename(
            machine.folder / "hidden"
        )

    assert machine.ways().absence("postfix").endswith("force the method postfix if it does")
    assert chosen(machine.ways("postfix")) == "postfix"
    assert chosen(machine.ways("sendmail")) == "sendmail"
    assert machine.ways().absence("exim").startswith("Exim does not run")


@each(("target", "name"), [
    ("sendmail.postfix", ""), ("sendmail.sendmail", "sendmail"), ("../bin/msmtp", "sendmail"),
    ("../../opt/dma/sendmail", "sendmail"),
], machine=Machine)  # fmt: skip
def test_whose_sendmail_is_tells_the_end_of_its_link(
    machine: Machine, target: str, name: str
) -> None:
    """Beside a Postfix that is stopped another's sendmail may be installed, and chosen."""
    machine.has(POSTFIX[:3])
    sendmail = machine.folder / "usr/sbin/sendmail"
    there = sendmail.parent / target
    there.parent.mkdir(parents=True, exist_ok=True)
    sendmail.rename(there)
    sendmail.symlink_to(target)

    assert chosen(machine.ways("sendmail")) == name


SOMEBODY = accounts.Account(4711, 4711, (4711, 4712), "somebody", "/home/somebody")


@each(("owner", "group", "mode", "above", "name"), [
    (0, 0, 0o600, 0o755, ""), (0, 0, 0o644, 0o755, "msmtp"), (0, 0, 0o644, 0o700, ""),
    (0, 4712, 0o640, 0o755, "msmtp"), (0, 4713, 0o640, 0o755, ""),
    (4711, 0, 0o400, 0o755, "msmtp"), (4711, 0, 0o044, 0o755, ""),
], machine=Machine)  # fmt: skip
def test_root_asks_for_whom_it_runs_programs(
    machine: Machine, owner: int, group: int, mode: int, above: int, name: str
) -> None:
    """A configuration that root alone may read is none for a program that runs as somebody."""
    needs_root("to give files away")
    machine.has(MSMTP)
    file = machine.folder / "etc/msmtprc"
    os.chown(file, owner, group)
    file.chmod(mode)
    file.parent.chmod(above)

    assert chosen(machine.ways(account=SOMEBODY)) == name
    assert chosen(machine.ways()) == "msmtp"


def test_root_asks_whether_they_may_run_a_program(machine: Machine) -> None:
    """A program in a folder that only root enters is not installed for anybody else."""
    needs_root("to do what others may not")
    machine.has(SENDMAIL)
    (machine.folder / "usr/sbin").chmod(0o700)

    assert chosen(machine.ways(account=SOMEBODY)) == ""
    assert chosen(machine.ways()) == "sendmail"


def test_a_program_may_lie_elsewhere(machine: Machine) -> None:
    """Where it was said where a program is it is nowhere else."""
    machine.has(("/opt/bin/sendmail", "/usr/sbin/sendmail", "sendmail"))
    there = {"sendmail": str(machine.folder / "opt/bin/sendmail")}
    gone = {"sendmail": str(machine.folder / "opt/bin/gone")}

    assert chosen(machine.ways(programs={**there})) == "sendmail"
    assert chosen(machine.ways(programs={**gone})) == ""
    assert str(machine.folder / "opt/bin/gone") in machine.ways(programs=gone).absence("sendmail")


@each("spoil", ["folder", "mode", "unlink"], machine=Machine)
def test_what_may_not_be_run_is_not_there(machine: Machine, spoil: str) -> None:
    """A folder, a file without the mode, a link to nowhere are no programs."""
    machine.has(MSMTP)
    program = machine.folder / "usr/bin/msmtp"
    if spoil == "mode":
        program.chmod(0o644)
    else:
        program.unlink()
        program.mkdir() if spoil == "folder" else program.symlink_to("nowhere")

    assert chosen(machine.ways()) == ""


def test_looking_runs_nothing_and_changes_nothing(machine: Machine) -> None:
    """Whatever is there, no program is run and no file is touched; nobody is mailed."""
    machine.has((*POSTFIX[:2], *EXIM4[:2], *MSMTP[:1], "/usr/bin/mailx", "/usr/bin/curl"))
    before = {path: path.stat().st_mtime_ns for path in machine.folder.rglob("*")}

    for method in ("", *METHODS):
        for name in METHODS:
            machine.ways(method, "relay.example.com").absence(name)

    assert {path: path.stat().st_mtime_ns for path in machine.folder.rglob("*")} == before
    assert not (machine.folder / "run").exists()


def test_the_machine_is_looked_at_once(machine: Machine) -> None:
    """What was found is kept: the same transport is used for as long as the process lives."""
    machine.has(MSMTP)
    ways = machine.ways()
    first = ways.choose().transport

    machine.has(POSTFIX)
    (machine.folder / "usr/bin/msmtp").unlink()

    assert ways.choose().transport is first
    assert chosen(machine.ways()) == "postfix"


class Counted:
    """A transport that counts how often somebody looks at it."""

    def __init__(self, name: str, absent: str = "") -> None:
        self.name = name
        self._absent = absent
        self.looks = 0

    def absence(self) -> Unused | None:
        """As it was told."""
        self.looks += 1
        return absent(self._absent)

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Never."""
        raise NotSent(Reason.UNAVAILABLE, "unavailable_never", "never")


def test_only_what_may_be_needed_is_looked_at() -> None:
    """Each is asked once however often one chooses, and none behind the one that is used."""
    given = {"exim": Counted("exim", "gone"), "msmtp": Counted("msmtp"), "mailx": Counted("mailx")}
    ways = Ways(MailSettings(), given)

    choices = [ways.choose() for _ in range(3)]

    assert [choice.transport for choice in choices] == [given["msmtp"]] * 3
    whys = {name: why.words for name, why in choices[0].why_not.items()}
    assert whys == {"postfix": "not there", "sendmail": "not there", "exim": "gone"}
    assert [transport.looks for transport in given.values()] == [1, 1, 0]


def test_the_transports_that_are_given_are_all_there_are() -> None:
    """Whoever hands transports over decides; those of the machine do not count."""
    memory = Memory()

    assert Ways(MailSettings(), {"memory": memory}).choose().transport is memory
    assert Ways(MailSettings(method="memory"), {"memory": memory}).choose().transport is memory
    assert Ways(MailSettings(method="sendmail"), {"memory": memory}).choose().transport is None
    assert Ways(MailSettings(), {}).choose().transport is None


def test_a_transport_is_imported_when_it_is_looked_at() -> None:
    """To have the ways costs nothing; to use one imports that one."""
    script = (
        "import sys; from engine.mail.transports import Ways\n"
        "from engine.mailconf import MailSettings\n"
        "ways = Ways(MailSettings(method='memory'))\n"
        "def known(): return sorted(name.rpartition('.')[2] for name in sys.modules "
        "if name.startswith('engine.mail.transports.'))\n"
        "print(known(), 'subprocess' in sys.modules)\n"
        "ways.choose(); print(known(), 'subprocess' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "['system'] False\n['memory', 'system'] False\n"
