"""Read and write Prometheus metrics files (`*.prom`) and the counter files of the real program."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import isfinite

from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.safe import safe_line
from engine.values import NamedTuple

QUEUE_COUNTERS = ("processed_total", "failed_total", "retries_total", "dlq_total")
"""Counters reported in `queue.prom`, by the names of their files."""

_LIMIT = 4 << 20
"""Maximum bytes of a metrics file; real ones have 2 KiB."""

_MOST = 10_000
"""Maximum samples of a metrics file; real ones have some 30."""

NOT_THERE = os.strerror(errno.ENOENT)
"""Why a file that does not exist has no data."""


class BadMetrics(Exception):
    """The file is not text in the Prometheus format; the message says where and why."""


class Samples(NamedTuple):
    """Content of a metrics file, with its modification time."""

    values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
    """Values by metric name and labels, sorted by label name."""
    modified: float
    """Epoch seconds."""

    def get(self, name: str, /, **labels: str) -> float | None:
        """Return the value of a metric with exactly these labels; None if missing, NaN or
        infinite."""
        value = self.values.get((name, tuple(sorted(labels.items()))))
        return value if value is None or isfinite(value) else None


def read_metrics(path: str) -> Samples:
    """Read the metrics file at `path`.

    Raises:
        OSError: it does not exist or cannot be read.
        BadMetrics: it is not text in the Prometheus format."""
    with closing_fd(files.open_file(path)) as fd:
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > _LIMIT:
            raise BadMetrics(f"{safe_line(path)}: expected a file of at most {_LIMIT:,} bytes")
        data = os.read(fd, _LIMIT)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadMetrics(f"{safe_line(path)}: not UTF-8 at byte {error.start}") from error
    return Samples(_parse(text, path), file_stat.st_mtime)


def _parse(text: str, path: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    # Drop HELP and TYPE lines: with them the parser renames a counter that does not end in _total.
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if not _is_comment(line)]
    if len(lines) > _MOST:
        what = f"expected {_MOST:,} samples at most, not {len(lines):,}"
        raise BadMetrics(f"{safe_line(path)}: {what}")
    try:
        return _values("\n".join(line for _, line in lines))
    except _NO_METRICS:
        for number, line in lines:
            try:
                _values(line)
            except _NO_METRICS as error:
                what = f"line {number}: expected NAME{{LABELS}} VALUE, not {line[:60]!r}"
                raise BadMetrics(safe_line(f"{path}: {what}")) from error
        raise


_NO_METRICS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)
"""Exceptions of the parser for text in another format."""


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


_match_simple = partial(
    re.fullmatch,
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{(?:place="[^"\\]*"(?:,(?=[a-z]))?)?(?:([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)")?\})? '
    r"([0-9]{1,15}(?:\.[0-9]{1,15})?)",
)
"""Matches a sample with at most one label, as our own and the real program's files have them,
besides the one of `add_place`, which is dropped."""


def _values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    matches = [_match_simple(line) for line in text.split("\n")]
    simple = [one.groups() for one in matches if one is not None]
    if len(simple) == len(matches):
        return {
            (name, ((label, value),) if label else ()): float(number)
            for name, label, value, number in simple
        }
    from prometheus_client.parser import text_string_to_metric_families  # loads 140 modules

    return {
        (
            sample.name,
            tuple(sorted(label for label in sample.labels.items() if label[0] != "place")),
        ): float(sample.value)
        for family in text_string_to_metric_families(text + "\n")
        for sample in family.samples
    }


def add_place(text: bytes, place: str) -> bytes:
    """A metrics file of ours with a label `place` in each sample; as it is if `place` is ""."""
    if not place:
        return text
    label = f'place="{place}"'.encode()

    def with_place(found: re.Match[bytes]) -> bytes:
        return b"%s{%s}%s" % (found[1], b",".join(filter(None, (label, found[2]))), found[3])

    return re.sub(rb"(?m)^([a-z_]+)(?:\{(.*)\})?( [^ ]+)$", with_place, text)


class QueueGauges(NamedTuple):
    """Gauge values of a queue."""

    pending: int
    working: int
    dead: int
    oldest_age: float = 0
    """Seconds since the oldest pending file was written; 0 if none."""


def render_queue(values: QueueGauges, counters: Mapping[str, int], now: float) -> bytes:
    """Render `queue.prom` after a run at `now`; a counter that is not given is 0."""
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
"""Name, type and help of each metric, in the order and wording of the real program."""


class CounterFiles:
    """Persistent counters: one decimal number per file, guarded by a flock on NAME.lock.

    The real program keeps its totals in the same files under the same locks. A file without a
    number counts as 0 and is reported through `say`.

    Raises, everywhere: OSError, if a file exists and cannot be read, or cannot be written."""

    def __init__(
        self, folder: str, root: str = "", say: Callable[[str], None] = lambda text: None
    ) -> None:
        """`root` is the data folder; no symbolic link below it is followed."""
        self._folder, self._root, self._say = folder, root, say

    def add(self, name: str, n: int = 1) -> int:
        """Add `n` to a counter and return its new value. Adding 0 creates a missing counter."""
        with self._locked(name) as fd:
            before = os.pread(fd, _NUMBER, 0)
            total = self._number(before, name) + n
            _overwrite(fd, b"%d\n" % total, len(before))
        return total

    def put(self, name: str, value: str) -> None:
        """Replace a counter file's content: a time in epoch seconds, or a word."""
        with self._locked(name) as fd:
            _overwrite(fd, f"{safe_line(value)}\n".encode(), os.fstat(fd).st_size)

    @contextmanager
    def _locked(self, name: str) -> Iterator[int]:
        with (
            closing_fd(files.open_dir_path(self._folder, self._root, make=True)) as folder_fd,
            _open_writable(f"{name}.lock", folder_fd) as lock,
            files.Flock(lock),
            _open_writable(name, folder_fd) as fd,
        ):
            yield fd

    def read(self, name: str) -> int:
        """Return the value of a counter; 0 if none."""
        try:
            folder_fd = files.open_dir_path(self._folder, self._root)
        except FileNotFoundError:
            return 0
        with closing_fd(folder_fd):
            try:
                lock_fd = files.open_plain(f"{name}.lock", folder_fd)
                with closing_fd(lock_fd), files.Flock(lock_fd):
                    return self._read(name, folder_fd)
            except (FileNotFoundError, PermissionError):
                return self._read(name, folder_fd)  # no counter yet, or read-only access

    def _read(self, name: str, folder_fd: int) -> int:
        try:
            with closing_fd(files.open_plain(name, folder_fd)) as fd:
                return self._number(os.pread(fd, _NUMBER, 0), name)
        except FileNotFoundError:
            return 0

    def _number(self, data: bytes, name: str) -> int:
        digits = data.strip()
        if digits.isdigit() and len(digits) < 19:
            return int(digits)
        if data:
            self._say(f"{self._folder}/{name}: not a number, counts as 0")
        return 0


_NUMBER = 64
"""Bytes read from a counter file; a longer one is damaged."""


def _open_writable(name: str, dir_fd: int) -> AbstractContextManager[int]:
    return closing_fd(files.open_shared(name, dir_fd, os.O_RDWR, 0o644))


def _overwrite(fd: int, data: bytes, before: int) -> None:
    files.write_all(fd, data)
    if before > len(data):
        files.ftruncate(fd, len(data))
