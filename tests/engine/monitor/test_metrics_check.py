"""Which of our counts are compared with a metrics file."""

from engine.model import State
from engine.monitor.metrics_check import Rest, counts_when_written
from engine.monitor.prometheus import Samples

WRITTEN = 1_795_170_000.0
TEN, NONE = {State.DEAD: 10}, {State.DEAD: 0}


def test_a_count_after_a_change_is_not_of_the_files_time() -> None:
    """A count after a purge contradicts nothing; while folders rest, one of now was so then."""
    file = Samples({}, WRITTEN)
    purged = Rest(WRITTEN + 1, WRITTEN + 2)
    before, after = (WRITTEN + 0.5, TEN), (WRITTEN + 1.5, NONE)

    assert counts_when_written(file, purged, [after]) == []
    assert counts_when_written(file, purged, [before, after]) == [before]

    at_rest = Rest(WRITTEN - 60, WRITTEN + 600)
    counted = (WRITTEN + 599, NONE)

    assert counts_when_written(Samples({}, WRITTEN), at_rest, [counted]) == [(WRITTEN, NONE)]
