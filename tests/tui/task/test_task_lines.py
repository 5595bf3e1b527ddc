"""The output of handlers as the task screen shows it."""

from engine.logs.kept_output import KeptOutput
from tests.console_places import NOW
from tui.task.task_lines import MAX_OUTPUT_LINES, LogFindings, output_lines


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
