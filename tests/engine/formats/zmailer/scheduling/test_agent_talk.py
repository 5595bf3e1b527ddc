"""The scheduler's side of a conversation: lines, credits, states, recorded conversations."""

import ast
import re
import signal
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.scheduling import agent_lines, agent_talk
from engine.formats.zmailer.scheduling.agent_lines import (
    HUNGRY,
    AgentAnswer,
    AgentText,
    JobLine,
    Notary,
    parse_job,
)
from engine.formats.zmailer.scheduling.agent_talk import AgentFeed, AgentState, AgentTalk, Ready
from tests.store_contents import naming

SAMPLES = Path(__file__).parents[4] / "golden" / "zmailer" / "conversations.tar.xz"
"""Recorded between the real scheduler and real agents."""

HOST = b"mx.example"


def sessions() -> dict[str, list[tuple[str, bytes]]]:
    """The conversations of each file and agent: who wrote, and what."""
    by_name: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    with tarfile.open(SAMPLES) as packed:
        for member in packed:
            if (file := packed.extractfile(member)) is None:
                continue
            stem, run = Path(member.name).stem, 0
            for line in file.read().decode().splitlines():
                match = re.match(r"(?:\S+ )?([A-Z>-]+?)(?:=\S+)?(?:\[(\d+)\])?:? (b?'.*')$", line)
                if match and match[1] in ("S>T", "T>S", "S", "T"):
                    data = ast.literal_eval(match[3])
                    data = data if isinstance(data, bytes) else data.encode("latin-1")
                    if stem.startswith("fake") and not data.endswith(b"\n"):
                        data += b"\n"  # recorded without it
                    by_name[f"{stem} {match[2] or run}"].append((match[1][0], data))
    return by_name


SESSIONS = sessions()


def feed_events(talk: AgentTalk[bytes], data: bytes) -> Iterator[object]:
    """Give bytes to a conversation, and yield all events."""
    talk.receive(data)
    while talk.has_lines:
        yield from talk.events(0.0)


def test_all_recorded_agents_are_there() -> None:
    """The recorded conversations are of seven files and 24 processes."""
    names = "errormail fake-fake hold hold-driven-by-python mailbox sm smtp"
    assert {name.split()[0] for name in SESSIONS} == {*names.split()}
    assert len(SESSIONS) == 24


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_conversation_is_one_of_ours(name: str) -> None:
    """Each line of the real agent has a meaning, and each of the real scheduler is sent by ours."""
    talk: AgentTalk[bytes] = AgentTalk(0.0)
    room = 0
    for who, data in SESSIONS[name]:
        if who == "T":
            events = list(feed_events(talk, data))
            assert not any(isinstance(event, AgentText) for event in events), events
            if Ready() in events:
                room = talk.room(overfeed=2)
            continue
        for line in data.splitlines():
            if job := parse_job(line):
                if talk.feed.state is AgentState.IDLE:
                    talk.attach()
                    room = talk.room(overfeed=2)
                assert room > 0
                assert talk.give(job, line, 1.0)
                room -= 1
            elif line == b"#idle":
                talk.finish()
                assert talk.feed.is_free
                talk.idle()
        if not data.strip():
            talk.end(2.0, is_slow_stop=data == b"\n\n")
        assert bytes(talk.output) == data
        talk.output.clear()


def started(*jobs: int) -> AgentTalk[str]:
    """A conversation whose agent has done one job, and got these."""
    talk: AgentTalk[str] = AgentTalk(0.0)
    assert hear(talk, HUNGRY) == [Ready()]
    assert talk.room(150) == 1
    assert talk.give(JobLine("1", HOST), "first", 1.0)
    assert hear(talk, HUNGRY) == [Ready()]
    assert talk.room(len(jobs) - 1) == len(jobs)
    for number in jobs:
        assert talk.give(JobLine(f"A/{number}", HOST), f"job {number}", 3.0)
    talk.output.clear()
    return talk


def hear(talk: AgentTalk[str], data: bytes) -> list[object]:
    """Give bytes to a conversation; the events of one round."""
    talk.receive(data)
    return list(talk.events(4.0))


