"""Numbers that others scrape: counters kept beside the real program's, `*.prom` files both ways."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from engine.system import files
from engine.text.safe import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

QUEUE_COUNTERS = ("processed_total", "failed_total", "retries_total", "dlq_total")
"""The counters of which `queue.prom` tells, by the names of their files."""

_LIMIT = 4 << 20
"""Bytes of a metrics file that are read; the real ones have 2 KiB."""

_MOST = 10_000
"""Samples of a metrics file that are read; the real ones have some 30."""


class BadMetrics(Exception):
    """A file that is no text in the Prometheus format; the message says where and what."""


class Samples(NamedTuple):
    """What a metrics file said, and when it was written."""

    values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
    """By the metric's name and its labels in the order of their names."""
    modified: float
    """Epoch seconds."""

    def get(self, name: str, /, **labels: str) -> float | None:
        """The value of one metric with exactly these labels; None when the file has none.

        The format knows NaN and infinity as well; neither says anything.
        """
        value = self.values.get((name, tuple(sorted(labels.items()))))
        return value if value is None or isfinite(value) else None


def read(path: str) -> Samples:
    """What the metrics file at `path` says now.

    Raises:
        OSError: it is not there, or cannot be read.
        BadMetrics: it is something else than text in the Prometheus format.
    """
    fd = files.open_file(path)
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > _LIMIT:
            raise BadMetrics(f"{shown(path)}: expected a file of at most {_LIMIT:,} bytes")
        data = os.read(fd, _LIMIT)
    finally:
        os.close(fd)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadMetrics(f"{shown(path)}: not UTF-8 at byte {error.start}") from error
    return Samples(_parse(text, path), seen.st_mtime)


def _parse(text: str, path: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    # HELP and TYPE are left out: the parser renames a counter that does not end in _total.
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if not _says_nothing(line)]
    if len(lines) > _MOST:
        raise BadMetrics(f"{shown(path)}: expected {_MOST:,} samples at most, not {len(lines):,}")
    try:
        return _values("\n".join(line for _, line in lines))
    except _NO_METRICS:
        for number, line in lines:
            try:
                _values(line)
            except _NO_METRICS as error:
                what = f"line {number}: expected NAME{{LABELS}} VALUE, not {line[:60]!r}"
                raise BadMetrics(shown(f"{path}: {what}")) from error
        raise


_NO_METRICS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)
"""What the parser raises over text in another format."""


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    from prometheus_client.parser import text_string_to_metric_families  # loads 140 modules

    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(text + "\n")
        for sample in family.samples
    }


class QueueGauges(NamedTuple):
    """How a queue stands at one moment."""

    pending: int
    working: int
    dead: int
    oldest_age: float = 0
    """Seconds since the oldest pending file was written; 0 when there is none."""


def render_queue(values: QueueGauges, counters: Mapping[str, int], now: float) -> bytes:
    """The text of `queue.prom` after a run at `now`; a counter that is not given is 0."""
    numbers = [
        values.pending,
        values.working,
        values.dead,
        max(0, int(values.oldest_age)),
        *(counters.get(name, 0) for name in QUEUE_COUNTERS),
        int(now),
    ]
    blocks = zip(_QUEUE_METRICS, numbers, strict=True)
    return "\n".join(_block(*metric, number) for metric, number in blocks).encode("ascii")


def _block(name: str, kind: str, summary: str, value: int) -> str:
    name = f"nftban_queue_{name}"
    return f"# HELP {name} {summary}\n# TYPE {name} {kind}\n{name} {value}\n"


_QUEUE_METRICS = (
    ("tasks_pending", "gauge", "Number of tasks waiting to be processed"),
    ("tasks_working", "gauge", "Number of tasks currently being processed"),
    ("tasks_dlq", "gauge", "Number of tasks in dead-letter queue"),
    ("oldest_pending_age_seconds", "gauge", "Age of oldest pending task in seconds"),
    ("tasks_processed_total", "counter", "Total tasks successfully processed"),
    ("tasks_failed_total", "counter", "Total task processing failures"),
    ("task_retries_total", "counter", "Total task retry attempts"),
    ("dlq_total", "counter", "Total tasks moved to dead-letter queue"),
    ("last_run_timestamp", "gauge", "Unix timestamp of last queue processor run"),
)
"""Name, type and help of each metric, in the order and the words of the real program."""


class Counters:
    """Running totals: in each file a decimal, guarded by the flock of NAME.lock.

    The real program keeps its totals in the same files under the same locks. What is no number
    counts as 0, and `say` is told.
    """

    def __init__(
        self, folder: str, root: str = "", say: Callable[[str], None] = lambda text: None
    ) -> None:
        """`root` is the data folder below which no symbolic link is followed."""
        self._folder, self._root, self._say = folder, root, say

    def add(self, name: str, n: int = 1) -> int:
        """Raise a counter; answers with its new value. Adding 0 makes one that is not there.

        Raises:
            OSError: it cannot be written.
        """
        with self._locked(name) as fd:
            before = os.pread(fd, _NUMBER, 0)
            total = self._number(before, name) + n
            _overwrite(fd, b"%d\n" % total, len(before))
        return total

    def put(self, name: str, value: str) -> None:
        """Have a file say this from now on: a moment in epoch seconds, or a word.

        Raises:
            OSError: it cannot be written.
        """
        with self._locked(name) as fd:
            _overwrite(fd, f"{shown(value)}\n".encode(), os.fstat(fd).st_size)

    @contextmanager
    def _locked(self, name: str) -> Iterator[int]:
        with (
            _closing(files.reach(self._folder, self._root, make=True)) as here,
            _own(f"{name}.lock", here) as lock,
            files.Flock(lock),
            _own(name, here) as fd,
        ):
            yield fd

    def read(self, name: str) -> int:
        """The value of a counter; 0 when there is none.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            here = files.reach(self._folder, self._root)
        except FileNotFoundError:
            return 0
        with _closing(here):
            try:
                with _closing(files.open_plain(f"{name}.lock", here)) as lock, files.Flock(lock):
                    return self._read(name, here)
            except (FileNotFoundError, PermissionError):
                return self._read(name, here)  # nobody has counted yet, or we may only read

    def _read(self, name: str, here: int) -> int:
        try:
            with _closing(files.open_plain(name, here)) as fd:
                return self._number(os.pread(fd, _NUMBER, 0), name)
        except FileNotFoundError:
            return 0

    def _number(self, data: bytes, name: str) -> int:
        digits = data.strip()
        if digits.isdigit() and len(digits) < 19:
            return int(digits)
        if data:
            self._say(f"{self._folder}/{name}: no number, counts as 0")
        return 0


_NUMBER = 64
"""Bytes of a counter file that are read; a longer one is damaged."""


def _own(name: str, dir_fd: int) -> AbstractContextManager[int]:
    """A file to write to, made if need be."""
    return _closing(files.open_shared(name, dir_fd, os.O_RDWR, 0o644))


def _overwrite(fd: int, data: bytes, before: int) -> None:
    files.write_all(fd, data)
    if before > len(data):
        files.ftruncate(fd, len(data))


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
