"""Root at work on places of another user that are full of traps: nothing outside is touched.

Each command of the parser, and the console, is run as root on a place of each format, of which user
65534 has made what can be made: journals of SQLite that name a file elsewhere, symbolic and hard
links, FIFOs, and folders that a rival process swaps for links while the commands run.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType

import pytest

from tests.examples import IS_DEEP
from tests.pseudo_terminals import ENTERS, console
from tests.rules.syntax_trees import parsed, walked
from tests.sqlite_hot_journals import plant
from tests.unprivileged_user import OTHER_UID
from tests.zmailer_spool import Spool, recipient
from tui.cli import main
from tui.cli.commands import COMMAND_WORDS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has more rights than others")

ROUNDS = 3 if IS_DEEP else 1
"""How often all commands run against the rival; more of them find rarer moments."""

LIMIT_SECONDS = 20
"""For one command: a FIFO must keep none of them waiting."""

SECRET = "what-only-root-may-read"

Words = tuple[str, ...]

READERS = (
    "groups, clusters, workers, kinds, locks, transports, notes, undo, journal, trash list, "
    "doctor, mail status, mail spool list, shell-init, bullmq doctor, zgb doctor, queue list, "
    "queue corrupt list, queue count, queue count-dlq, queue metrics, queue dlq list, "
    "queue status, top, find, info, mta instances, mta ages, zmailer doctor, federation doctor"
)
"""Commands that are run without more words, and change nothing."""

VERBS = "release promote kill bounce expire reroute restore"

COMMANDS: Mapping[Words, tuple[Words, ...]] = {
    **{tuple(name.split()): ((),) for name in READERS.split(", ")},
    ("console",): (("{place}",),),  # without a terminal; with one below
    ("demo",): (("--keep", "{place}/demo"),),
    ("status",): ((), ("--json",)),
    ("completion",): (("bash",), ("--values", "ids", "bash")),
    ("overview",): ((), ("--at", "=-1m")),
    ("log",): (("--level", "DEBUG"),),
    ("destinations",): ((), ("block", "http://a.example", "--apply", "1")),
    ("control",): ((), ("mailQueueEnabled", "--value", "1", "--apply", "1")),
    ("edit",): (("{id}", "--description", "new", "--apply", "1"),),
    ("note",): (("{id}", "seen"), ("{id}", "-")),
    ("retry",): (("--apply", "1"),),
    ("replay",): (("--rate", "now", "--timeout", "1", "--apply", "1"),),
    ("rerun",): (("--apply", "1"),),
    ("purge",): (("--include-all", "--apply", "1"),),
    ("hold",): (("--apply", "1"), ("--apply", "2")),
    **{(verb,): (("--apply", "1"),) for verb in VERBS.split()},
    ("expunge",): (("--state", "trash", "--include-all", "--apply", "1"),),
    ("trash", "restore"): (("{id}",),),
    ("trash", "expunge"): ((),),
    ("trash", "sweep"): ((),),
    ("wait",): (("--timeout", "1"), ("--id", "{id}", "--timeout", "1")),
    ("init",): (("{place}/new",), ("{place}",)),
    ("mail", "send"): (("text",),),
    ("mail", "send-with-retry"): (("text", "a@b.example"),),
    ("mail", "setup"): (("a@b.example", "--dry-run"), ("--show",)),
    ("mail", "test"): (("a@b.example",),),
    ("mail", "spool", "show"): (("letter",),),
    ("mail", "spool", "retry"): (("--all",),),
    ("mail", "suspend"): (("curl",),),
    ("mail", "resume"): (("curl",),),
    **{("mta", name): (("a@b.example",),) for name in ("trail", "why")},
    ("kannader", "init"): (("{place}/new-spool",), ("{place}",)),
    ("kannader", "enqueue"): (("--from", "a@b.example", "--to", "c@d.example", "{mail}"),),
    ("kannader", "work"): (("--until-idle",),),
    ("kannader", "recover"): (("--anyway",),),
    ("zmailer", "check"): (("{place}/.spooldeck/swept",),),
    ("zmailer", "why"): (("smtp/x", "--conf", "{place}/.spooldeck/swept"),),
    ("zmailer", "scheduler"): (("-i", "-P", "{place}", "-f", "{place}/scheduler.conf"),),
    ("zmailer", "agent"): (("hold",), ("smtp", "-l", "{place}/log")),
    ("zmailer", "statistics"): (("{place}/.spooldeck/swept",),),
    ("zmailer", "mailq"): (
        ("{place}/.spooldeck/swept",),
        ("-U", "x", "--password-file", "{place}/.spooldeck/swept", "-p", "{place}/swept"),
    ),
    ("install-units",): (("{place}/units",),),
    ("bullmq", "work"): (("--until-idle",),),
    ("bullmq", "add"): (("mail", "send"),),
    ("bullmq", "schedulers"): ((), ("remove", "mail/daily", "--apply", "1")),
    ("federation", "work"): (("--until-idle",),),
    ("federation", "enqueue"): (("http://a.example", "deliver-post", "--payload", "{{}}"),),
    ("federation", "keys"): ((),),
    ("zgb", "init"): (("{place}/new.db",), ("{place}",)),
    ("zgb", "enqueue"): (("7",),),
    ("zgb", "work"): ((),),
    ("queue", "add"): (("report",), ("--batch", "{place}/.spooldeck/swept")),
    ("queue", "process-next"): ((),),
    ("queue", "work"): (("--until-idle",),),
    ("queue", "recover"): (("--yes",),),
    ("queue", "corrupt", "put-back"): (("trap.task",),),
    ("queue", "dlq", "show"): (("{id}",),),
    ("queue", "dlq", "retry"): (("{id}",),),
    ("queue", "dlq", "retry-all"): ((),),
    ("queue", "dlq", "expunge"): (("0",),),
    ("queue", "dlq", "purge"): (("0",),),
}
"""The words with which each command is run."""


def test_no_command_is_forgotten() -> None:
    """Each command that the parser knows is in the table."""
    assert set(COMMANDS) == {word.path for word in COMMAND_WORDS if word.function}


# ---- what must stay as it is


class Outside:
    """Files and folders of root's, with the names that a place has, to be led to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[Path] = []
        self.secret = folder / "secret"
        folder.mkdir(mode=0o755)  # may be entered: only rights on the files keep others out
        self.put("secret")
        for name in ("queue.log", "mail.log", "queue.lock", "ring.db", "letter/meta", "x/contents"):
            self.put(name)
        for name in ("run", "log", "metrics", "mailspool", "desk/held", "desk/trash", "data/a/b"):
            self.put(f"{name}/{Path(name).name}.log")
        for name in ("journal", "recorder", "notes", "aside", "corrupt", "run", "log", "metrics"):
            self.put(f"desk/{name}/trap.task")
        for name in ("pending", "work", "dlq", ".spooldeck/held", ".spooldeck/trash"):
            self.put(f"queue/{name}/trap.task")
        self.put("inflight/a")
        with closing(sqlite3.connect(folder / "zgb.db")) as db, db:
            db.execute("CREATE TABLE mail_queue (id)")
        (folder / "zgb.db").chmod(0o600)

    def put(self, name: str) -> None:
        """A file that no other user may read."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{SECRET}\n")
        path.chmod(0o600)

    def state(self) -> dict[str, tuple[int | bytes, ...]]:
        """All that a change, or a read, would change; taken before we read it ourselves."""
        by_name: dict[str, tuple[int | bytes, ...]] = {}
        for path in self._paths:
            with suppress(FileNotFoundError):
                at = path.lstat()
                kept = at.st_mode, at.st_uid, at.st_gid, at.st_nlink, at.st_mtime_ns
                by_name[str(path)] = (*kept, at.st_atime_ns)
        for path in self.folder.rglob("*"):
            by_name.setdefault(str(path), ())
            if path.is_file():
                by_name[str(path)] += (path.read_bytes(),)
        return by_name

    def set_access_back(self) -> None:
        """To the year 2000, so that each read is seen, with any delay of the file system."""
        self._paths = [self.folder, *self.folder.rglob("*")]
        for path in self._paths:
            os.utime(path, (946_684_800, 978_307_200))


@contextmanager
def untouched(outside: Outside) -> Iterator[None]:
    """Nothing out there is read, changed, made or removed in the block."""
    outside.set_access_back()
    before = outside.state()
    outside.set_access_back()
    yield
    assert outside.state() == before


# ---- places


class Site:
    """A place of one format, and the other user's traps in it."""

    def __init__(self, home: Path) -> None:
        self.outside = Outside(home / "outside")
        self.place = home / "place"
        self.state_folder = self.place / ".spooldeck"
        self.id = "none"
        self.mail = home / "mail.txt"
        self.mail.write_text("Subject: x\n\nx\n")

    def words(self, command: Words, extra: Words) -> list[str]:
        """One command line."""
        known = {"place": str(self.place), "id": self.id, "mail": str(self.mail)}
        named = [word.format(**known) for word in (*command, *extra)]
        if command[-1] in ("shell-init", "console", "init"):
            return named
        return [*named, "--root", str(self.place)]

    def ours(self) -> Path:
        """The folder that logs, locks and figures are in."""
        return self.state_folder

    def folders(self) -> list[Path]:
        """Those of ours."""
        names = ("run", "log", "metrics", "mailspool")
        return [self.state_folder, *(self.ours() / name for name in names)]

    def swapped(self) -> list[Path]:
        """What a rival swaps for links."""
        return self.folders()

    def link(self, path: Path) -> None:
        """Make a path a link to what has its name outside."""
        name = "desk" if path == self.state_folder else path.name
        path.symlink_to(self.outside.folder / name)

    def trap_files(self) -> None:
        """Links, FIFOs and journals in place of files."""
        ours, state, secret = self.ours(), self.state_folder, self.outside.secret
        for name in ("run", "log", "metrics/counters", "mailspool/letter", "mailspool/other"):
            (ours / name).mkdir(parents=True, exist_ok=True)
        for name in ("held", "trash", "journal", "recorder", "corrupt"):
            (state / name).mkdir(parents=True, exist_ok=True)
        links = [ours / "run/queue.lock", ours / "run/queue.lock.alerted", ours / "log/mail.log"]
        links += [ours / "metrics/mail.prom", ours / "metrics/counters/dlq_total"]
        links += [ours / "mailspool/letter/meta", state / "corrupt/trap.task"]
        links += [state / "swept", state / "notes", state / "held/trap.task"]
        fifos = [ours / "run/queue.buckets", ours / "metrics/queue.prom", ours / "log/delivery.log"]
        fifos += [ours / "mailspool/other/meta", state / ".lock", state / "next-due"]
        fifos += [state / "suspended", state / "recorder/owner"]
        hard = [ours / "log/queue.log", state / "trash/trap.task"]
        hard += [state / "journal/20260101T000000Z-aaaaaaaa.jsonl"]
        for paths, make in (
            (links, lambda path: path.symlink_to(secret)),
            (fifos, os.mkfifo),
            (hard, lambda path: path.hardlink_to(secret)),
        ):
            for path in paths:
                path.unlink(missing_ok=True)
                make(path)
        ring = state / "recorder/ring.db"
        with closing(sqlite3.connect(ring)) as db, db:
            db.execute("CREATE TABLE moment(slot)")
        plant(ring, secret)

    def trap_folders(self) -> None:
        """Links in place of folders."""
        for path in self.folders():
            if not path.parent.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
                path.parent.mkdir(exist_ok=True)
                self.link(path)

    def give(self) -> None:
        """All of it is the other user's, but not what it is linked to."""
        secret = self.outside.secret.stat()
        for path in [*self.place.parent.glob("place*"), *self.place.parent.glob("place*/**/*")]:
            stat = path.lstat()
            if (stat.st_dev, stat.st_ino) != (secret.st_dev, secret.st_ino):
                os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)


