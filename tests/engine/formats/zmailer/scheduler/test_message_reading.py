"""Control files as the scheduler uses them: what is read, recorded, parked and removed."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from engine.formats.zmailer.reports import ReportForm, ReportSettings, SenderReports
from engine.formats.zmailer.scheduler.message_flow import MessageFlow, SchedulerParts
from engine.formats.zmailer.scheduler.message_outcomes import MessageOutcomes, parse_line
from engine.formats.zmailer.scheduler.message_places import Arrivals, MessagePlaces, ScanLimits
from engine.formats.zmailer.scheduler.message_reading import (
    DeliveryTrigger,
    Loaded,
    MessagePostponed,
    Parked,
    QueuedMessageReader,
    Reading,
)
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer, Notary
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, Job
from engine.formats.zmailer.scheduling.ready import AgentSlots
from engine.formats.zmailer.scheduling.table import JobGroup, ThreadTable
from engine.formats.zmailer.scheduling.work import WorkTable
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.control_file import ControlFile
from engine.formats.zmailer.spool.folders import MAX_CONTROL_BYTES, PostofficeFolders
from engine.system import files
from tests.zmailer_spool import FIRST, Spool, dead_pid, recipient, write_lock

NOW = 2_000_000_000.0
CLAUSE = ClauseSettings("smtp/*", "smtp -s")


class SchedulerSpool:
    """A spool with what its scheduler has for files."""

    def __init__(self, root: Path, hash_levels: int = 0) -> None:
        spool = Spool(root).make()
        self.root, self.put, self.lines = root, spool.put, spool.lines
        self.folders = PostofficeFolders(str(root))
        self.places = MessagePlaces(self.folders, hash_levels)
        self.reader = QueuedMessageReader(self.places, self.find)
        self.outcomes = MessageOutcomes(self.places, self.reader, self.report)
        self.reported: list[dict[int, bytes]] = []
        self.refusal: OSError | None = None
        self.logged: list[str] = []
        self.syslogged: list[str] = []

    def find(self, channel: str, host: str) -> ClauseSettings | None:
        """One clause for all but the channel `odd`."""
        return None if channel == "odd" else CLAUSE

    def report(self, opened: object, data: bytes, control: ControlFile, *times: float) -> None:
        """Note the actions of the diagnostics that are to be reported."""
        if self.refusal:
            raise self.refusal
        self.reported.append({at: one.notary[1] for at, one in control.diagnostics.items()})

    def read(self, name: object) -> Reading | None:
        """Read a file."""
        return self.reader.read(str(name), NOW)

    def load(self, name: object) -> Loaded:
        """Read a message that has recipients to do."""
        loaded = self.read(name)
        assert isinstance(loaded, Loaded) and loaded.groups, loaded
        return loaded

    def is_all_done(self, name: object) -> bool:
        """True if no recipient of a message is to do."""
        loaded = self.read(name)
        return isinstance(loaded, Loaded) and not loaded.groups

    def tree(self) -> set[str]:
        """The files of the spool."""
        return {str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()}

    def answer(self, loaded: Loaded, offset: int, words: str, *notary: bytes) -> list[JobGroup]:
        """Record the answer for a recipient."""
        status, _, text = words.encode().partition(b" ")
        known = Notary(*notary) if notary else None
        one = AgentAnswer(loaded.message.number, offset, known, status, text)
        loaded.message.open_jobs = 9
        return [*self.outcomes.record(jobs_of(loaded)[0], one, NOW)]

    def flow(self) -> MessageFlow:
        """The flow of a scheduler, three days after the messages; its log is `logged`."""
        table, unread = ThreadTable(AgentSlots(9), Random(1)), list[str]()
        parts = SchedulerParts(
            table,
            WorkTable(table, AgentSlots(9), Random(1)),
            self.places,
            reader=self.reader,
            outcomes=self.outcomes,
            arrivals=Arrivals(self.folders, table.messages, lambda: 0.0),
            statistics=unread.append,
            log=self.logged.append,
            trace=unread.append,
            syslog=self.syslogged.append,
            clock=lambda: FIRST + 3 * 86400,
            monotonic=lambda: 0.0,
            age=lambda moment, now: now - moment,
        )
        return MessageFlow(parts)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SchedulerSpool]:
    """An empty spool."""
    made = SchedulerSpool(tmp_path)
    yield made
    made.folders.close()


def jobs_of(loaded: Loaded) -> list[Job]:
    """The jobs that a table would make."""
    return [Job(loaded.message, 1, group.offsets) for group in loaded.groups]


# ---- reading


def test_recipients_are_grouped_by_channel_and_host(spool: SchedulerSpool) -> None:
    """A file is a job for each channel and host, with what is to do, and the files' times."""
    done = recipient().replace("r ", "r+", 1)
    data = spool.put(70, recipient(), recipient("local", "x"), done, recipient()).read_bytes()
    loaded = spool.load(70)
    groups = [(one.channel, one.host, len(one.offsets)) for one in loaded.groups]
    assert groups == [("smtp", "mx.example", 2), ("local", "x", 1)]
    assert {data[at : at + 2] for group in loaded.groups for at in group.offsets} == {b"r "}
    message = loaded.message
    assert (message.path, message.modified, message.sender) == ("70", FIRST, "a@b.example")


