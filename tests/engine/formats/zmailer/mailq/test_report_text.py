"""The text of MAILQ: what ZMailer wrote, parsed into values and rendered again byte for byte."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.mailq import job_text, queue_view, report_text
from engine.formats.zmailer.mailq.queue_view import JobView, JobWait, ThreadView
from engine.formats.zmailer.mailq.report_text import BadReport, parse_short_time, short_time
from tests.mailq_samples import FOLDER, NOW, answers, client_report, multi_line, read_dump
from tests.store_contents import naming

SESSIONS = ["session-nobody.txt", "session-root.txt"]


def test_a_short_time_has_minutes_only_without_days_or_hours() -> None:
    """Minutes and seconds are written unless both days and hours are."""
    texts = {0: "0s", 59: "59s", 798: "13m18s", 3_600: "1h", 3_725: "1h2m5s", 255_600: "2d23h"}
    texts |= {255_725: "2d23h", 345_666: "4d1m6s", -86_428: "-1d28s"}
    assert {seconds: short_time(seconds) for seconds in texts} == texts


@given(st.integers(-(10**9), 10**9))
def test_a_short_time_is_read_as_it_was_written(seconds: int) -> None:
    """What is read from a short time is written as the same short time."""
    assert short_time(parse_short_time(short_time(seconds))) == short_time(seconds)


def test_a_dump_is_rendered_again_byte_for_byte() -> None:
    """A dump of version 1 is parsed and rendered as it was, and its jobs have their values."""
    view = job_text.parse_dump(read_dump(), NOW)
    assert "\n".join(job_text.dump_lines(view)) + "\n" == read_dump()
    message = "smtp; 466 (No DNS response for host: example.com; h_errno=0)"
    job = JobView("I/F/3276785", "smtp", "example.com", offsets=(309, 166), message=message)
    ends = {"wait": JobWait.INACTIVE, "expires_at": NOW + 255_600, "attempts": 2}
    assert view.jobs[15] == job._replace(**ends)  # type: ignore[arg-type]
    assert (view.jobs[4].wakeup, view.jobs[10].expires_at) == (NOW + 3, NOW - 2 * 86_400 - 66)


@pytest.mark.parametrize("left", [2 * 86_400 + 20 * 3_600 + 37 * 60, 3 * 3_600 + 30])
def test_times_of_a_dump_are_the_same_in_the_next(left: int) -> None:
    """A minute later the text has a minute less, or the same words; the times stay."""
    seen = set()
    for now in (NOW, NOW + 3, NOW + 60):
        moment = now + parse_short_time(short_time(int(NOW + left - now)))
        job = JobView("I/F/1", "smtp", "a.example", wakeup=moment, expires_at=moment)
        seen.add(queue_view.with_steady_times(job, now).expires_at)
    (expiry,) = seen
    assert expiry is not None and abs(expiry - NOW - left) < 3_660


@pytest.mark.parametrize("session", SESSIONS)
def test_thread_reports_of_a_session_are_rendered_again(session: str) -> None:
    """`SHOW QUEUE THREADS` and `SHORT` are parsed and rendered as they were."""
    for kind, with_threads in (("THREADS", True), ("SHORT", False)):
        found = [one for one in multi_line(session, f"SHOW QUEUE {kind}") if one[0][0] != "\t"]
        for lines in (one for one in found if "N=" not in one[0]):
            report = report_text.parse_report(lines, NOW)
            made = report_text.report_lines(*report, NOW, with_threads=with_threads)
            assert [*made] == lines


def thread_of(line: str, number: int = 1) -> ThreadView:
    """The thread of a line of `THREADS2`, which has TABs."""
    channel, host, *words = line.split("\t")
    return report_text.parse_thread(f"    {channel}/{host}/0 {' '.join(words)}", number, NOW)


@pytest.mark.parametrize("session", SESSIONS)
def test_other_answers_of_a_session_are_rendered_again(session: str) -> None:
    """`THREADS2`, `SHOW SNMP` and `SHOW COUNTERS` are parsed and rendered as they were."""
    for lines in multi_line(session, "SHOW QUEUE THREADS2"):
        threads = [thread_of(line) for line in lines]
        assert [report_text.threads2_line(thread, NOW) for thread in threads] == lines
    for lines in multi_line(session, "SHOW SNMP"):
        _, totals = report_text.parse_report(lines, NOW)
        assert report_text.totals_lines(totals, in_seconds=True) == lines
    for lines in multi_line(session, "SHOW COUNTERS"):
        counters = [queue_view.CounterView(*line.split(None, 2)) for line in lines[1:]]
        assert [*report_text.counter_lines(counters)] == lines
        assert (
            queue_view.CounterView("SC.SchedulerTimeserverPID", "20361", "NOT PRESENT!") in counters
        )


def test_jobs_of_a_thread_are_rendered_again() -> None:
    """`SHOW THREAD` is parsed into jobs with all their recipients, and rendered as it was."""
    for command, lines in answers("session-nobody.txt"):
        if not command.startswith("SHOW THREAD ") or len(lines) < 3:
            continue
        channel, host = command.split()[2:]
        thread, jobs = job_text.parse_thread_jobs(lines[1:-1], channel, host, NOW)
        assert thread is not None and [*job_text.thread_lines(thread, jobs, NOW)] == lines[1:-1]
        assert len(jobs) == thread.jobs
        assert sum(len(job.offsets) for job in jobs) == thread.recipients


def test_reports_with_agents_are_rendered_again() -> None:
    """Agents, recounts and reasons are rendered as they were; `never` as an age is unknown."""
    lines = (FOLDER / "client-v2-agents.txt").read_text().split("\n")
    groups, totals = report_text.parse_report(lines, NOW)
    busy = next(group for group in groups if group.channel == "fake").threads[0]
    made = [*report_text.report_lines(groups, totals, NOW)]
    assert made == lines[: len(made)]
    assert [agent.pid for agent in busy.agents] == [31468, 31467, 31465]
    lines = client_report("client-v2.txt", "-Q")
    groups, totals = report_text.parse_report(lines, NOW)
    assert [*report_text.report_lines(groups, totals, NOW)] == lines

    line = f"{THREAD}\tUF=3\tQA=27s".replace("P=", "Kids=1/2\tP=")
    thread = thread_of(line)
    assert thread.agents[0].fed_at is None
    assert thread.kids == (1, 2)
    assert report_text.threads2_line(thread, NOW) == line


LONG = "9" * 400
THREAD = "fake\tslow.test\tN=1\tR=1\tA=0\tP={26320}\tHA={0}s\tFA={never}s\tOF={1}\tS={LARVA}"


@pytest.mark.parametrize("wait", [*JobWait])
@pytest.mark.parametrize("message", ["", "no\rroute (a (b", "expires in (retry in 3s) x"])
def test_each_wait_of_a_job_is_dumped_and_read(wait: JobWait, message: str) -> None:
    """A job in each wait, with a message in brackets or with a CR, is read as it was dumped."""
    job = JobView("A/B/7", "smtp", "a.test", offsets=(10,), message=message, wait=wait)
    if wait is JobWait.RETRY:
        job = job._replace(wakeup=NOW + 4)
    elif wait is JobWait.RUNNING:
        job = job._replace(pid=9, is_next_fed=True)
    view = job_text.parse_dump(read_dump(), NOW)._replace(
        jobs=(job,), channel_keys=(), host_keys=()
    )
    text = "\n".join(job_text.dump_lines(view))
    (found,) = job_text.parse_dump(text, NOW).jobs
    expected = JobWait.INACTIVE if wait is JobWait.UNKNOWN else wait  # version 1 shows no other
    assert found == job._replace(wait=expected)


def test_version_2_shows_fewer_waits() -> None:
    """`SHOW THREAD` has the wait for a time, a channel or a thread, and none for any other."""
    thread = ThreadView("smtp", "a.test", 1, recipients=2, attempts=0, oldest_at=NOW)
    job = JobView("7", "smtp", "a.test", offsets=(10, 20), message="x\ty", wakeup=NOW + 4)
    job = job._replace(attempts=3)
    for wait in JobWait:
        lines = [*job_text.thread_lines(thread, [job._replace(wait=wait)], NOW)]
        (found,) = job_text.parse_thread_jobs(lines, "smtp", "a.test", NOW).jobs
        is_shown = wait in (JobWait.RETRY, JobWait.CHANNEL, JobWait.THREAD)
        assert found == job._replace(wait=wait if is_shown else JobWait.UNKNOWN)


def test_a_bad_dump_has_one_clear_line() -> None:
    """A dump with a wrong line is refused with the number of the line and what was expected."""
    expected = "line 1: 'version zmailer 3.0', expected 'vers"
    for old, new, words in (
        ("version zmailer 1.0", "version zmailer 3.0", expected),
        ("End:\n", "", "'smtp-etrn/*/0', expected NAME: and >KEY"),
        ("1; 169\t", "2; 169\t", "line 3: "),
        ("(retry in 15s", "(retry in 15x", "line 5: "),
        ("\n2:\t", "\n9:\t", "keys counted from 1"),
        (">6>7", ">6>99", "keys from 1 to 17"),
        (">6>7", ">6", "each key in one list"),
        ("Threads:    2", "Threads:    x", "the totals of a group"),
        ("smtp-etrn/*/0\n", "", "a group as CHANNEL/HOST/0"),
        ("N=4 ", "N=x ", "expected a thread"),
        ("QA=2m53s", "QA=2m53", "the numbers N="),
        ("Uptime: 9s", "Uptime: soon", "Uptime: with a time"),
        ("Msgs in", "Mail in", "Msgs in 1 out 0"),
    ):
        with naming(old, new), pytest.raises(BadReport) as caught:
            job_text.parse_dump(read_dump().replace(old, new, 1), NOW)
        assert words in str(caught.value) and "\n" not in str(caught.value)


@given(st.binary(max_size=300), st.integers(0, 3000))
def test_any_bytes_are_a_view_or_a_bad_report(data: bytes, at: int) -> None:
    """A dump with any bytes in it is read or refused, never with another error."""
    dump = read_dump().encode()
    text = report_text.decode(dump[:at] + data + dump[at + len(data) :])
    assert report_text.encode(text) == dump[:at] + data + dump[at + len(data) :]
    try:
        view = job_text.parse_dump(text, NOW)
    except BadReport:
        return
    assert isinstance(view.groups[0], queue_view.GroupView)
    # An unfinished last line is read as it is; a missing newline is not.
    assert [*job_text.dump_lines(view)]


def test_a_line_of_a_thread_is_read_or_refused() -> None:
    """A number of many or other digits, lists of other lengths, too few fields or an unknown wait
    are refused; an error address in the brackets of scheduler(8zm) is read without them."""
    for line in (
        f"smtp\ta\tN=1\tR=1\tA=0\tW={LONG}s\tQA=1s",
        f"smtp\ta\tN=1\tR=1\tA=0\tQA={LONG}d",
        f"smtp\ta\tN={LONG}\tR=1\tA=0\tQA=1s",
        "smtp\ta\tN=\u0661\tR=1\tA=0\tQA=1s",
        "smtp\ta\tN=1\tR=1\tA=0\tP={1}\tHA={1}s\tFA={1,2}s\tOF={1}\tS={IDLE}\tUF=0\tQA=1s",
    ):
        with naming(line), pytest.raises(BadReport, match="line 3"):
            thread_of(line, 3)

    for text, address in (("<a@b>", "a@b"), ("<a@b", "<a@b"), ("a@b>", "a@b>"), ("<>", "")):
        line = f"7\t0\t{text}\t10\t0\t0\t0\t1\tchannel\t"
        (job,) = job_text.parse_thread_jobs([line], "smtp", "h", NOW).jobs
        assert job.error_address == address
    for line in (
        "7\t0\ta\t1\tnan\t0\t0\t1\t\t",
        f"7\t0\ta\t1\t{LONG}\t0\t0\t1\t\t",
        "7",
        "7\t0\ta\tx\t0\t0\t0\t1\t\t",
        "7\t0\ta\t1\t0\t0\t0\t1\tsoon\t",
    ):
        with naming(line), pytest.raises(BadReport, match="line 1"):
            job_text.parse_thread_jobs([line], "smtp", "h", NOW)


@given(st.lists(st.text(max_size=30), max_size=12))
def test_any_text_is_parsed_or_refused(lines: list[str]) -> None:
    """The parsers of all answers read any lines, or raise BadReport."""
    for parse in (
        lambda: report_text.parse_report(lines, NOW),
        lambda: job_text.parse_thread_jobs(["\t".join(lines)], "smtp", "h", NOW),
    ):
        with suppress(BadReport):
            parse()
