"""What an attempt leaves besides its outcome (`AttemptReport`): its result as JSON, or a trace.

The modules that this needs are imported for stores that keep such reports only.
"""

from __future__ import annotations

from engine.model import AttemptReport
from engine.text.safe import safe_lines
from engine.work.handlers import Failed

MAX_RESULT_CHARACTERS = 64 * 1024
"""A longer result is not kept."""
MAX_TRACE_CHARACTERS = 8 * 1024
"""Of a longer trace the end is kept."""


def report_result(result: object) -> tuple[AttemptReport | None, str]:
    """The report of a task that was done, and why its result is not in it ("" if it is).

    Bytes are the output of a program: a JSON value, or text."""
    import json

    value = _parse_output(result) if isinstance(result, bytes) else result
    if value is None:
        return None, ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    if len(text) > MAX_RESULT_CHARACTERS:
        return None, f"{len(text):,} characters, at most {MAX_RESULT_CHARACTERS:,} are kept"
    return AttemptReport(result=text.encode("utf-8", "replace").decode()), ""


def _parse_output(output: bytes) -> object:
    import json

    text = output.decode("utf-8", "replace").strip()
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def report_failure(failure: BaseException) -> AttemptReport:
    """The report of a failure: its stack trace, but of one that the handler reports itself only
    the text and the details."""
    import traceback

    if isinstance(failure, Failed):
        text = f"{type(failure).__name__}: {failure}"
        if failure.details not in ("", str(failure)):
            text += f"\n{failure.details}"
    else:
        text = "".join(traceback.format_exception(failure))
    return AttemptReport(trace="\n".join(safe_lines(text))[-MAX_TRACE_CHARACTERS:])
