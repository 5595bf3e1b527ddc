"""Choice of the mail transport: by installed and running programs, settings and suspensions."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config.mail_config import METHODS, MailSettings
from engine.mail.model import Cause, Unused, absent_because
from engine.mail.transports.installed import System
from engine.mail.transports.registry import MemoryTransport, TransportRegistry
from engine.system import users
from tests.mail_sender import Recorder
from tests.programs import needs_root
from tests.tables import each

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
        """Make files (programs in bin and lib) and processes; `Postfix` holds its lock."""
        for thing in things:
            if thing == "Postfix":
                self.runs_postfix()
            elif not thing.startswith("/"):
                self.process(thing)
            else:
                path = self.file(thing)
                path.write_text(f'#!/bin/sh\necho "$0" >> {self.folder}/run\n')
                path.chmod(0o755 if "bin/" in thing or "lib/" in thing else 0o644)

    def file(self, path: str) -> Path:
        """Where a path of this machine is; its folder is made."""
        file_path = self.folder / path[1:]
        file_path.parent.mkdir(parents=True, exist_ok=True)
        return file_path

    def process(self, name: str, state: str = "S", uid: int = 0, within: str = "") -> None:
        """Start a process. `within` is its PID in a container."""
        self._pid += 1
        text = f"Name:\t{name}\nState:\t{state} (as it is)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        path = self.file(f"/proc/{self._pid}/status")
        path.write_text(f"{text}NSpid:\t{self._pid}{within}\n")

    def runs_postfix(self, queue: str = "/var/spool/postfix") -> Path:
        """Start a Postfix with this queue; returns the path of its lock."""
        path = self.file(f"{queue}/pid/master.pid")
        self._held.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path

    def runs_hidden_postfix(self) -> None:
        """Start a Postfix whose lock is behind a link, which is not opened, not even by root."""
        self.has(POSTFIX[:3])
        lock = self.runs_postfix()
        lock.rename(lock.with_name("elsewhere"))
        lock.symlink_to("elsewhere")

    def stop_postfix(self) -> None:
        """Stop all of them; their files stay."""
        while self._held:
            os.close(self._held.pop())

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_postfix()

    def ways(self, account: users.Account | None = None, **settings: Any) -> TransportRegistry:
        """The ways of sending mail of this machine."""
        environ = {"HOME": "/root", "XDG_CONFIG_HOME": "/root/config"}
        usual = MailSettings(programs={"curl": str(self.folder / "usr/bin/curl")})
        system = System(str(self.folder), environ, account)
        return TransportRegistry(usual._replace(**settings), system=system)

    def chosen(self, account: users.Account | None = None, **settings: Any) -> str:
        """The name of the transport that it uses; "" for none."""
        return chosen(self.ways(account, **settings))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with nothing but its first process."""
    with Machine(tmp_path) as machine:
        yield machine


def chosen(registry: TransportRegistry, suspended: Collection[str] = ()) -> str:
    """The name of the transport that is used; "" for none."""
    transport = registry.choose(suspended).transport
    return transport.name if transport else ""


CURL = ("/usr/bin/curl",)
RELAY: dict[str, Any] = {"host": "relay.example.com"}
FIRST: dict[str, Any] = RELAY | {"prefer_relay": True}