def test_a_new_file_moves_to_its_hash_folder(tmp_path: Path) -> None:
    """Both files move there, also if a killed process has moved the message file only."""
    for levels in (1, 2):
        spool = SchedulerSpool(tmp_path / str(levels), levels)
        folder = [*names.hash_folders(3276785)][levels]
        path = spool.put(3276785, recipient())
        if levels == 2:
            target = spool.root / "queue" / folder / "3276785"
            target.parent.mkdir(parents=True)
            (spool.root / "queue" / "3276785").rename(target)
        assert spool.load(3276785).message.path == f"{folder}3276785"
        assert not path.exists()
        assert spool.tree() == {f"transport/{folder}3276785", f"queue/{folder}3276785"}
        assert (spool.root / "transport" / folder).stat().st_mode & 0o7777 == 0o2755
        spool.folders.close()


def test_only_locks_of_ended_agents_are_cleared(spool: SchedulerSpool) -> None:
    """If the agent is running, the file is read again after 32 seconds, unchanged."""
    path = spool.put(70, recipient(), recipient())
    before = path.read_bytes()
    (group,) = spool.load(70).groups
    write_lock(path, group.offsets[0], dead_pid())
    assert (spool.load(70).groups, path.read_bytes()) == ((group,), before)
    with subprocess.Popen(["sleep", "60"], cwd=path.parent) as agent:
        write_lock(path, group.offsets[0], agent.pid)
        before = path.read_bytes()
        reading = spool.read(70)
        agent.kill()
    assert reading == MessagePostponed(32.0, f"locked by PID {agent.pid}")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i 70\nr           smtp a b 1", "torn: a line without an end"),
        ("i 71\nr           smtp a b 1\n", "its i line has another name"),
        ("@ 0xff\ni 70\n", "unknown format bits 0xf8"),
        ("l x\n", "no i line"),
        ("i 70\nm\nSubject: x\n", "torn: a block without an end"),
        ("T\n", "a T line without a host"),
        ("@ 7\ni 70\nr           odd a b 1\n", "no clause matches odd/a"),
    ],
)
def test_a_broken_file_is_parked_not_deleted(spool: SchedulerSpool, text: str, why: str) -> None:
    """Unusable for a minute, it moves to the freezer under a free name; its message stays."""
    path = spool.put(70)
    (spool.root / "freezer").mkdir()
    (spool.root / "freezer/70").write_text("an old one")
    path.write_text(text)
    if "clause" not in why:
        loaded = spool.reader.read("70", time.time() + 30)
        assert isinstance(loaded, MessagePostponed) and why in loaded.why
        assert path.exists()
    loaded = spool.read(70)
    assert isinstance(loaded, Parked) and why in loaded.why
    assert (loaded.where, (spool.root / loaded.where).read_text()) == ("freezer/70.1", text)
    assert spool.tree() == {"freezer/70", "freezer/70.1", "queue/70"}


def test_a_huge_file_is_parked_unread(spool: SchedulerSpool) -> None:
    """Above the limit a file is not read; below, all recipients of a thread are one job. One
    without its message, which the original program deletes, is parked as well."""
    path = spool.put(70, *[recipient()] * 2_000)
    assert [len(group.offsets) for group in spool.load(70).groups] == [2_000]
    os.truncate(path, MAX_CONTROL_BYTES + 1)
    parked = spool.read(70)
    assert isinstance(parked, Parked)
    assert "268,435,457 bytes, expected at most 268,435,456" in parked.why
    assert (spool.root / parked.where).stat().st_size == MAX_CONTROL_BYTES + 1
    spool.put(71, recipient())
    (spool.root / "queue/71").unlink()
    assert spool.read(71) == Parked("freezer/71", "no message file: queue/71 is missing")


