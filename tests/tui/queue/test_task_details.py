"""Why a row has left its list, in the words of its ghost row."""

from engine.logs.log_line import LogLine
from engine.logs.task_events import read_events
from engine.model import State
from tests.engine.task_builders import NOW, a_row
from tests.tables import each
from tui.queue.task_details import describe_departure

TASK = a_row(1, state=State.ACTIVE)
DONE = f"Task completed: {TASK.id} (job)"


@each(("lines", "words"), [
    ((DONE,), "succeeded 5s ago"),
    ((DONE, "Task completed: other (job)"), "succeeded 5s ago"),
    (("Task completed: other (job)",), "gone, or no longer readable"),
    ((DONE, f"Processing task: {TASK.id} (job)"), "gone, or no longer readable"),
    ((), "gone, or no longer readable"),
])  # fmt: skip
def test_a_task_that_succeeded_is_not_merely_gone(lines: tuple[str, ...], words: str) -> None:
    """The last line of the log about its run says how it ended."""
    log = [LogLine(NOW - 5, "INFO", text, "queue.log") for text in lines]
    events = tuple(read_events(log))
    assert describe_departure(TASK, None, {}, (), NOW, events=events) == words
