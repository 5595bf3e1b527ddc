"""Compressed logs read at any offset: each format, several streams, damage, bounded memory."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.logs import unpacked_file
from engine.logs.unpacked_file import UnpackedFile
from tests.examples import examples

PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress}
PACKERS[".xz"] = lzma.compress
TEXT = b"".join(b"%06d a line of a log, %x\n" % (n, n * 7919) for n in range(9000))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, states and chunks are small, so that a short file has many."""
    monkeypatch.setattr(unpacked_file, "WINDOW_BYTES", 20_000)
    monkeypatch.setattr(unpacked_file, "STATE_BYTES", 10_000)
    monkeypatch.setattr(unpacked_file, "MAX_STATES", 5)
    monkeypatch.setattr(unpacked_file, "_CHUNK", 3000)


@contextmanager
def unpacked(path: Path, data: bytes, suffix: str) -> Iterator[UnpackedFile]:
    """A file with this content, after its first pass."""
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    file = UnpackedFile(fd, suffix, [])
    while file.measure(5000):
        assert len(file._window) <= 2 * 20_000
    try:
        yield file
    finally:
        os.close(fd)


@pytest.mark.parametrize("suffix", PACKERS)
@given(st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 20_000)), max_size=8))
@examples(30)
def test_any_part_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, ranges: list[tuple[int, int]]
) -> None:
    """In any direction, from any of several streams, with few states; padding is ignored."""
    pack, padding = PACKERS[suffix], b"\0" * 512 if suffix == ".gz" else b""
    packed = pack(TEXT[:50_000]) + pack(b"") + pack(TEXT[50_000:]) + padding
    with unpacked(tmp_path_factory.mktemp("packed") / "log", packed, suffix) as file:
        assert (file.size, file.damage) == (len(TEXT), "")
        for at, size in ranges:
            assert file.read(at, size) == TEXT[at : at + size]
        assert len(file._states) <= 5


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("cut", [0, 1, 20, 400])
def test_a_file_without_its_end_is_read_to_there(tmp_path: Path, suffix: str, cut: int) -> None:
    """All that can be unpacked is there, and the damage is said; no bytes are no damage."""
    packed = PACKERS[suffix](TEXT)
    for data in (packed[: len(packed) // 2 - cut], packed[:-1]):
        with unpacked(tmp_path / "log", data, suffix) as file:
            assert file.damage == "ends in the middle"
            for at in range(0, file.size, 5000):
                assert file.read(at, 5000) == TEXT[at : at + 5000][: file.size - at]
    with unpacked(tmp_path / "log", b"", suffix) as file:
        assert (file.size, file.damage) == (0, "")


@pytest.mark.parametrize("where", [3, 9_000, 20_000, -3])
def test_a_damaged_file_is_read_to_the_damage(tmp_path: Path, where: int) -> None:
    """All before the damage is there, byte by byte, and is read again as it was."""
    packed = gzip.compress(TEXT)
    before = zlib.decompressobj(31).decompress(packed[:where])
    with unpacked(tmp_path / "log", packed[:where] + b"\xff" * 3000, ".gz") as file:
        assert file.damage.startswith("damaged at byte ")
        assert file.size >= len(before)
        for at in range(0, len(before), 5000):
            assert file.read(at, 5000)[: len(before) - at] == before[at : at + 5000]


def test_only_some_files_of_a_reader_keep_a_window(tmp_path: Path) -> None:
    """A file that was not read lately has given up its memory; it is read again from a state."""
    (tmp_path / "log").write_bytes(gzip.compress(TEXT))
    fd, windows = os.open(tmp_path / "log", os.O_RDONLY), list[UnpackedFile]()
    files = [UnpackedFile(fd, ".gz", windows) for _ in range(4)]
    for file in files:
        while file.measure(1 << 20):
            pass
        assert file.read(100_000, 100) == TEXT[100_000:100_100]
    assert [len(file._window) > 0 for file in files] == [False, False, True, True]
    assert files[0].read(9, 100) == TEXT[9:109]
    os.close(fd)


def test_a_missing_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the module that is missing."""
    monkeypatch.setitem(unpacked_file._MODULES, ".zst", ("no.such.module", "Decompressor", ""))
    with pytest.raises(OSError, match=r"\.zst needs the module no\.such\.module of Python"):
        UnpackedFile(0, ".zst", [])