def test_no_plain_file_is_opened(spool: SchedulerSpool) -> None:
    """A folder, a FIFO, a link and a file with a second name are looked at later, not followed."""
    transport = spool.put(4, recipient()).parent
    (transport / "1").mkdir()
    os.mkfifo(transport / "2")
    (transport / "3").symlink_to("/etc/passwd")
    os.link(transport / "4", spool.root / "other")
    transport.chmod(0o777)
    readings = {name: type(spool.read(name)) for name in "1249"}
    assert readings == dict.fromkeys("124", MessagePostponed) | {"9": type(None)}


def test_what_a_killed_writer_left_is_completed(spool: SchedulerSpool) -> None:
    """A T file is removed, and names a host in lower case. A d line without its end gets one; of a
    failure without its diagnostic the sender is informed all the same."""
    (spool.root / "transport/70-etrn").write_text("T MX.Example [10.0.0.1]\n")
    assert (spool.read("70-etrn"), spool.tree()) == (DeliveryTrigger("mx.example"), set())

    path = spool.put(70, recipient(), more="d 1")
    assert isinstance(spool.read(70), Loaded) and path.read_text().endswith("\nd 1\n")
    path = spool.put(71, recipient().replace("r ", "r-", 1), recipient())
    for _ in range(2):
        spool.load(71)
    (line,) = spool.lines(path, "d")
    assert "\1failed\0015.0.0\1" in line


def test_the_format_is_found_behind_other_fields(tmp_path: Path) -> None:
    """A router may write `v` before the format: the lines have their slots nevertheless."""
    line = b"r~ 26225    smtp mx.example.org ann 99\n"
    path = tmp_path / "7"
    path.write_bytes(b"v ../public/log\n@ 0x00000003\ni 7\n" + line)
    with path.open("rb") as file:
        found = parse_line(file.fileno(), line)
    assert (found.head, found.quad.channel) == (b"~ 26225    ", b"smtp")


# ---- outcomes


def test_which_answers_are_recorded(spool: SchedulerSpool) -> None:
    """ok is recorded if the recipient wants to know of successes, error if of failures, which is
    the default; with ok2, ok3 and error2 that is not the scheduler's duty. Each sets the tag."""
    answers = (
        ("ok sent", "", None),
        ("ok sent", "SUCCESS,FAILURE", b"delivered"),
        ("ok2 sent", "SUCCESS", None),
        ("ok3 sent", "SUCCESS", None),
        ("error no user", "", b"failed"),
        ("error no user", "NEVER", None),
        ("error no user", "SUCCESS", None),
        ("error2 no user", "", None),
    )
    for number, (words, notify, action) in enumerate(answers, 70):
        other = recipient(user="other@d.example") + "N NOTIFY=NEVER\n"
        path = spool.put(number, recipient() + f"N NOTIFY={notify}\n" * bool(notify), other)
        loaded = spool.load(number)
        (first, _) = loaded.groups[0].offsets
        notary = (b"c@d", b"failed", b"4.7.1", b"smtp; 250")
        assert spool.answer(loaded, first, words, *notary) == []
        data, lines = path.read_bytes(), spool.lines(path, "d")
        assert data[first + 1 : first + 2] == (b"-" if words.startswith("error") else b"+")
        assert len(lines) == bool(action)
        for line in lines:
            place, known, text = line.encode().split(b"\t")
            at, headers, dsn = (int(number) for number in place[2:].split(b":")[:3])
            assert (at, data[headers:][:6]) == (first, b"From: ")
            assert data[dsn:].startswith(b"NOTIFY") if notify else dsn == -1
            assert known.split(b"\1")[:2] == [b"c@d", action]
            assert text == words.partition(" ")[2].encode()


