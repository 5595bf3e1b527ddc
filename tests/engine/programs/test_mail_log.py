"""Mail logs: where they are, rotated files, the reasons and accounts of waiting messages."""

import calendar
import gzip
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from engine.formats.exim import log_lines as exim
from engine.formats.postfix import log_lines as postfix
from engine.programs import mail_log
from engine.programs.mail_log import MailFacts, MailLog, OpenMailLog
from engine.programs.mail_trail import find_trail
from engine.programs.prefix import Prefix
from tests.programs import a_script

A, B = "1xX5UE-0003Hr-2I", "1xX5UE-0003IA-34"
BOX = Prefix("box", ("env", "LC_ALL=C"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the log is."""
    return tmp_path / "mainlog"


def lines(*texts: str) -> bytes:
    """Lines with times of one minute."""
    stamped = (f"2026-11-27 23:36:{second:02} {text}\n" for second, text in enumerate(texts))
    return "".join(stamped).encode()


def defer(ident: str, why: str, code: int = 111) -> str:
    """A line of an attempt that failed for now."""
    return f"{ident} == u@x R=r T=t defer ({code}): {why}"


def append(path: Path, *texts: str) -> None:
    """Append lines to a file."""
    with path.open("ab") as log:
        log.write(lines(*texts))


@pytest.fixture
def facts(path: Path) -> Iterator[MailFacts]:
    """Facts that are read from the log."""
    with closing(MailFacts(exim.mail_log(str(path)))) as made:
        yield made


def reason(facts: MailFacts, id: str) -> str:
    """The text of the last reason; "" if there is none."""
    last = facts.reason(id)
    return "" if last is None else last.text


def facts_of(log: MailLog, most: int = mail_log.FACT_BYTES) -> MailFacts:
    """What the log has at this moment."""
    with closing(MailFacts(log, most)) as facts:
        facts.read_on()
    return facts


def ends(opened: OpenMailLog, number: int) -> list[bytes]:
    """The last bytes of each file, which is closed then."""
    with closing(opened):
        return [file.read(0, 9999)[-number:] for file in opened.files]


def test_the_last_reason_and_account_of_waiting_mail_are_kept(path: Path, facts: MailFacts) -> None:
    """`retry time not reached` replaces no reason of an attempt; a completed message has none."""
    append(
        path,
        f"{A} <= a@b P=esmtpa A=plain:ann@x S=9",
        defer(A, "Connection refused"),
        defer(A, "retry time not reached for any host", -54),
        f"{B} <= a@b U=web P=local",
        defer(B, "retry time not reached for any host", -54),
    )
    assert facts.read_on() == {A, B}
    assert (reason(facts, A), facts.account(A)) == ("Connection refused", "ann@x")
    assert (reason(facts, B), facts.account(B)) == ("retry time not reached for any host", "web")
    append(path, f"{B} ** u@x: Unrouteable address", f"{A} Completed")
    assert facts.read_on() == {A, B}
    assert (reason(facts, A), facts.account(A)) == ("", "")
    assert reason(facts, B) == "Unrouteable address"
    assert facts.read_on() == frozenset()


def test_a_line_that_is_not_complete_is_read_when_it_is(path: Path, facts: MailFacts) -> None:
    """Half a line gives no half reason; those next to it, and garbage, harm none."""
    whole = lines(f"{B} Completed", defer(A, "\x1b[2J\u202e\x00red")) + b"\xff\xfe\n"
    whole += lines(f"{B} <= a@b U=web P=local", f"{B} == u@x: full")
    for length, named in ((30, frozenset()), (60, {B})):
        path.write_bytes(whole[:length])
        assert facts.read_on() == named
        assert reason(facts, A) == ""
    path.write_bytes(whole)
    assert facts.read_on() == {A, B}
    assert (reason(facts, A), facts.account(B)) == ("\ufffd[2J\ufffd\ufffdred", "web")


def test_only_the_end_of_the_log_is_read_over_rotated_files(path: Path) -> None:
    """The limit of bytes goes on in files before; `since` says how far back that is."""
    old = gzip.compress(lines(defer(A, "old reason")))
    (path.parent / "mainlog.2.gz").write_bytes(old)
    append(path.parent / "mainlog.1", defer(B, "rotated"))
    append(path, *(f"{number} filler" for number in range(9)))
    for most, reasons in ((path.stat().st_size, ("", "")), (10_000, ("old reason", "rotated"))):
        facts = facts_of(exim.mail_log(str(path)), most)
        assert (reason(facts, A), reason(facts, B)) == reasons
        assert facts.since is not None


def test_rotation_between_two_reads_loses_no_line(path: Path, facts: MailFacts) -> None:
    """Lines that were added before the rename are read from the rotated file."""
    append(path, defer(A, "one"))
    facts.read_on()
    append(path, defer(A, "two"))
    path.rename(path.parent / "mainlog.1")
    append(path, defer(B, "three"))
    assert facts.read_on() == {A, B}
    assert (reason(facts, A), reason(facts, B)) == ("two", "three")


def test_a_log_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """It is said, and there are no facts; to read the output of a container would never end."""
    (tmp_path / "mainlog").mkdir()
    for log, why in (
        (exim.mail_log(f"{tmp_path}/none/mainlog"), ""),
        (exim.mail_log(f"{tmp_path}/mainlog"), ""),
        (exim.mail_log("/var/log/none/mainlog", Prefix("box", ("false",))), "exit code 1"),
        (postfix.mail_log("/dev/stdout", prefix=BOX), mail_log.NO_LOG),
    ):
        opened, facts = OpenMailLog(log), MailFacts(log)
        assert facts.read_on() == frozenset()
        assert not opened.files
        for problems in (opened.problems, facts.problems, find_trail(log, "u@x").problems):
            assert any(why in problem for problem in problems)


def test_the_first_path_with_a_file_is_opened_with_its_rotated_files(tmp_path: Path) -> None:
    """The earliest file comes first; a number that is missing between others is said."""
    path = tmp_path / "mail.log"
    for suffix, text in (("", "3"), (".1", "2"), (".3", "1")):
        append(tmp_path / f"mail.log{suffix}", text)
    log = exim.mail_log("")._replace(paths=(str(tmp_path / "other"), str(path)), journal=())
    opened = OpenMailLog(log)
    assert ends(opened, 2) == [b"1\n", b"2\n", b"3\n"]
    assert (opened.name, opened.problems) == (str(path), [f"{path}.2: missing"])


def test_the_log_behind_a_prefix_is_copied(path: Path) -> None:
    """With its rotated files, by `ls`, `tail` and `cat`; closed files leave nothing behind."""
    append(path, defer(A, "new"))
    rotated = gzip.compress(lines(f"{B} <= a@b U=web P=local"))
    (path.parent / "mainlog.1.gz").write_bytes(rotated)
    before, log = sorted(path.parent.iterdir()), exim.mail_log(str(path), BOX)
    opened, facts = OpenMailLog(log), MailFacts(log)
    assert facts.read_on() == {A}
    assert (reason(facts, A), opened.problems) == ("new", [])
    assert [b"<=" in text for text in ends(opened, 999)] == [True, False]
    facts.close()
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("variable", "ahead"), [("TZ=JST-9", 9), ("TZ=EST5", -5), ("LC_ALL=C", None)]
)
@pytest.mark.parametrize("head", ["2026-11-27 23:36:00", "Nov 27 23:36:00 mx exim[7]:"])
def test_times_have_a_zone_there(path: Path, variable: str, ahead: float | None, head: str) -> None:
    """Its date(1) has it; our own variable, which a prefix may pass on, is not of that host."""
    path.write_text(f"{head} {defer(A, 'no')}\n")
    offset = time.localtime(path.stat().st_mtime).tm_gmtoff / 3600 if ahead is None else ahead
    log = exim.mail_log(str(path), Prefix("box", ("env", variable)))
    with closing(OpenMailLog(log)) as opened:
        (file,) = opened.files
        utc = file.first_time()
    last = facts_of(log).reason(A)
    assert utc is not None and last is not None and last.when == utc
    there = time.strftime("%d %H:%M:%S", time.gmtime(utc + offset * 3600))
    assert (there, opened.problems) == ("27 23:36:00", [])
    (event,) = find_trail(log, "u@x").events
    assert event.event.when == utc


def test_clocks_that_were_set_since_a_line_are_known(path: Path) -> None:
    """Each line has the offset of its time; of an hour that occurs twice, the later one."""
    year = time.gmtime().tm_year - 1
    sunday = next(d for d in range(31, 24, -1) if calendar.weekday(year, 10, d) == 6)
    times = ("01:30:00", "02:30:00", "02:59:00", "02:01:00", "03:30:00")
    path.write_text("".join(f"{year}-10-{sunday} {at} {defer(A, 'no')}\n" for at in times))
    end = calendar.timegm((year, 10, sunday, 1, 0, 0))
    os.utime(path, (end + 3600.0, end + 3600.0))
    berlin = ("env", "TZ=Europe/Berlin")
    with closing(OpenMailLog(exim.mail_log(str(path), Prefix("box", berlin)))) as opened:
        (file,) = opened.files
        entries = file.lines_between(0, file.size)
        assert [(e.line.when or 0.0) - end for e in entries] == [-5400, -1800, -60, 60, 5400]
        assert opened.problems == []
    case = f'case "$*" in *"-f -"*) exit 1;; esac; exec {" ".join(berlin)} "$@"'
    script = a_script(path.parent / "box", case)
    zone = mail_log.ask_zone(Prefix("box", (script,)), str(path))
    assert zone is not None and zone.changes == ((float("-inf"), 3600.0),)


def test_an_unknown_zone_is_said(path: Path) -> None:
    """Without date(1) there, a trail says so, and a reason has no time."""
    append(path, defer(A, "no"))
    script = a_script(path.parent / "box", 'case "$*" in *date*) exit 1;; esac; exec "$@"')
    log = exim.mail_log(str(path), Prefix("box", (script,)))
    last = facts_of(log).reason(A)
    assert last is not None and (last.text, last.when) == ("no", None)
    assert find_trail(log, "u@x").problems == (f"{path}: {mail_log.NO_ZONE}",)


def test_a_copy_without_space_is_a_problem(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that were copied before are searched; an error of our own closes all of them."""
    append(path, "new")
    append(path.parent / "mainlog.1", "old")
    log, descriptors = exim.mail_log(str(path), BOX), {*Path("/proc/self/fd").iterdir()}
    errors: list[Exception | None] = [None, OSError(28, "no space"), None, RuntimeError()]

    def fail() -> IO[bytes]:
        if error := errors.pop(0):
            raise error
        return TemporaryFile()

    monkeypatch.setattr("engine.programs.mail_log.TemporaryFile", fail)
    with closing(OpenMailLog(log)) as copied:
        assert len(copied.files) == 1
        assert copied.problems == [f"{path}.1: not copied: no space"]
    with pytest.raises(RuntimeError):
        OpenMailLog(log)
    assert {*Path("/proc/self/fd").iterdir()} == descriptors


def test_the_journal_is_read_if_there_is_no_file(tmp_path: Path) -> None:
    """An empty one is a problem, as a user without the right to it sees none."""
    head = "1795822574.000001 mx postfix/smtp[1]: 4D9752DA018: to=<a@b>, relay=none, "
    printed = f"{head}status=deferred (refused)"
    script = a_script(tmp_path / "journal", f'echo "$@" >{tmp_path}/words\necho "{printed}"')
    log = postfix.mail_log("")._replace(paths=(str(tmp_path / "mail.log"),))
    log = log._replace(journal=(script, "-q"))
    with ExitStack() as stack:
        opened = stack.enter_context(closing(OpenMailLog(log, since=1795822000.0)))
        facts = stack.enter_context(closing(MailFacts(log)))
        nothing = stack.enter_context(closing(OpenMailLog(log._replace(journal=("true",)))))
        assert [file.read(0, 999).decode() for file in opened.files] == [f"{printed}\n"]
        assert (tmp_path / "words").read_text().split()[-1] == "--since=@1795822000"
        assert facts.read_on() == {"4D9752DA018"}
        assert reason(facts, "4D9752DA018") == "refused"
        assert (nothing.files, len(nothing.problems)) == ([], 1)


def test_no_more_than_some_bytes_are_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest; the first file that is not read is named."""
    append(path, *(f"{number} new" for number in range(9)))
    for number, text, end in ((1, "old", b"\n"), (2, "older", b"")):
        packed = gzip.compress(lines(text)) + end
        (path.parent / f"mainlog.{number}.gz").write_bytes(packed)
    monkeypatch.setattr(mail_log, "COPIED_BYTES", path.stat().st_size + 1)
    opened = OpenMailLog(exim.mail_log(str(path), BOX))
    assert ends(opened, 5) == [b" old\n", b" new\n"]
    assert [problem.partition(":")[0] for problem in opened.problems] == [f"{path}.2.gz"]
