"""Which of our counts are compared with a metrics file."""

from engine.model import State
from engine.monitor.metrics_check import CountSample, Rest, counts_when_written
from engine.monitor.prometheus import Samples
from tests.tables import each

WRITTEN = 1_795_170_000.0
FILE = Samples({}, WRITTEN)
BUSY, IDLE = {State.ACTIVE: 1}, {State.ACTIVE: 0}


@each(
    ("changed", "counted"),
    [
        (WRITTEN + 0.01, [(WRITTEN - 0.5, BUSY)]),  # that run ended before the file
        (WRITTEN + 0.01, [(WRITTEN + 0.5, BUSY), (WRITTEN + 9, BUSY)]),
        (WRITTEN - 0.01, [(WRITTEN + 0.5, BUSY)]),  # counted from folders as they were before it
        (WRITTEN - 0.01, [(WRITTEN - 0.5, BUSY), (WRITTEN + 11, BUSY)]),
    ],
)
def test_no_count_of_a_working_queue_is_of_the_time_of_its_file(
    changed: float, counted: list[CountSample]
) -> None:
    """A worker claims and ends a task between two counts, and right after it wrote the file."""
    assert counts_when_written(FILE, Rest(changed, WRITTEN + 10), counted) is None
    assert counts_when_written(FILE, None, counted) is None


def test_a_count_of_folders_at_rest_is_of_the_time_of_the_file() -> None:
    """While no task moves since before the file was written, the last count was so then."""
    counted = [(WRITTEN + 2, BUSY), (WRITTEN + 599, IDLE)]
    assert counts_when_written(FILE, Rest(WRITTEN - 60, WRITTEN + 600), counted) == IDLE
