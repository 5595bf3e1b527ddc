"""Which way of sending mail is used: by what is installed and runs, by what was said, by whom an
operator suspended.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.mail.model import Mail, NotSent, Reason
from engine.mail.transports import Ways
from engine.mail.transports.memory import Memory
from engine.mail.transports.system import System
from engine.mailconf import METHODS, MailSettings

TRAP = '#!/bin/sh\necho "$0" >> {folder}/run\n'
"""What every program of the machines below would do, were it run."""

POSTFIX = ("/usr/sbin/postfix", "/usr/sbin/sendmail", "master")
SENDMAIL = ("/usr/sbin/sendmail", "sendmail")
EXIM4 = ("/usr/sbin/exim4", "/usr/sbin/sendmail", "exim4")
MSMTP = ("/usr/bin/msmtp", "/etc/msmtprc")
MAILX = ("/usr/bin/mailx", "/usr/sbin/sendmail")


class Machine:
    """A machine in a folder: its files, and the processes that /proc shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pid = 0
        self.process("init")

    def has(self, things: Iterable[str]) -> None:
        """Put there what begins with `/`: a program where programs are, else a file; what does
        not is the name of a process."""
        for thing in things:
            if not thing.startswith("/"):
                self.process(thing)
                continue
            path = self.folder / thing[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TRAP.format(folder=self.folder))
            path.chmod(0o755 if "bin/" in thing or "lib/" in thing else 0o644)

    def process(self, name: str) -> int:
        """Start one that is named so; answers with its number."""
        self._pid += 1
        folder = self.folder / "proc" / str(self._pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        return self._pid

    def ways(self, method: str = "", host: str = "", **settings: Any) -> Ways:
        """Its ways of sending mail; without curl, which is looked for elsewhere."""
        environ = {"HOME": "/root", "XDG_CONFIG_HOME": "/root/config"}
        programs = {"curl": str(self.folder / "usr/bin/curl")}
        said = MailSettings(method=method, host=host, programs=programs)._replace(**settings)
        return Ways(said, system=System(str(self.folder), environ))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing but its first process."""
    return Machine(tmp_path)


def chosen(ways: Ways, suspended: Collection[str] = ()) -> str:
    """The name of the transport that is used; "" for none."""
    transport = ways.choose(suspended).transport
    return transport.name if transport else ""


@pytest.mark.parametrize(
    ("things", "name"),
    [
        ((), ""),
        (POSTFIX, "postfix"),
        (POSTFIX[:2], ""),
        (("/usr/sbin/postfix", "master"), ""),
        (("/usr/sbin/postfix", "/usr/lib/sendmail", "master"), "postfix"),
        (("/usr/sbin/sendmail", "master"), ""),
        (SENDMAIL, "sendmail"),
        (("/usr/lib/sendmail", "sendmail-mta"), "sendmail"),
        (SENDMAIL[:1], ""),
        (EXIM4, "exim"),
        (("/usr/sbin/exim", "exim"), "exim"),
        (EXIM4[:2], ""),
        (MSMTP, "msmtp"),
        (MSMTP[:1], ""),
        (("/usr/local/bin/msmtp", "/root/.msmtprc"), "msmtp"),
        (("/usr/bin/msmtp", "/root/config/msmtp/config"), "msmtp"),
        (MAILX, "mailx"),
        (("/bin/mailx", "/usr/lib/sendmail"), "mailx"),
        (MAILX[:1], ""),
        # It would take the mail, and keep it until somebody starts Postfix.
        ((*MAILX, "/usr/sbin/postfix"), ""),
        (("/usr/bin/curl",), ""),
        ((*POSTFIX, *SENDMAIL, *EXIM4, *MSMTP, *MAILX), "postfix"),
        ((*SENDMAIL, *EXIM4, *MSMTP, *MAILX), "sendmail"),
        ((*EXIM4, *MSMTP, *MAILX), "exim"),
        ((*MSMTP, *MAILX), "msmtp"),
    ],
)
def test_the_first_that_is_installed_and_runs_is_used(
    machine: Machine, things: Iterable[str], name: str
) -> None:
    """The order is that of the contract; a program alone is not enough."""
    machine.has(things)

    assert chosen(machine.ways()) == name


@pytest.mark.parametrize(
    ("things", "settings", "name"),
    [
        (("/usr/bin/curl",), {}, "curl"),
        (("/usr/bin/curl", *MAILX), {}, "curl"),
        (("/usr/bin/curl", *MSMTP), {}, "msmtp"),
        (("/usr/bin/curl", *POSTFIX), {}, "postfix"),
        (("/usr/bin/curl", *POSTFIX), {"prefer_relay": True}, "curl"),
        (POSTFIX, {"prefer_relay": True}, "postfix"),
        (("/usr/bin/curl", *POSTFIX), {"prefer_relay": True, "host": ""}, "postfix"),
    ],
)
def test_curl_is_fifth_or_first(
    machine: Machine, things: Iterable[str], settings: dict[str, Any], name: str
) -> None:
    """With a relay curl comes after msmtp, or before all where that was asked for."""
    machine.has(things)

    assert chosen(machine.ways(**{"host": "relay.example.com", **settings})) == name


@pytest.mark.parametrize(
    ("things", "method", "name"),
    [
        ((*POSTFIX, *MAILX), "mailx", "mailx"),
        ((*POSTFIX, *MSMTP), "msmtp", "msmtp"),
        # A program that takes mail without a daemon is enough where it is meant.
        (SENDMAIL[:1], "sendmail", "sendmail"),
        (EXIM4[:1], "exim", "exim"),
        # Nothing takes the place of what was meant.
        (POSTFIX[:2], "postfix", ""),
        ((*POSTFIX, "/usr/bin/msmtp"), "msmtp", ""),
        (POSTFIX, "exim", ""),
        (POSTFIX, "curl", ""),
        (POSTFIX, "none", ""),
        (POSTFIX, "memory", "memory"),
        ((), "memory", "memory"),
    ],
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
        assert others == {"no mail is sent: the method is none" if method == "none" else forced}


def test_a_suspended_transport_is_passed_over(machine: Machine) -> None:
    """The next one takes its place, unless it was forced."""
    machine.has((*POSTFIX, *MSMTP))
    ways = machine.ways()

    choice = ways.choose({"postfix"})

    assert choice.transport is not None
    assert choice.transport.name == "msmtp"
    assert choice.why_not["postfix"] == "suspended by operator"
    assert list(choice.why_not) == ["postfix", "sendmail", "exim"]
    assert chosen(ways) == "postfix", "once it is resumed"
    assert chosen(ways, {"postfix", "msmtp"}) == ""
    assert chosen(machine.ways("postfix"), {"postfix"}) == ""


def test_why_each_is_not_used_is_told(machine: Machine) -> None:
    """Of a machine without mail one learns what it lacks."""
    machine.has(("/usr/sbin/postfix", "/usr/sbin/sendmail", "/usr/bin/msmtp", "/usr/sbin/exim4"))
    folder = machine.folder

    why_not = machine.ways().choose().why_not

    assert why_not == {
        "postfix": "Postfix does not run: no process named master",
        "sendmail": "its daemon does not run: no process named sendmail, none by "
        "/var/run/sendmail.pid",
        "exim": "Exim does not run: no process named exim, exim4",
        "msmtp": "not configured: no /etc/msmtprc or /root/.msmtprc or /root/config/msmtp/config "
        "that we may read",
        "curl": f"curl is not installed: {folder}/usr/bin/curl",
        "mailx": f"not installed: no {folder}/usr/bin/mailx or {folder}/bin/mailx that may be run",
    }


def test_a_pid_file_counts_while_its_process_lives(machine: Machine) -> None:
    """A sendmail by another name is known by the file that names it; an old file is nothing."""
    machine.has(("/usr/sbin/sendmail", "/var/run/sendmail.pid"))
    file = machine.folder / "var/run/sendmail.pid"

    for text, name in (
        (f"{machine.process('smtpd')}\n/usr/sbin/sendmail -bd\n", "sendmail"),
        ("99999\n", ""),
        ("", ""),
        ("../../etc\n", ""),
        ("\u0661\n", ""),
    ):
        file.write_text(text)
        assert chosen(machine.ways()) == name


def test_where_processes_are_hidden_a_forced_postfix_is_believed(machine: Machine) -> None:
    """Under hidepid nobody can tell whether Postfix runs: only who forces it knows."""
    machine.has(POSTFIX[:2])
    (machine.folder / "proc/1").rename(machine.folder / "proc/self")

    assert chosen(machine.ways()) == ""
    assert "that we may see" in machine.ways().absence("postfix")
    assert chosen(machine.ways("postfix")) == "postfix"


def test_a_program_may_lie_elsewhere(machine: Machine) -> None:
    """Where it was said where a program is it is nowhere else."""
    machine.has(("/opt/bin/sendmail", "/usr/sbin/sendmail", "sendmail"))
    there = {"sendmail": str(machine.folder / "opt/bin/sendmail")}
    gone = {"sendmail": str(machine.folder / "opt/bin/gone")}

    assert chosen(machine.ways(programs={**there})) == "sendmail"
    assert chosen(machine.ways(programs={**gone})) == ""
    assert str(machine.folder / "opt/bin/gone") in machine.ways(programs=gone).absence("sendmail")


@pytest.mark.parametrize("spoil", ["folder", "mode", "unlink"])
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

    def absence(self) -> str:
        """As it was told."""
        self.looks += 1
        return self._absent

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Never."""
        raise NotSent(Reason.UNAVAILABLE, "unavailable_never", "never")


def test_only_what_may_be_needed_is_looked_at() -> None:
    """Each is asked once however often one chooses, and none behind the one that is used."""
    given = {"exim": Counted("exim", "gone"), "msmtp": Counted("msmtp"), "mailx": Counted("mailx")}
    ways = Ways(MailSettings(), given)

    choices = [ways.choose() for _ in range(3)]

    assert [choice.transport for choice in choices] == [given["msmtp"]] * 3
    assert choices[0].why_not == {"postfix": "not there", "sendmail": "not there", "exim": "gone"}
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