@each(("things", "settings", "name"), [
    ((), {}, ""), (POSTFIX, {}, "postfix"), (POSTFIX[:3], {}, ""),
    ((*POSTFIX[:3], "master"), {}, ""), ((*POSTFIX[:3], "sendmail"), {}, ""),
    (("/usr/sbin/postfix", "Postfix"), {}, ""),
    (("/usr/sbin/postfix", "/usr/lib/sendmail", "Postfix"), {}, "postfix"),
    (("/usr/sbin/sendmail", "Postfix"), {}, "sendmail"), (SENDMAIL, {}, "sendmail"),
    (("/usr/lib/sendmail", "sendmail-mta"), {}, "sendmail"),
    (SENDMAIL[:1], {}, "sendmail"),  # only the program itself knows whether it needs a daemon
    (EXIM4[:2], {}, "sendmail"), (("/usr/sbin/exim", "exim"), {}, "exim"),
    (("/usr/sbin/exim",), {}, ""), (MSMTP, {}, "msmtp"), (MSMTP[:1], {}, ""),
    (("/usr/local/bin/msmtp", "/root/.msmtprc"), {}, "msmtp"),
    (("/usr/bin/msmtp", "/root/config/msmtp/config"), {}, "msmtp"),
    (MAILX, {}, "sendmail"), (MAILX[:1], {}, ""),
    ((*MAILX, *POSTFIX[:3]), {}, ""),  # it would keep the mail until Postfix starts
    (CURL, {}, ""), ((*POSTFIX, *SENDMAIL, *EXIM4, *MSMTP, *MAILX), {}, "postfix"),
    ((*SENDMAIL, *EXIM4, *MSMTP, *MAILX), {}, "sendmail"),
    (("/usr/sbin/exim4", "exim4", *MSMTP), {}, "exim"),
    # With a relay curl comes after msmtp, or first if the settings prefer the relay.
    (CURL, RELAY, "curl"), ((*CURL, *MAILX[:1]), RELAY, "curl"), ((*CURL, *MSMTP), RELAY, "msmtp"),
    ((*CURL, *POSTFIX), RELAY, "postfix"), ((*CURL, *POSTFIX), FIRST, "curl"),
    (POSTFIX, FIRST, "postfix"), ((*CURL, *POSTFIX), {"prefer_relay": True}, "postfix"),
], machine=Machine)  # fmt: skip
def test_the_first_transport_that_is_installed_and_runs_is_used(
    machine: Machine, things: Iterable[str], settings: dict[str, Any], name: str
) -> None:
    """The order is that of the contract; a program without its daemon is not enough."""
    machine.has(things)
    assert machine.chosen(**settings) == name


@each(("things", "method", "name"), [
    ((*POSTFIX, *MAILX), "mailx", "mailx"),
    ((*POSTFIX, *MSMTP), "msmtp", "msmtp"),
    (SENDMAIL[:1], "sendmail", "sendmail"),  # a forced program needs no daemon
    (EXIM4[:1], "exim", "exim"),
    (POSTFIX, "sendmail", "sendmail"),
    (POSTFIX[:3], "sendmail", ""),  # a stopped Postfix would keep the mail
    ((*POSTFIX[:3], "/usr/bin/mailx"), "mailx", ""),
    (POSTFIX[:3], "postfix", ""),  # no other one replaces a forced one
    ((*POSTFIX, "/usr/bin/msmtp"), "msmtp", ""),
    (POSTFIX, "exim", ""),
    (POSTFIX, "curl", ""),
    (POSTFIX, "none", ""),
    (POSTFIX, "memory", "memory"),
    ((), "memory", "memory"),
], machine=Machine)  # fmt: skip
def test_a_forced_method_is_used(
    machine: Machine, things: Iterable[str], method: str, name: str
) -> None:
    """The forced transport or none is used, and each other has that as its reason."""
    machine.has(things)
    registry = machine.ways(method=method)
    assert chosen(registry) == name
    if not name:
        why_not = registry.choose().why_not
        assert set(why_not) == set(METHODS)
        forced = f"another method is forced: {method}"
        why = "no mail is sent: the method is none" if method == "none" else forced
        others = {why for other, why in why_not.items() if other != method}
        assert others == {Unused(Cause.DISABLED, why)}


def test_a_suspended_transport_is_skipped(machine: Machine) -> None:
    """The next transport is used instead, unless the suspended one was forced."""
    machine.has((*POSTFIX, *MSMTP))
    registry = machine.ways()
    choice = registry.choose({"postfix"})
    assert choice.transport is not None and choice.transport.name == "msmtp"
    assert choice.why_not["postfix"].cause is Cause.SUSPENDED
    assert list(choice.why_not) == ["postfix", "sendmail", "exim"]
    assert chosen(registry) == "postfix", "once it is resumed"
    assert chosen(registry, {"postfix", "msmtp"}) == ""
    assert chosen(machine.ways(method="postfix"), {"postfix"}) == ""


def test_busybox_is_no_mail_system(machine: Machine) -> None:
    """The sendmail of busybox has no queue and only forwards to a server on port 25."""
    machine.has(("/bin/busybox", *MSMTP))
    machine.file("/usr/sbin/sendmail").symlink_to(machine.folder / "bin/busybox")
    assert (machine.chosen(), machine.chosen(method="sendmail")) == ("msmtp", "sendmail")