class Nftban(Site):
    """A queue of the contract."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.state_folder = self.place / "queue/.spooldeck"
        for words in (("init", str(self.place)), ("queue", "add", "report"), ("queue", "add", "x")):
            assert main([*words, *(() if words[0] == "init" else self._root)]) == 0
        paths = sorted((self.place / "queue/pending").iterdir())
        self.id = paths[0].stem
        paths[0].rename(self.place / "queue/dlq" / paths[0].name)

    @property
    def _root(self) -> Words:
        return "--root", str(self.place)

    def swapped(self) -> list[Path]:
        """The queue as well."""
        return [*self.folders(), self.place / "queue"]

    def ours(self) -> Path:
        """All beside the queue."""
        return self.place

    def trap_files(self) -> None:
        """Tasks, too."""
        super().trap_files()
        for word in ("pending", "work", "dlq"):
            folder = self.place / "queue" / word
            (folder / f"{self.id}1.task").symlink_to(self.outside.secret)
            (folder / f"{self.id}2.task").hardlink_to(self.outside.secret)
            os.mkfifo(folder / f"{self.id}3.task")


class Kannader(Site):
    """A Kannader spool."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        assert main(["kannader", "init", str(self.place)]) == 0
        words = self.words(("kannader", "enqueue"), COMMANDS["kannader", "enqueue"][0])
        assert main(words) == 0
        self.id = sorted(path.name for path in (self.place / "queue").iterdir())[0]

    def swapped(self) -> list[Path]:
        """The folders of the spool as well."""
        return [*self.folders(), *(self.place / name for name in ("queue", "inflight", "data"))]

    def trap_files(self) -> None:
        """Links to elsewhere, and files of a mail."""
        super().trap_files()
        for name, target in {"a": "../../outside/x", "b": str(self.outside.folder)}.items():
            (self.place / "queue" / name).symlink_to(target)
        (self.place / "data/trap").symlink_to(self.outside.folder)
        mail = self.place / "data/mail"
        (mail / "dest").mkdir(parents=True)
        (mail / "contents").symlink_to(self.outside.secret)
        (mail / "dest/metadata").hardlink_to(self.outside.secret)
        os.mkfifo(mail / "dest/schedule")
        (self.place / "queue/c").symlink_to("../data/mail/dest")