def test_expired_recipients_fail(spool: SchedulerSpool) -> None:
    """Each that is to do gets the tag and a diagnostic with 5.4.7 and the last problem."""
    for text in ("", "connection refused"):
        held = recipient().replace("r       ", "r+held  ", 1)
        path = spool.put(70, recipient(), recipient(), held)
        (job,) = jobs_of(spool.load(70))
        job.text = text.encode()
        spool.outcomes.expire(job, FIRST + 3 * 86400)
        assert [line[:8] for line in spool.lines(path)] == ["r-      "] * 2 + ["r+held  "]
        lines, problem = spool.lines(path, "d"), f", problem was:\r{text}" if text else ""
        assert len(lines) == 2
        for line in lines:
            assert "\1failed\0015.4.7\1smtp; 500 (Expired after 3 days)" in line
            assert line.endswith(f"expired after 3 days{problem}")
        assert spool.is_all_done(70)


def test_a_finished_message_is_reported_and_removed(spool: SchedulerSpool) -> None:
    """Its diagnostics are given to the reporter, then both files are removed; if the report cannot
    be written, nothing is. Nor is a message with recipients to do, which an operator released
    meanwhile or which have a lock, nor a file that came in the place of another one while it was
    open."""
    for number in (70, 71):
        spool.put(number, recipient())
    before, loaded = spool.tree(), spool.load(70)
    spool.answer(loaded, loaded.groups[0].offsets[0], "error no user")
    spool.refusal = OSError("full")
    with pytest.raises(OSError, match="full"):
        spool.outcomes.complete(loaded.message, NOW)
    assert spool.tree() == before
    spool.refusal = None
    assert spool.outcomes.complete(loaded.message, NOW) == (1, 1)
    assert spool.reported == [{loaded.groups[0].offsets[0]: b"failed"}]
    assert spool.tree() == {"transport/71", "queue/71"}

    path = spool.put(70, recipient(), recipient())
    before, loaded = spool.tree(), spool.load(70)
    assert spool.outcomes.complete(loaded.message, NOW) is None
    write_lock(path, loaded.groups[0].offsets[0], 1)
    assert spool.outcomes.complete(loaded.message, NOW) is None
    with spool.places.open("70") as opened:
        path.unlink()
        path.write_text("another")
        with pytest.raises(FileNotFoundError):
            spool.places.remove(opened)
    assert spool.tree() == before


def test_an_expired_recipient_is_reported_while_others_wait(spool: SchedulerSpool) -> None:
    """Its sender need not wait for the end of the message, which may take days."""
    path = spool.put(70, recipient(), recipient("local", "x"))
    spool.reader.find_settings = lambda channel, host: CLAUSE._replace(
        expiry=86400 if channel == "smtp" else None
    )
    flow = spool.flow()
    flow.take("70")
    for job in flow.parts.table.messages[70].jobs:
        job.attempts = 1
    flow.step()
    flow.report_failures()
    assert [[*one.values()] for one in spool.reported] == [[b"failed"]]
    assert path.exists()


def test_a_delay_is_reported_once_to_those_who_want_it(spool: SchedulerSpool) -> None:
    """Once also after a restart; it expires later as all others."""
    path = spool.put(70, recipient() + "N NOTIFY=DELAY,FAILURE\n", recipient())
    for _ in range(2):
        (job,) = jobs_of(spool.load(70))
        spool.outcomes.delay(job, FIRST + 7200)
    (line,) = spool.lines(path, "d")
    assert "\1delayed\0014.4.7\1" in line
    assert spool.reported == [{job.offsets[0]: b"delayed"}]
    spool.outcomes.expire(job, NOW)
    assert sum("\1failed\0015.4.7\1" in line for line in spool.lines(path, "d")) == 2


@pytest.mark.parametrize("step", range(8))
def test_a_kill_at_any_step_of_a_failure(spool: SchedulerSpool, step: int) -> None:
    """After a kill at any write a recipient is to do without a diagnostic, or failed with one."""
    path = spool.put(70, recipient(), recipient())
    (job,) = jobs_of(spool.load(70))
    count = 0

    def write(fd: int, data: bytes) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise OSError("killed")
        os.write(fd, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "write_all", write)
        try:
            spool.outcomes.expire(job, NOW)
        except OSError:
            assert step < 3
    loaded = spool.read(70)
    todo = sum(len(group.offsets) for group in loaded.groups) if isinstance(loaded, Loaded) else 0
    failed = [line for line in spool.lines(path) if line[1] == "-"]
    assert len(spool.lines(path, "d")) == len(failed) == 2 - todo


# ---- mutually exclusive recipients


ONE = "X 7 smtp a.example u@a 1\n"