def test_each_unused_transport_has_a_reason(machine: Machine) -> None:
    """On a machine without mail each reason names the missing program, file or process."""
    machine.has((*POSTFIX[:3], "/usr/bin/msmtp", "/usr/sbin/exim4"))
    folder = machine.folder
    no_config = "/etc/msmtprc or /root/.msmtprc or /root/config/msmtp/config"
    no_mailx = f"{folder}/usr/bin/mailx or {folder}/bin/mailx that can be run"
    assert machine.ways().choose().why_not == {
        "postfix": Unused(Cause.STOPPED, "Postfix is not running"),
        "sendmail": Unused(Cause.STOPPED, "belongs to Postfix, which is not running"),
        "exim": Unused(Cause.STOPPED, "Exim is not running: no process named exim, exim4"),
        "msmtp": absent_because(f"not configured: cannot read {no_config}"),
        "curl": absent_because(f"curl is not installed: {folder}/usr/bin/curl"),
        "mailx": absent_because(f"not installed: no {no_mailx}"),
    }


@each(("daemon", "process", "name"), [
    ("exim4", {}, "exim"), ("exim4", {"state": "Z"}, ""), ("exim4", {"state": "X"}, ""),
    ("exim4", {"within": "\t7"}, ""),
    ("master", {}, "postfix"), ("master", {"uid": 1000}, ""), ("master", {"state": "Z"}, ""),
    ("master", {"within": "\t1"}, ""),
], machine=Machine)  # fmt: skip
def test_a_daemon_is_a_live_process_here(
    machine: Machine, daemon: str, process: dict[str, Any], name: str
) -> None:
    """No zombie, none in a container; without the lock of Postfix a `master` of root counts."""
    if daemon == "master":
        machine.runs_hidden_postfix()
    else:
        machine.has(EXIM4[:1])
    machine.process(daemon, **process)
    assert machine.chosen() == name


@each(("setting", "queue"), [
    ("", "/var/spool/postfix"), ("queue_directory = /srv/queue\n", "/srv/queue"),
    ("#queue_directory = /old\nqueue_directory=/a\nqueue_directory =  /srv/b \n", "/srv/b"),
], machine=Machine)  # fmt: skip
def test_postfix_runs_while_its_lock_is_held(machine: Machine, setting: str, queue: str) -> None:
    """Its lock is in the queue that main.cf names; a lock file that is not locked is an old one."""
    machine.has(POSTFIX[:2])
    machine.file("/etc/postfix/main.cf").symlink_to("main.cf.here")
    machine.file("/etc/postfix/main.cf.here").write_text(f"compatibility_level = 3.6\n{setting}")
    lock = machine.runs_postfix(queue)
    assert machine.chosen() == "postfix"
    machine.stop_postfix()
    assert lock.exists() and machine.chosen() == ""


@each("hidden", ["/proc/1", "/proc/1/status", "/proc"], machine=Machine)
def test_with_hidden_processes_only_a_forced_postfix_is_used(machine: Machine, hidden: str) -> None:
    """Without processes (hidepid, no /proc) and lock, Postfix is used only if it is forced."""
    machine.runs_hidden_postfix()
    machine.has(EXIM4[:1])
    machine.file(hidden).rename(machine.folder / "hidden")
    assert machine.ways().absence("postfix").endswith("force the method postfix")
    assert machine.chosen(method="postfix") == "postfix"
    assert machine.chosen(method="sendmail") == "sendmail"
    assert machine.ways().absence("exim").startswith("Exim is not running")


@each(("target", "name"), [
    ("sendmail.postfix", ""), ("sendmail.sendmail", "sendmail"), ("../bin/msmtp", "sendmail"),
    ("../../opt/dma/sendmail", "sendmail"),
], machine=Machine)  # fmt: skip
def test_the_owner_of_sendmail_is_found_by_link(machine: Machine, target: str, name: str) -> None:
    """Beside a stopped Postfix the sendmail of another program is used."""
    machine.has(POSTFIX[:3])
    sendmail = machine.folder / "usr/sbin/sendmail"
    sendmail.rename(machine.file(f"/usr/sbin/{target}"))
    sendmail.symlink_to(target)
    assert machine.chosen(method="sendmail") == name


OWNER = users.Account(4711, 4711, (4711, 4712), "owner", "/home/owner")


@each(("owner", "group", "mode", "above", "name"), [
    (0, 0, 0o600, 0o755, ""), (0, 0, 0o644, 0o755, "msmtp"), (0, 0, 0o644, 0o700, ""),
    (0, 4712, 0o640, 0o755, "msmtp"), (0, 4713, 0o640, 0o755, ""),
    (4711, 0, 0o400, 0o755, "msmtp"), (4711, 0, 0o044, 0o755, ""),
], machine=Machine)  # fmt: skip
def test_a_configuration_must_be_readable_by_the_account(
    machine: Machine, owner: int, group: int, mode: int, above: int, name: str
) -> None:
    """A configuration that the account of the program cannot read does not count."""
    needs_root("to give files away")
    machine.has(MSMTP)
    file = machine.folder / "etc/msmtprc"
    os.chown(file, owner, group)
    file.chmod(mode)
    file.parent.chmod(above)
    assert (machine.chosen(OWNER), machine.chosen()) == (name, "msmtp")