class Zgb(Site):
    """A ZGB mail queue, with a journal beside each of its databases."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.place.mkdir()
        self.place = self.place / "zgb.db"
        self.state_folder = Path(f"{self.place}.spooldeck.d")
        self.id = "7-user"
        assert main(["zgb", "init", str(self.place)]) == 0
        with closing(sqlite3.connect(self.place)) as db, db:
            db.execute("INSERT INTO registrations VALUES (7, 0)")
            db.execute("INSERT INTO mail_queue (registration_number, mail_type) VALUES (7, 'user')")
            db.execute("INSERT INTO config VALUES ('mailQueueEnabled', '1')")
        with closing(sqlite3.connect(f"{self.place}.spooldeck")) as db, db:
            db.execute("CREATE TABLE aside (id)")

    def swapped(self) -> list[Path]:
        """The database as well."""
        return [*self.folders(), self.place]

    def trap_files(self) -> None:
        """Journals."""
        super().trap_files()
        plant(self.place, self.outside.secret)
        plant(Path(f"{self.place}.spooldeck"), self.outside.secret)
        (self.place.parent / "mail-queue.log").symlink_to(self.outside.secret)

    def give(self) -> None:
        """With the folder."""
        self.place, db = self.place.parent, self.place
        super().give()
        self.place = db


class Zmailer(Site):
    """A ZMailer spool with a message in a hash folder."""

    id = "1001/91"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        Spool(self.place).make().put(1001, recipient(), recipient(), folder="M/N/")

    def swapped(self) -> list[Path]:
        """The folders of the spool as well."""
        names = ("transport", "transport/M", "queue", ".spooldeck/kept")
        return [*self.folders(), *(self.place / name for name in names)]

    def trap_files(self) -> None:
        """Control files, their messages and the PID of the scheduler."""
        super().trap_files()
        transport, queue = self.place / "transport", self.place / "queue"
        for folder in (transport, queue):
            (folder / "2001").symlink_to(self.outside.secret)
            (folder / "2002").hardlink_to(self.outside.secret)
            os.mkfifo(folder / "2003")
        (queue / "M/N/1001").unlink()
        (queue / "M/N/1001").symlink_to(self.outside.secret)
        (transport / "Q").symlink_to(self.outside.folder)
        (self.place / ".pid.scheduler").symlink_to(self.outside.secret)
        for word in ("transport", "queue"):
            path = self.state_folder / "kept" / word
            path.mkdir(parents=True)
            (path / "1001").symlink_to(self.outside.secret)
            (path / "2002").hardlink_to(self.outside.secret)


SITES: Mapping[str, Callable[[Path], Site]] = {
    "nftban": Nftban,
    "kannader": Kannader,
    "zgb": Zgb,
    "zmailer": Zmailer,
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of root's that all can enter, in which we are at home."""
    folder = Path(tempfile.mkdtemp(prefix="spooldeck-test-"))
    folder.chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("NFTBAN_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NFTBAN_MAIL_METHOD", "none")
    monkeypatch.chdir(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, home: Path) -> Site:
    """A place of each format."""
    return SITES[request.param](home)


