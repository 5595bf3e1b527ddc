"""A process that records one moment after another, and names each that is written down."""

import sys
import time
from itertools import count
from pathlib import Path

from engine.monitor.recorder import SAMPLE_INTERVAL_SECONDS, Recorder
from tests.recorder_samples import NOW, a_sample, a_spot


def main(folder: str) -> None:
    """Record moment after moment, as if ten seconds were between two."""
    recorder = Recorder(a_spot(Path(folder)))
    for number in count():
        result = recorder.write(a_sample(NOW + SAMPLE_INTERVAL_SECONDS * number, pending=number))
        sys.stdout.write(f"{number} {result.role} {result.message}\n")
        sys.stdout.flush()
        time.sleep(0.005)  # without a pause at all, SQLite lets no reader have a turn


if __name__ == "__main__":
    main(sys.argv[1])