def test_the_next_alternative_is_tried_after_a_failure(spool: SchedulerSpool) -> None:
    """One X recipient of a class is tried at a time; only the failure of the last is reported.
    After a success no other one is to do, also if tags were not written."""
    path = spool.put(70, ONE, ONE.replace("a", "b"), recipient(), ONE.replace("7", "8"))
    loaded = spool.load(70)
    first, other, _ = (at for group in loaded.groups for at in group.offsets)
    (group,) = spool.answer(loaded, first, "error no host")
    assert group.host == "b.exbmple"
    assert spool.answer(loaded, group.offsets[0], "error no host") == []
    assert len(spool.lines(path, "d")) == 1
    assert spool.answer(loaded, other, "ok3 sent") == []
    assert [line[:4] for line in spool.lines(path, "X")] == ["X-7 ", "X-7 ", "X+8 "]

    path = spool.put(70, ONE, ONE, ONE)
    loaded = spool.load(70)
    spool.answer(loaded, loaded.groups[0].offsets[0], "ok3 sent")
    assert [line[:2] for line in spool.lines(path, "X")] == ["X+"] * 3
    path.write_bytes(path.read_bytes().replace(b"X+", b"X ", 2))
    assert spool.is_all_done(70)


def test_an_obsolete_message_is_found_by_both_ids(spool: SchedulerSpool) -> None:
    """x names a spool id or a message-id; the sender must be the same."""
    spool.put(70, recipient(), log_id="old")
    path = spool.put(71, recipient(), log_id="same")
    path.write_text(path.read_text().replace("e a@b.example", "e c@b.example"))
    spool.put(72, recipient(), log_id="new")
    known = [spool.load(number).message for number in (70, 71, 72)]
    spool_id = names.spool_id(70, known[0].modified_ns).encode()
    for texts, found in (
        ((spool_id, b"<old@b.example>"), known[:1]),
        ((b"<same@b.example>", b"<new@b.example>", b"<x>"), []),
    ):
        for text in texts:
            assert spool.outcomes.find_obsolete([text], known[2], known) == found


# ---- arrivals


def test_scans_find_each_file_once_and_the_oldest_first(spool: SchedulerSpool) -> None:
    """Plain files with an unknown number are taken; postponed ones come at their time."""
    for number in (5, 3, 9):
        spool.put(number, recipient())
    spool.put(4, recipient(), folder="A/B/")
    for name in ("70-etrn", ".8", "x", "A1"):
        (spool.root / "transport" / name).write_text("")
    (spool.root / "transport/6").mkdir()
    known = {9, 70}
    arrivals = Arrivals(spool.folders, known, lambda: 0.0)
    arrivals.scan(0)
    assert list(arrivals.batch()) == ["5", "3", "4", "70-etrn"]
    arrivals.scan(9)
    assert list(arrivals.batch()) == []
    assert arrivals.next_due() == 10 + 4 / 32
    for name in ("A/B/4", "9", "../../etc/x"):
        arrivals.notice(name)
    arrivals.postpone("5", 40.0)
    arrivals.scan(20)
    assert list(arrivals.batch()) == ["4", "3", "70-etrn"]
    arrivals.scan(40)
    assert list(arrivals.batch())[:1] == ["5"]


def test_a_scan_ends_at_its_limits(spool: SchedulerSpool) -> None:
    """With -E n,t a scan takes n files at most, or t seconds; the rest comes with later scans."""
    for number in range(1, 8):
        spool.put(number, recipient())
    known, counts = set[int](), []
    arrivals = Arrivals(spool.folders, known, lambda: 0.0, ScanLimits(3, 5))
    for now in (0, 100, 200):
        arrivals.scan(now)
        batch = {int(name) for name in arrivals.batch()}
        known |= batch
        counts.append(len(batch))
    assert counts == [3, 3, 1]
    ticks = iter(range(100))
    slow = Arrivals(spool.folders, set(), lambda: next(ticks), ScanLimits(100, 2))
    slow.scan(0)
    assert (len(slow), slow.is_cut) == (3, True)


# ---- verbose logs, syslog


IDENT = names.spool_id(70, FIRST * 10**9)


def put_verbose(spool: SchedulerSpool, log: str) -> MessageFlow:
    """A message with a verbose log and two recipients, taken."""
    (spool.root / "public").mkdir()
    spool.put(70, recipient(), recipient("local", "x", "y"), more=f"v {log}\n")
    flow = spool.flow()
    flow.take("70")
    return flow