# ---- root at work


def carry_out(site: Site, rounds: int) -> None:
    """Every command in one process; fails where one hangs, dies or says what is secret."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    for command, lines in [*COMMANDS.items()] * rounds:
        for extra in lines:
            words = site.words(command, extra)
            signal.signal(signal.SIGALRM, too_long)
            signal.alarm(LIMIT_SECONDS)
            with tempfile.TemporaryFile("w+") as output:
                with redirect_stdout(output), redirect_stderr(output), suppress(SystemExit):
                    main(words)
                signal.alarm(0)
                output.seek(0)
                assert SECRET not in (text := output.read()), (words, text)


@contextmanager
def child(act: Callable[[], object], uid: int = 0) -> Iterator[int]:
    """A process that does something, perhaps as another user; ended with the block."""
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            act()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_as_root(site: Site, rounds: int = 1) -> None:
    """Every command, in a process of its own."""
    with child(lambda: carry_out(site, rounds)) as pid:
        _, status = os.waitpid(pid, 0)
        assert status == 0, "what the process says is above"


@as_root
@pytest.mark.parametrize("traps", ["trap_files", "trap_folders"])
def test_no_command_of_root_reaches_out_of_a_foreign_place(site: Site, traps: str) -> None:
    """Links, FIFOs and journals in a place lead no command anywhere else."""
    getattr(site, traps)()
    site.give()
    with untouched(site.outside):
        run_as_root(site)


def swap(site: Site) -> None:
    """Be the rival: swap folders for links and back, again and again."""
    while True:
        for path in site.swapped():
            away = path.with_name(f"{path.name}.away")
            with suppress(OSError):
                path.rename(away)
            with suppress(OSError):
                site.link(path)
                time.sleep(random.random() / 1000)
                path.unlink()
            with suppress(OSError):
                away.rename(path)


@pytest.mark.deep
@as_root
def test_no_command_of_root_is_led_astray_while_it_runs(site: Site) -> None:
    """Folders that are swapped for links between check and use lead nowhere else."""
    for path in site.folders():
        path.mkdir(parents=True, exist_ok=True)
    site.give()
    with untouched(site.outside), child(lambda: swap(site), OTHER_UID):
        run_as_root(site, ROUNDS)


@as_root
@pytest.mark.parametrize(
    "traps", ["trap_files", pytest.param("trap_folders", marks=pytest.mark.deep)]
)
def test_the_console_of_root_reaches_out_of_no_foreign_place(site: Site, traps: str) -> None:
    """The console opens on a place full of traps, shows nothing secret and ends."""
    getattr(site, traps)()
    site.give()
    with untouched(site.outside):
        environ = {"HOME": os.environ["HOME"], "NFTBAN_MAIL_METHOD": "none"}
        with console(str(site.place), **environ) as terminal:
            terminal.until(lambda: ENTERS in terminal.said)
            terminal.shows("quit")
            terminal.send("q")
            terminal.end()
        assert SECRET.encode() not in terminal.said


# ---- who reaches files by their paths

_CALLS = """
open os.open os.listdir os.scandir os.mkdir os.makedirs os.unlink os.remove os.rename os.replace
os.rmdir os.chown os.chmod os.truncate os.symlink os.link os.utime os.mkfifo
shutil.rmtree shutil.copy shutil.move sqlite3.connect tempfile.mkdtemp tempfile.mkstemp
files.rename files.unlink files.mkdir files.rmdir files.link files.symlink files.utime
"""
NAMED = {*_CALLS.split()}
"""Calls that reach a file by a name; with `dir_fd`, below an open folder, none redirects them."""

FOLDERS = ("dir_fd", "src_dir_fd")

_DEMO = "the demo's own folder; --keep is refused where others can redirect it"

BY_PATH = {
    "our own configuration": "engine/config/queue_config.py",
    "with the owner's rights": "engine/destinations/database.py engine/monitor/recorder.py "
    "engine/formats/zgb/connection.py",
    _DEMO: "engine/demo/demo.py engine/demo/keeper.py engine/formats/kannader/demo.py "
    "engine/formats/nftban/demo.py engine/formats/zgb/demo.py engine/formats/zmailer/demo.py",
    "the one place that resolves paths: walk, open_file": "engine/system/files.py",
    "the limit of inotify, in /proc": "engine/live/shared_watch.py",
    "files of the machine, in folders of root": "engine/locks/lock_holder.py "
    "engine/locks/lock_file.py engine/system/run_clock.py engine/mail/host.py "
    "engine/mail/transports/installed.py engine/system/mounts.py "
    "engine/formats/kannader/permissions.py engine/system/supervisor.py tui/cli/__init__.py "
    "tui/cli/formats/zmailer/scheduler.py engine/formats/bullmq/repeats.py "
    "engine/formats/bullmq/servers.py engine/system/command_errors.py",
    "the name is a descriptor": "engine/operations/journal.py engine/locks/queue_lock.py "
    "engine/mail/send/mail_spool.py engine/formats/kannader/cleanup.py "
    "engine/formats/kannader/enqueue.py engine/formats/nftban/hint.py "
    "engine/formats/zmailer/scheduling/agent_process.py",
    "the password file that the configuration names": "engine/mail/transports/curl.py",
    "the Lua scripts beside this module": "engine/formats/bullmq/connection.py",
    "the Lua scripts of the installed package": "engine/formats/bullmq/package_scripts.py",
    "no file, or a temporary one of SQLite's without a name": "engine/system/sorted_names.py "
    "engine/index/filter_tasks.py engine/formats/zgb/scan.py",
    "a folder of ours that only we can enter (engine.system.temp_dir)": "engine/index/reader.py "
    "engine/index/freeze_plan.py engine/operations/temp_table.py engine/index/writer.py",
    "/var/tmp and /tmp, which are sticky: only our own is entered": "engine/system/temp_dir.py",
    "names of units: engine.system.files opens their files": "tui/cli/setup/find_places.py",
    "texts of our own": "tui/cli/setup/templates.py",
    "texts of our own; a word of the command line is only tested": "tui/cli/completion.py",
    "the mail that the command names: it may be a pipe": "tui/cli/formats/kannader/commands.py",
    "the data that the command line names: it may be a pipe": "tui/cli/plans/edit_note.py",
    "the tasks that the command names: it may be a pipe": "tui/cli/formats/nftban/commands.py",
    "names in work/: their files are not opened": "engine/formats/nftban/queue_folders.py",
    "names beside a missing place: their files are not opened": "engine/formats/known_formats.py",
    "the folder build of our own tree": "tui/packaging/debian.py",
    "a new file in the temporary folder, if not in its own": "tui/terminal/crash_report.py",
}
"""Why no other user can redirect a path, and the modules that reach files by such ones."""


def by_path(tree: ast.Module) -> Iterator[str]:
    """The calls in a module that may resolve a path."""
    for node in walked(tree):
        if not isinstance(node, ast.Call) or (name := dotted(node.func)) not in NAMED:
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        opened = first.split(".")[-1].endswith("fd") or first.startswith("files.open_file(")
        if not opened and not any(word.arg in FOLDERS for word in node.keywords):
            yield f"{name}({first})"


def dotted(function: ast.expr) -> str:
    """A name, or a name in a module; ast.unparse needs much longer."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def modules_with(calls: Callable[[ast.Module], Iterator[str]]) -> set[str]:
    """The modules of the engine and the console that have such calls."""
    root = Path(__file__).parents[2]
    sources = [path for name in ("engine", "tui") for path in (root / name).rglob("*.py")]
    return {str(path.relative_to(root)) for path in sources if any(calls(parsed(path)))}


