"""A process that records for all it is worth, and says of each moment that it is written down."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from engine.recorder import PERIOD, Recorder
from tests.engine.moments import NOW, a_sample, a_spot


def main(folder: str) -> None:
    """Record moment after moment, as if ten seconds lay between two."""
    recorder = Recorder(a_spot(Path(folder)))
    for number in count():
        told = recorder.write(a_sample(NOW + PERIOD * number, pending=number))
        sys.stdout.write(f"{number} {told.role} {told.words}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