def test_an_agent_gets_one_job_and_then_overfeed_and_one() -> None:
    """After the start it gets one; then overfeed + 1 whenever all credits are back. Each #idle
    costs a credit; attached before that is back, the agent gets its job after it."""
    talk = started(7, 8, 9)
    assert (talk.feed.state, talk.feed.outstanding, talk.room(150)) == ("STUFF", 3, 0)
    assert [hear(talk, HUNGRY * 2), hear(talk, HUNGRY)] == [[], [Ready()]]
    assert talk.room(150) == 151

    talk = started(7)
    hear(talk, HUNGRY)
    talk.finish()
    talk.idle()
    assert bytes(talk.output) == b"#idle\n"
    talk.attach()
    assert talk.room(0) == 0
    assert (hear(talk, HUNGRY), talk.room(0)) == ([Ready()], 1)


def test_an_answer_counts_only_for_a_job_that_the_agent_has() -> None:
    """An answer or resync for another file is text for the log; so is one for an earlier job."""
    lines = b"7/99\t\tok3 done\n8/99\t\tok3 done\n1/99\t\tok3 done\n#resync 8\n#resync A/7\n"
    answered, *others = hear(started(7), lines)
    assert [type(event) for event in others] == [AgentText] * 3 + [agent_talk.NothingToDo]
    assert isinstance(answered, agent_talk.Answered)
    assert (answered.job, answered.answer.offset) == ("job 7", 99)


def test_a_hungry_too_many_gives_no_credit() -> None:
    """An agent that writes without end gets no more jobs than credits, and is read in rounds."""
    talk = started(7)
    assert hear(talk, HUNGRY * 50) == [Ready()]
    assert talk.give(JobLine("3", HOST), "third", 5.0)
    assert talk.feed.outstanding == 1

    talk = started(7)
    assert len(hear(talk, b"\n" * (agent_talk.LINES_PER_ROUND + 1))) == agent_talk.LINES_PER_ROUND
    assert talk.has_lines
    assert len(list(talk.events(4.0))) == 1
    assert not talk.has_lines


def test_a_job_waits_while_the_socket_is_full_or_its_number_is_in_use() -> None:
    """A job is not given if its answers could be those of another, or if too much is unwritten."""
    talk = started(7)
    assert not talk.give(JobLine("B/7-2", HOST), "same number", 4.0)
    talk.output += b"x" * agent_talk.MAX_OUTPUT_BYTES
    assert not talk.give(JobLine("8", HOST), "full", 4.0)
    assert talk.jobs == ["job 7"]


FED = AgentFeed(0.0, AgentState.STUFFING, 0)


def test_only_an_agent_without_a_job_is_signalled() -> None:
    """Without a job it is stuck after 600 s; after its input ended, SIGTERM, and later SIGKILL."""
    for feed, is_stuck in (
        (AgentFeed(0.0), True),
        (FED, True),
        (FED._replace(outstanding=1), False),
        (FED._replace(state=AgentState.FINISHING), True),
        (FED._replace(state=AgentState.IDLE), False),
        (FED._replace(hungry_at=0.1), False),
    ):
        assert feed.is_stuck(600.0) is is_stuck

    for feed, at, number in (
        (FED, 9999.0, None),
        (FED.after_end(0.0), 599.0, None),
        (FED.after_end(0.0), 600.0, signal.SIGTERM),
        (AgentFeed(0.0).after_end(0.0), 600.0, signal.SIGTERM),
        (FED.after_end(0.0), 1200.0, signal.SIGKILL),
        (FED._replace(outstanding=1).after_end(0.0), 9999.0, None),
    ):
        assert feed.due_signal(at) is number


# ---- lines


LONG = b"12/%b\t\tok" % (b"9" * 99)
FIVE = b"a@b\x01delayed\x014.4.3 (lookup)\x01x-local; 466 (lookup)\x01dns; h"
NOTARY = Notary(b"a@b", b"delayed", b"4.4.3 (lookup)", b"x-local; 466 (lookup)", b"dns; h")