def test_no_other_module_reaches_files_by_their_paths() -> None:
    """What a place holds is reached through `engine.system.files`, or with its owner's rights."""
    assert modules_with(by_path) == {path for paths in BY_PATH.values() for path in paths.split()}


MODE_CALLS = {"chmod", "chown", "lchown", "lchmod", "utime", "copymode", "copystat", "copy2"}
"""Calls that change what stat(2) shows of a file; fchmod and fchown take a descriptor."""

BY_NAME = {
    "tui/packaging/debian.py": "the folder build of our own tree",
    "engine/formats/kannader/demo.py": _DEMO,
    "engine/formats/zmailer/demo.py": _DEMO,
}


def mode_by_name(tree: ast.Module) -> Iterator[str]:
    """The calls in a module that change mode, owner or times of what has a name then."""
    for node in walked(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        opened = first.split(".")[-1] == "fd" or first.startswith("f'/proc/self/fd/")
        if node.func.attr in MODE_CALLS and not opened:
            yield ast.unparse(node.func)


def test_mode_owner_and_times_are_changed_by_descriptor() -> None:
    """In a folder of another user a name may lead elsewhere at its second use, also with dir_fd."""
    assert modules_with(mode_by_name) == BY_NAME.keys()
    named = ast.parse("os.chmod(name, 0o200, dir_fd=fd); os.utime(fd, at)")
    assert [*mode_by_name(named)] == ["os.chmod"]
