"""The output of handlers, and the waiting bar, as the task screen shows them."""

from engine.logs.kept_output import KeptOutput
from engine.model import State
from engine.monitor.run_forecast import ExpectedStart
from engine.waiting_reasons import Circumstances
from tests.console_places import NOW, a_task
from tests.tables import each
from tui.task.task_lines import (
    BACKOFF,
    MAX_OUTPUT_LINES,
    PASSED,
    QUEUED,
    LogFindings,
    TaskDetails,
    output_lines,
    waiting_bar,
)
from tui.task.why_waiting import TaskOutlook
from tui.text.lines import width_of


def shown(findings: LogFindings) -> list[str]:
    """The lines as text, in 30 columns."""
    return ["".join(text for text, *_ in line) for line in output_lines(findings, 30)]


def test_output_is_folded_text_with_its_end() -> None:
    """Bytes that act on a terminal are shown as text; of a long output the last lines, with the
    number of the others; what could not be read has its reason."""
    long = b"\n".join(b"line %d" % n for n in range(1, MAX_OUTPUT_LINES + 6))
    runs = (
        KeptOutput(NOW, "exit status 1", b"\x1b[2J caf\xc3\xa9 \xff " + b"word " * 8),
        KeptOutput(NOW, "timeout after 3 s", long),
    )
    lines = shown(LogFindings(outputs=runs, output_problem="Input/output error"))
    assert lines[0] == " output not read: Input/output error"
    assert "exit status 1" in lines[2]
    assert lines[3:5] == [" \ufffd[2J caf\xe9 \ufffd word word word", " word word word word word "]
    at = next(at for at, line in enumerate(lines) if "timeout after 3 s" in line)
    assert lines[at + 1].startswith(" 5 lines before these")
    assert (lines[at + 2], lines[-1]) == (" line 6", f" line {MAX_OUTPUT_LINES + 5}")
    assert shown(LogFindings()) == []


UNKNOWN = ExpectedStart(None, "lock is stuck")


@each(("due", "token", "start", "width", "parts", "labels"), [
    (NOW - 60, NOW + 10, ExpectedStart(NOW + 840), 80, (1, 1, 25),
     "now 09:42   token :18   runs 09:56"),
    (NOW - 60, NOW + 10, ExpectedStart(NOW + 840), 100, (2, 1, 39),
     "now 09:42   token 09:42:18   runs 09:56"),
    (NOW + 40, 0.0, ExpectedStart(NOW + 40), 78, (25, 5, 1), "now 09:42:08   runs 09:42:48"),
    (NOW + 60, 0.0, ExpectedStart(NOW + 120), 80, (36, 12, 12),
     "now 09:42:08   backoff ends 09:43:08   runs 09:44:08"),
    (NOW + 60, 0.0, ExpectedStart(NOW + 60), 80, (24, 9, 0), "now 09:42:08   runs 09:43:08"),
    (NOW - 60, 0.0, ExpectedStart(NOW + 2 * 86400), 100, (0, 0, 56), "now 09:42   runs in 2d00h"),
    (NOW - 60, 0.0, ExpectedStart(NOW), 100, (), ""),
    (NOW - 60, 0.0, UNKNOWN, 100, (), ""),
])  # fmt: skip
def test_the_bar_shows_what_has_passed_of_the_wait(
    due: float,
    token: float,
    start: ExpectedStart,
    width: int,
    parts: tuple[int, ...],
    labels: str,
) -> None:
    """From its last event to its start, with the end of its backoff or the wait for a token between
    them; no bar if the start is now or not known. It fits the width."""
    task = a_task(1, due=due, created=NOW - 180, attempts=1)
    outlook = TaskOutlook(Circumstances(token_at=token), start=start)
    lines = waiting_bar(
        TaskDetails(task, {state: state for state in State}, outlook=outlook), NOW, width
    )
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    assert tuple(text.count(sign) for sign in (PASSED, BACKOFF, QUEUED) if lines) == parts
    assert text.partition("]")[2].strip() == labels
    assert all(width_of(line) <= width for line in lines)