def test_a_line_of_an_agent_has_one_meaning() -> None:
    """A line is an answer with a known status, a signal word, or text for the log."""
    for line, meaning in (
        (b"#hungry", agent_lines.Hungry()),
        (b"#resync S/O/3268942", agent_lines.Resync(3268942)),
        (b"#resync 3311995", agent_lines.Resync(3311995)),
        (b"#resync ../../etc/passwd", AgentText(agent_lines.TEXT, b"#resync ../../etc/passwd")),
        (b"#hungry now", AgentText(agent_lines.TEXT, b"#hungry now")),
        (b"", AgentText(agent_lines.TEXT, b"")),
        (b"12/34\t\tok3 done", AgentAnswer(12, 34, None, b"ok3", b"done")),
        (b"12/34\t\tok3", AgentAnswer(12, 34, None, b"ok3", b"")),
        (b"12/34\t%b\tdeferred x y" % FIVE, AgentAnswer(12, 34, NOTARY, b"deferred", b"x y")),
        (
            b"12/34\t%b\x01smtp[9]\terror \rtwo\tlines" % FIVE,
            AgentAnswer(12, 34, NOTARY._replace(agent=b"smtp[9]"), b"error", b"\rtwo\tlines"),
        ),
        *(
            (text, AgentText(agent_lines.DIAGNOSTIC, text))
            for text in (b"12/34\t\tOK done", b"12/x\t\tok done", b"12/34 ok", LONG)
        ),
    ):
        assert agent_lines.parse_agent_line(line) == meaning


def test_retryat_names_a_time() -> None:
    """The text of retryat begins with seconds from now, or with an absolute time."""
    times = {b"+60 busy": 1060.0, b"5000 busy": 5000.0, b"+60": 1060.0, b"soon": None, b"": None}
    for text, due in times.items():
        assert AgentAnswer(1, 2, None, b"retryat", text).retry_time(1000.0) == due
        assert AgentAnswer(1, 2, None, b"deferred", text).retry_time(1000.0) is None


WORDS = st.binary(max_size=20).map(lambda text: text.translate(None, b"\n\t\0\1"))


@given(
    st.sampled_from(sorted(agent_lines.STATUSES)),
    WORDS,
    st.none() | st.builds(Notary, *[WORDS] * 6),
)
def test_an_answer_is_read_as_written(status: bytes, text: bytes, notary: Notary | None) -> None:
    """Format and parse of an answer are inverse."""
    answer = AgentAnswer(7, 99, notary, status, text)
    assert agent_lines.parse_agent_line(agent_lines.format_answer(answer)[:-1]) == answer


def test_a_job_is_read_as_it_was_written() -> None:
    """Format and parse of a job are inverse."""
    for job in (JobLine("I/F/3276785", b"mx.example"), JobLine("77", None), JobLine("B/9-1", b"")):
        assert agent_lines.parse_job(agent_lines.format_job(job)[:-1]) == job


def test_what_is_no_job_is_not_sent() -> None:
    """A host or path that an agent would read as something else is refused."""
    for job in (("../9", b"h"), ("9", b"a\tb"), ("9", b"a\nb"), ("", b"h"), ("#idle", None)):
        with naming(job), pytest.raises(ValueError, match="no job"):
            agent_lines.format_job(JobLine(*job))


@given(st.lists(st.binary(max_size=40)), st.integers(1, 7))
def test_lines_do_not_depend_on_the_pieces(parts: list[bytes], size: int) -> None:
    """Each line is found, in any pieces; the last without LF is not."""
    data = b"".join(parts)
    buffer, found = agent_lines.LineBuffer(), []
    for at in range(0, len(data), size):
        found += buffer.feed(data[at : at + size])
    assert found == data.split(b"\n")[:-1]


def test_of_a_line_without_an_end_only_the_start_is_kept() -> None:
    """A flood without LF takes bounded memory; the line is cut, the next one is whole."""
    buffer = agent_lines.LineBuffer()
    for _ in range(100):
        assert buffer.feed(b"x" * 10_000) == []
    assert len(buffer._start) == agent_lines.MAX_LINE_BYTES
    assert buffer.feed(b"x\n#hungry\n") == [b"x" * agent_lines.MAX_LINE_BYTES, b"#hungry"]
    assert buffer.feed(b"y" * 3 * agent_lines.MAX_LINE_BYTES + b"\nz\n") == [
        b"y" * agent_lines.MAX_LINE_BYTES,
        b"z",
    ]
