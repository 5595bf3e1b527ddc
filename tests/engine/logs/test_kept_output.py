"""The kept output of handlers: what is read of it again, and how much is kept."""

from pathlib import Path

import pytest

from engine.logs import kept_output
from engine.logs.kept_output import KeptOutput, OutputFiles

NOW = 1_795_170_000.0
DAY = 86400.0


def outputs_in(folder: Path) -> OutputFiles:
    """The output files of a place, as a new process opens them."""
    return OutputFiles(f"{folder}/output", str(folder))


@pytest.mark.parametrize("data", [
    b"x", b"one\ntwo\n", b"\n= a 1.000 forged\n x", b"\0\xff\x1b[31m\r\n\n", b" \n", b"\n" * 9,
])  # fmt: skip
def test_any_output_is_read_back_as_it_was(tmp_path: Path, data: bytes) -> None:
    """Bytes of any kind, also such that look like a record, are those of their own run."""
    first, other = KeptOutput(NOW, "exit status 0", data), KeptOutput(NOW, "stopped", b"other")
    second = KeptOutput(NOW + 1.25, "ended by signal SIGKILL", b"again")
    for ident, output in (("a", first), ("ab", other), ("a", second)):
        outputs_in(tmp_path).keep(ident, output)
    assert outputs_in(tmp_path).read("a") == [first, second]
    assert outputs_in(tmp_path).read("b") == []
    assert outputs_in(tmp_path / "missing").read("a") == []


def test_a_record_that_was_cut_off_harms_no_other(tmp_path: Path) -> None:
    """If a process is killed at any byte of it, the records before and after it are read."""
    outputs = outputs_in(tmp_path)
    outputs.keep("a", KeptOutput(NOW, "exit status 0", b"first"))
    (path,) = (tmp_path / "output").iterdir()
    whole = path.read_bytes()
    outputs.keep("b", KeptOutput(NOW, "exit status 0", b"torn\nend"))
    torn = path.read_bytes()
    for end in range(len(whole), len(torn)):
        path.write_bytes(torn[:end])
        outputs_in(tmp_path).keep("a", KeptOutput(NOW, "exit status 1", b"last"))
        assert [output.data for output in outputs_in(tmp_path).read("a")] == [b"first", b"last"]


def test_the_oldest_output_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file and all together stay below their limits, also if two processes write in turn; each
    day has its own, and one is removed seven days after its last record."""
    monkeypatch.setattr(kept_output, "FILE_BYTES", 1000)
    monkeypatch.setattr(kept_output, "MAX_BYTES", 5000)
    one, two = outputs_in(tmp_path), outputs_in(tmp_path)
    for number in range(200):
        output = KeptOutput(NOW + number, "exit status 0", b"%0100d" % number)
        (two if number % 2 else one).keep("a", output)
        sizes = [path.stat().st_size for path in (tmp_path / "output").iterdir()]
        assert sum(sizes) <= 5000
        assert max(sizes) <= 1000
    kept = [int(output.data) for output in one.read("a")]
    assert kept == list(range(200 - len(kept), 200))
    assert len(kept) > 25
    one.keep("b", KeptOutput(NOW + DAY, "exit status 0", b"next day"))
    assert len(one.read("b")) == 1
    one.sweep(lambda moment: 6.9 * DAY)
    assert len(one.read("b")) == 1
    one.sweep(lambda moment: 7.1 * DAY)
    assert list((tmp_path / "output").iterdir()) == []


def test_a_clock_set_back_makes_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones are full or of another day: the runs since then share one; no output has none."""
    monkeypatch.setattr(kept_output, "FILE_BYTES", 1000)
    outputs = outputs_in(tmp_path)
    outputs.keep("a", KeptOutput(NOW, "exit status 0", b""))
    assert list(tmp_path.iterdir()) == []
    for ended in (NOW, NOW + DAY):
        outputs.keep("a", KeptOutput(ended, "exit status 0", b"x" * 900))
    for number in range(5):
        outputs.keep("a", KeptOutput(NOW - 60 + number, "exit status 0", b"x" * 100))
    assert len(list((tmp_path / "output").iterdir())) == 3