def test_a_program_must_be_executable_by_the_account(machine: Machine) -> None:
    """A program in a folder that only root enters is not installed for another account."""
    needs_root("to do what others may not")
    machine.has(SENDMAIL)
    (machine.folder / "usr/sbin").chmod(0o700)
    assert (machine.chosen(OWNER), machine.chosen()) == ("", "sendmail")


def test_a_configured_program_path_is_the_only_one(machine: Machine) -> None:
    """A program with a configured path is not looked for elsewhere."""
    machine.has(("/opt/bin/sendmail", "/usr/sbin/sendmail", "sendmail"))
    programs = {"sendmail": str(machine.folder / "opt/bin/sendmail")}
    gone = {"sendmail": str(machine.folder / "opt/bin/gone")}
    assert machine.chosen(programs=programs) == "sendmail"
    assert machine.chosen(programs=gone) == ""
    assert gone["sendmail"] in machine.ways(programs=gone).absence("sendmail")


@each("spoil", [
    Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere"),
], machine=Machine)  # fmt: skip
def test_a_program_is_an_executable_file(machine: Machine, spoil: Callable[[Path], None]) -> None:
    """A folder, a file without the mode and a dangling link are no programs."""
    machine.has(MSMTP[1:])
    spoil(machine.file(MSMTP[0]))
    assert machine.chosen() == ""


def test_choosing_runs_nothing_and_changes_nothing(machine: Machine) -> None:
    """The choice runs no program and changes no file."""
    machine.has((*POSTFIX[:2], *EXIM4[:2], *MSMTP[:1], "/usr/bin/mailx", "/usr/bin/curl"))
    before = {path: path.stat().st_mtime_ns for path in machine.folder.rglob("*")}
    for method in ("", *METHODS):
        for name in METHODS:
            machine.ways(method=method, **RELAY).absence(name)
    assert {path: path.stat().st_mtime_ns for path in machine.folder.rglob("*")} == before
    assert not (machine.folder / "run").exists()


def test_the_machine_is_examined_once(machine: Machine) -> None:
    """The same transport is used as long as the process lives; none behind it is examined."""
    machine.has(MSMTP)
    registry = machine.ways()
    first = registry.choose().transport
    machine.has(POSTFIX)
    (machine.folder / "usr/bin/msmtp").unlink()
    assert registry.choose().transport is first
    assert machine.chosen() == "postfix"

    looks: list[str] = []

    class Counted(Recorder):
        def absence(self) -> Unused | None:
            looks.append(self.name)
            return super().absence()

    absent = {"exim": "gone", "msmtp": "", "mailx": ""}
    given = {name: Counted(name=name, absent=why) for name, why in absent.items()}
    others = TransportRegistry(MailSettings(), given)
    choices = [others.choose() for _ in range(3)]
    assert [choice.transport for choice in choices] == [given["msmtp"]] * 3
    whys = {name: why.reason for name, why in choices[0].why_not.items()}
    assert whys == {"postfix": "not there", "sendmail": "not there", "exim": "gone"}
    assert looks == ["exim", "msmtp"]


def test_given_transports_replace_those_of_the_machine() -> None:
    """With given transports those of the machine do not count."""
    memory = MemoryTransport()
    for method, given, used in (
        ("", {"memory": memory}, memory), ("memory", {"memory": memory}, memory),
        ("sendmail", {"memory": memory}, None), ("", {}, None),
    ):  # fmt: skip
        registry = TransportRegistry(MailSettings(method=method), given)
        assert registry.choose().transport is used


def test_a_transport_is_imported_when_it_is_examined() -> None:
    """Making the ways imports no transport; using one imports that one."""
    script = (
        "import sys; from engine.mail.transports.registry import TransportRegistry\n"
        "from engine.config.mail_config import MailSettings\n"
        "ways = TransportRegistry(MailSettings(method='msmtp'))\n"
        "def known(): return sorted(name.rpartition('.')[2] for name in sys.modules "
        "if name.startswith('engine.mail.transports.') and not name.endswith('.registry'))\n"
        "print(known(), 'subprocess' in sys.modules)\n"
        "ways.choose(); print(known(), 'subprocess' in sys.modules)\n"
    )
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['installed'] False\n['installed', 'local_programs'] False\n"