def say(flow: MessageFlow, channel: str, status: bytes, text: bytes) -> None:
    """An agent answers for the recipient of a channel."""
    jobs = flow.parts.table.messages[70].jobs
    (job,) = [j for j in jobs if flow.parts.table.threads[j.thread].key.channel == channel]
    flow.answered(job, AgentAnswer(70, job.offsets[0], None, status, text))


def test_outcomes_are_appended_to_the_verbose_log(spool: SchedulerSpool) -> None:
    """One line for each answer or removal, after what is there; controls are made visible."""
    flow = put_verbose(spool, "../public/v_a")
    log = spool.root / "public" / "v_a"
    log.write_text("router\n")
    say(flow, "smtp", b"deferred", b"450 later \x1b")
    say(flow, "smtp", b"ok3", b"250 \xff")
    flow.kill(flow.parts.table.messages[70])

    first, *lines = log.read_text().splitlines()
    smtp = f"{IDENT} smtp/mx.example c@d.example"
    outcomes = [line.partition(f"{smtp}: ")[2][:8] for line in lines[:2]]
    assert (first, outcomes) == ("router", ["deferred", "ok3 250 "])
    assert lines[2].endswith(f"{IDENT} local/x y: is removed, without a report")
    assert ("\x1b" in log.read_text(), len(lines)) == (False, 3)
    assert spool.logged == ["70: removed without a report, 1 recipients"]
    assert spool.syslogged == [f"{IDENT}: 70 killed"]


def test_ends_and_reports_go_to_syslog(spool: SchedulerSpool) -> None:
    """In the words of ZMailer 3.0.1, with numbers and the form of a report."""
    spool.put(70, recipient())
    flow = spool.flow()
    flow.take("70")
    say(flow, "smtp", b"ok3", b"250 ok")
    assert spool.syslogged == [f"{IDENT}: complete (total 1 recipients, 0 failed)"]
    spool.syslogged.clear()
    reports = SenderReports(
        spool.folders,
        ReportSettings("mta.example"),
        lambda name: ReportForm(),
        form_name=lambda row: "delivery",
        log=spool.syslogged.append,
    )
    spool.outcomes = MessageOutcomes(spool.places, spool.reader, reports.report)
    for number, error_address in ((70, "e a@b.example\n"), (71, "")):
        path = spool.put(number, recipient())
        path.write_text(path.read_text().replace("e a@b.example\n", error_address))
        loaded = spool.load(number)
        spool.answer(loaded, loaded.groups[0].offsets[0], "error no user")
        assert spool.outcomes.complete(loaded.message, NOW) == (1, 1)
    created = f"Created 'delivery' report on spoolid: {IDENT}"
    assert spool.syslogged == [created, "Nothing to report, ignorecount: 1"]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("../public/none", ""),
        ("../public/link", "symbolic link"),
        ("../public/twice", "second hard link"),
        ("../public/fifo", "not a regular file"),
        ("../public/..", "expected ../public/NAME"),
        ("../public/../other", "expected ../public/NAME"),
        ("../other", "expected ../public/NAME"),
        ("70", "expected ../public/NAME"),
        pytest.param("../public/foreign", "owner", marks=pytest.mark.skipif("os.geteuid() != 0")),
    ],
)
def test_no_other_file_is_a_verbose_log(spool: SchedulerSpool, log: str, message: str) -> None:
    """No link, other folder, foreign or missing file: why is logged once, and the mail goes on."""
    flow = put_verbose(spool, log)
    public, other = spool.root / "public", spool.root / "other"
    for path in (other, public / "twice", public / "foreign"):
        path.write_text("as it was")
    (public / "link").symlink_to(other)
    os.link(public / "twice", public / "thrice")
    public.chmod(0o1777)
    os.mkfifo(public / "fifo")
    if os.geteuid() == 0:
        os.chown(public / "foreign", 4321, 4321)
    before = set(public.iterdir())
    say(flow, "smtp", b"deferred", b"later")
    say(flow, "smtp", b"ok3", b"sent")
    assert [message in line for line in spool.logged] == ([True] if message else [])
    assert set(public.iterdir()) == before
    assert {p.read_text() for p in (other, public / "twice", public / "foreign")} == {"as it was"}
    assert len(spool.lines(spool.root / "transport" / "70", "r+")) == 1
