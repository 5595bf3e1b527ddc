"""Random access to a compressed log (gzip, bzip2, xz) by streaming: no more than a window of it is
in memory, and nothing is written to disk.

The first pass finds the size. For gzip it keeps copies of the decompressor's state on the way, so
that a later read does not begin at the start; bzip2 and xz can only begin at one of their streams.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from engine.values import NamedTuple

WINDOW_BYTES = 8 << 20
"""Unpacked bytes that are kept; at most twice as many for a moment."""

MAX_WINDOWS = 2
"""Files of one reader that have a window."""

MAX_STATES = 256
"""Kept states of the decompressor, 44 kB each."""

STATE_BYTES = 4 << 20
"""Unpacked bytes between two states; doubled each time there are `MAX_STATES`."""

_CHUNK = 64 * 1024
_INPUT_SIZES = (64 * 1024, 256, 1)
"""Bytes to unpack at a time: few before a damaged place, to have all that is before it."""

_MODULES = {
    ".gz": ("zlib", "decompressobj", "error"),
    ".bz2": ("bz2", "BZ2Decompressor", ""),
    ".xz": ("lzma", "LZMADecompressor", "LZMAError"),
    ".zst": ("compression.zstd", "ZstdDecompressor", "ZstdError"),  # from Python 3.14 on
}
"""The module that unpacks files with a suffix, its class, and its error."""

SUFFIXES = tuple(_MODULES)
"""Ends of the names of compressed files."""


class _State(NamedTuple):
    """From where unpacking can begin."""

    offset: int = 0
    """Unpacked bytes before it."""
    packed: int = 0
    """Bytes of the file before it."""
    decompressor: Any = None
    """None: a new one."""


class UnpackedFile:
    """The content of one open compressed file."""

    def __init__(self, fd: int, suffix: str, windows: list[UnpackedFile]) -> None:
        """Takes no ownership of `fd`; `windows` are the files of the reader that have a window.
        Raises `OSError`: this Python cannot unpack it."""
        name, maker, error = _MODULES[suffix]
        try:
            module = import_module(name)
        except ImportError:
            raise OSError(f"{suffix} needs the module {name} of Python") from None
        make = getattr(module, maker)
        # 31: with the header and the checksum of gzip.
        self._make: Callable[[], Any] = (lambda: make(31)) if suffix == ".gz" else make
        self._errors = (OSError, EOFError, ValueError, *([getattr(module, error)] if error else []))
        self._fd, self._windows = fd, windows
        self.size = 0
        """Unpacked bytes, as far as known."""
        self.is_whole = False
        """True if the size is known."""
        self.damage = ""
        """Why there may be more that cannot be unpacked; "" if there is not."""
        self._states = [_State()]
        self._apart = STATE_BYTES
        self._inputs = 0
        self._doubtful = 0
        """From this byte of the file on, unpack `_INPUT_SIZES[_inputs]` at a time."""
        self._begin = self._packed = 0
        """Unpacked bytes before the window, and bytes of the file that were unpacked."""
        self._restart(0)

    def read(self, at: int, size: int) -> bytes:
        """Read up to `size` bytes at an offset, no more than `WINDOW_BYTES`."""
        end = min(at + size, self.size)
        if at >= end:
            return b""
        self._keep_window()
        if not self._begin <= at <= self._end:
            # Pages back come next: the window ends here.
            self._restart(min(at, max(0, end - WINDOW_BYTES)))
        while self._end < end and self._unpack():
            pass
        return bytes(self._window[at - self._begin : end - self._begin])

    def measure(self, budget: int) -> int:
        """Go on with the first pass, for about `budget` unpacked bytes; return their number."""
        self._keep_window()
        if self._end < self.size:
            self._restart(self.size)
        before = self.size
        while not self.is_whole and self.size - before < budget:
            if not self._unpack():
                self.is_whole = True
            self.size = max(self.size, self._end)
        return self.size - before

    def drop_window(self) -> None:
        """Free the memory."""
        self._restart(self.size)

    def _keep_window(self) -> None:
        if self in self._windows:
            self._windows.remove(self)
        self._windows.append(self)
        if len(self._windows) > MAX_WINDOWS:
            self._windows.pop(0).drop_window()

    @property
    def _end(self) -> int:
        return self._begin + len(self._window)

    def _restart(self, offset: int) -> None:
        """Unpack from the last state before an offset."""
        state = next(one for one in reversed(self._states) if one.offset <= offset)
        self._begin, self._packed = state.offset, state.packed
        self._window = bytearray()
        self._is_fresh = state.decompressor is None
        self._decompressor = self._make() if self._is_fresh else state.decompressor.copy()

    def _unpack(self) -> bool:
        """Unpack one more chunk into the window; False at the end of what can be unpacked."""
        unpack = self._decompressor
        to_doubtful = self._doubtful - self._packed
        size = min(_INPUT_SIZES[0], to_doubtful) if to_doubtful > 0 else _INPUT_SIZES[self._inputs]
        wants_input = getattr(unpack, "needs_input", True)
        data = os.pread(self._fd, size, self._packed) if wants_input else b""
        try:
            chunk = unpack.decompress(data, _CHUNK)
        except self._errors:
            return self._retry()
        self._window += chunk
        unused = unpack.unused_data if unpack.eof else getattr(unpack, "unconsumed_tail", b"")
        self._packed += len(data) - len(unused)
        if len(self._window) > 2 * WINDOW_BYTES:
            kept = WINDOW_BYTES + _CHUNK  # the last chunk may go beyond what is read
            self._begin = self._end - kept
            del self._window[:-kept]
        if unpack.eof:  # another one may follow
            self._decompressor, self._is_fresh = self._make(), True
        elif wants_input and not data and not chunk:
            if not self._is_fresh:
                self.damage = "ends in the middle"
            return False
        else:
            self._is_fresh = False
        self._keep_state()
        return True

    def _retry(self) -> bool:
        """After an error: unpack again with fewer bytes at a time, to have all before the error."""
        if self._is_fresh and self._packed:
            return False  # behind a complete stream: padding, which gzip(1) ignores too
        if self._inputs + 1 == len(_INPUT_SIZES):
            self.damage = f"damaged at byte {self._packed:,}"
            return False
        self._inputs, self._doubtful, end = self._inputs + 1, self._packed, self._end
        self._restart(end)
        while self._end < end and self._unpack():
            pass
        return True

    def _keep_state(self) -> None:
        unpack, last = self._decompressor, self._states[-1]
        if self._end < last.offset + self._apart or not (self._is_fresh or hasattr(unpack, "copy")):
            return
        state = None if self._is_fresh else unpack.copy()
        self._states.append(_State(self._end, self._packed, state))
        if len(self._states) > MAX_STATES:
            self._apart *= 2
            del self._states[1::2]
