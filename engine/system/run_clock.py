"""The record of the time that runs have seen pass at a place: a text file in our own folder."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from math import inf

from engine.seen_time import RunMoment, SeenTime, note_run
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.times import format_duration, format_time

RECORD = "run-times"
"""File name: the last run and the last step of the clock, then one stretch a line."""

WRITE_SECONDS = 60.0
"""Minimum seconds between two writes of an unbroken stretch."""

_MAX_BYTES = 1 << 14


class RunClock:
    """Measures ages by the time that runs have seen pass at one place."""

    def __init__(
        self,
        folder: str,
        root: str,
        log: Callable[[str, str], None],
        make_folder: Callable[[str], None],
    ) -> None:
        """`folder` is our own at the place, made by `make_folder`; below `root` no symbolic link is
        followed. `log` gets level and text of one line when the clock was set."""
        self._folder, self._root = folder, root
        self._log, self._make_folder = log, make_folder
        self._known_times: SeenTime | None = None
        self._written: SeenTime | None = None

    def note(self, now: float) -> SeenTime:
        """Note that a run is at `now`; return what all runs have seen. Raises `OSError`: the record
        cannot be read or, but for a full disk, written."""
        if self._known_times is None:
            self._known_times = self._written = read_seen_time(self._folder, self._root)
        before, self._known_times = self._known_times, note_run(self._known_times, read_moment(now))
        if self._known_times.stepped_at != before.stepped_at:
            step = describe_step(self._known_times)
            self._log("WARN", f"{step}: nothing is deleted or given up by age")
        last = self._written.last if self._written else None
        is_same = self._written and len(self._written.stretches) == len(self._known_times.stretches)
        is_recent = last is not None and 0 <= now - last.at < WRITE_SECONDS
        if not (is_same and is_recent) or self._known_times.stepped_at != before.stepped_at:
            try:
                self._make_folder(self._folder)
                path = f"{self._folder}/{RECORD}"
                files.replace_file(path, _render(self._known_times), files.FILE_MODE, self._root)
            except OSError as error:
                # What is old is deleted also from a full disk: the next run finds the same in the
                # old record.
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            self._written = self._known_times
        return self._known_times

    def read(self, now: float) -> SeenTime:
        """What all runs have seen up to `now`, without a record of this one; raises as `note`."""
        return note_run(read_seen_time(self._folder, self._root), read_moment(now))

    def age(self, moment: float, now: float) -> float:
        """Seconds that runs have seen pass since a moment, up to `now`; 0 if that is not known."""
        try:
            return self.note(now).age(moment)
        except OSError as error:
            self._log("WARN", f"{self._folder}/{RECORD}: {error_text(error)}: ages are not known")
            return 0.0


def describe_step(times: SeenTime) -> str:
    """When and by how much the clock was set."""
    direction = "ahead" if times.step > 0 else "back"
    seconds, moment = abs(times.step), times.stepped_at or 0.0
    return f"clock set {direction} by {format_duration(seconds)} before {format_time(moment)}"


class ClockSteps:
    """The last step of the clock at a place that this process saw, else that of the record."""

    def __init__(
        self,
        read: Callable[[float], SeenTime],
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """`read` is `RunClock.read` of the place."""
        self._read, self._clock, self._uptime = read, clock, uptime
        self._offset = clock() - uptime()
        self._last_step, self._seen_at = "", -inf
        self._recorded, self._read_at = "", -inf

    def describe(self) -> str:
        """The last step of the clock, for `STEP_SHOWN_SECONDS`; "" if none is known. Blocks."""
        now, uptime = self._clock(), self._uptime()
        step, self._offset = now - uptime - self._offset, now - uptime
        if abs(step) >= CLOCK_STEP_SECONDS:
            self._seen_at = uptime
            self._last_step = describe_step(SeenTime(stepped_at=now, step=step))
        if uptime - self._seen_at < STEP_SHOWN_SECONDS:
            return self._last_step
        if uptime - self._read_at >= RECORD_SECONDS:
            self._read_at, self._recorded = uptime, self._read_record(now)
        return self._recorded

    def _read_record(self, now: float) -> str:
        try:
            times = self._read(now)
        except OSError:
            return ""  # doctor reports what cannot be read
        at = times.stepped_at
        return "" if at is None or now - at >= STEP_SHOWN_SECONDS else describe_step(times)


CLOCK_STEP_SECONDS = 60.0
"""A difference between clock and uptime that a correction of the time does not make."""

STEP_SHOWN_SECONDS = 86_400.0
"""Seconds for which a step of the clock is an alert."""

RECORD_SECONDS = 10.0
"""Seconds between two reads of the record."""


def read_moment(now: float) -> RunMoment:
    """This moment by the clock, which the caller has read, and by the uptime of the system."""
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return RunMoment(now, uptime, file.read().strip())
    except (OSError, ValueError, IndexError):
        return RunMoment(now, 0.0, "")


def read_seen_time(folder: str, root: str) -> SeenTime:
    """Read the record; nothing is seen yet if there is none, or it is damaged. Raises `OSError`."""
    try:
        dir_fd = files.open_dir_path(folder, root)
    except FileNotFoundError:
        return SeenTime()
    try:
        fd = files.open_plain(RECORD, dir_fd)
    except FileNotFoundError:
        return SeenTime()
    finally:
        os.close(dir_fd)
    try:
        return _parse(files.read_guarded(fd, _MAX_BYTES)[0].decode("ascii", "replace"))
    except (Refused, ValueError, IndexError):
        return SeenTime()
    finally:
        os.close(fd)


def _render(times: SeenTime) -> bytes:
    assert times.last is not None
    last = f"{times.last.at!r} {times.last.uptime!r} {times.last.boot or '-'}"
    step = f"{times.stepped_at or 0.0!r} {times.step!r}"
    stretches = (f"{start!r} {end!r}" for start, end in times.stretches)
    return "".join(f"{line}\n" for line in (last, step, *stretches)).encode()


def _parse(text: str) -> SeenTime:
    last, step, *stretches = text.splitlines()
    at, uptime, boot = last.split()
    stepped_at, by = map(float, step.split())
    return SeenTime(
        tuple((float(start), float(end)) for start, end in map(str.split, stretches)),
        RunMoment(float(at), float(uptime), boot.removeprefix("-")),
        stepped_at or None,
        by,
    )
