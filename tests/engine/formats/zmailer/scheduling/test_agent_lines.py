"""The lines between a scheduler and its agents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.scheduling import agent_lines
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer, AgentText, JobLine, Notary
from tests.store_contents import naming

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
