"""Marks of purged messages: what makes a message on hold trash, and what survives a crash."""

import stat
from pathlib import Path

import pytest

from engine.formats.postfix.marks import MARGIN_SECONDS, Mark, Marks
from engine.store import Unavailable
from tests.tables import each

MARK = Mark("4EBEB2DA019", "172-376-1-abc", "a@b", "deferred", at=1000.0, who="root")
OTHER = MARK._replace(id="33C402DA0A9", queue="hold")


def marks_in(folder: Path) -> Marks:
    """The marks of a place, as a process finds them."""
    marks = Marks(str(folder / "state"))
    marks.read()
    return marks


def test_a_mark_is_there_for_other_processes(tmp_path: Path) -> None:
    """A mark that was added is read by all, in a file for its owner alone; a removed one is not."""
    first, other = marks_in(tmp_path), marks_in(tmp_path)
    assert other.read() == {}
    first.add([MARK, OTHER])
    assert other.read() == {MARK.id: MARK, OTHER.id: OTHER}
    path = tmp_path / "state/marks.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other.remove([MARK.id, "never"])
    assert first.read() == marks_in(tmp_path).read() == {OTHER.id: OTHER}
    assert first.known == {OTHER.id: OTHER}


@each(
    ("ident", "identity", "ctime", "fits"),
    [
        (MARK.id, MARK.identity, 1000.0, True),
        (MARK.id, MARK.identity, 5.0, True),
        (MARK.id, MARK.identity, 1000.0 + MARGIN_SECONDS, True),
        (MARK.id, MARK.identity, 1001.0 + MARGIN_SECONDS, False),
        (MARK.id, MARK.identity, None, True),
        (MARK.id, "172-376-2-abc", 1000.0, False),
        (OTHER.id, MARK.identity, 1000.0, False),
    ],
)
def test_a_mark_fits(
    tmp_path: Path, ident: str, identity: str, ctime: float | None, fits: bool
) -> None:
    """A mark fits the same message, unless it was put on hold again later than an act takes."""
    marks_in(tmp_path).add([MARK])
    assert marks_in(tmp_path).is_trash(ident, identity, ctime) is fits


def test_a_line_that_was_cut_off_is_ignored(tmp_path: Path) -> None:
    """A crash in the middle of a line harms no other mark, before or after it."""
    marks_in(tmp_path).add([MARK])
    path = tmp_path / "state/marks.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "33C402DA0A9", "iden')
    assert marks_in(tmp_path).read() == {MARK.id: MARK}
    third = MARK._replace(id="E4C682DA048")
    marks_in(tmp_path).add([third])
    assert marks_in(tmp_path).read() == {MARK.id: MARK, third.id: third}
    path.write_bytes(path.read_bytes() + b'[1]\n{"id": 5}\n\xff\n7\nnull\n')
    assert marks_in(tmp_path).read() == {MARK.id: MARK, third.id: third}


def test_stale_marks_go_with_the_next_ones(tmp_path: Path) -> None:
    """Unless the act may still run, or the message was purged again since."""
    marks_in(tmp_path).add([MARK])
    young = OTHER._replace(at=1000.0 + MARGIN_SECONDS)
    marks_in(tmp_path).add([young], stale=[MARK])
    assert set(marks_in(tmp_path).read()) == {MARK.id, OTHER.id}
    last = MARK._replace(id="E4C682DA048", at=1001.0 + MARGIN_SECONDS)
    marks_in(tmp_path).add([last], stale=[MARK._replace(at=5.0), young])
    assert set(marks_in(tmp_path).read()) == {MARK.id, OTHER.id, last.id}
    marks_in(tmp_path).add([last], stale=[MARK, young])
    assert set(marks_in(tmp_path).read()) == {young.id, last.id}


def test_the_file_shrinks(tmp_path: Path) -> None:
    """Removed marks do not fill the file for ever."""
    marks = marks_in(tmp_path)
    many = [MARK._replace(id=f"{n:011X}") for n in range(1000)]
    marks.add([OTHER])
    marks.add(many)
    marks.remove([mark.id for mark in many])
    assert marks_in(tmp_path).read() == {OTHER.id: OTHER}
    assert (tmp_path / "state/marks.jsonl").stat().st_size < 1000


def test_marks_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    """A link or a folder in the place of the file is refused: trash must not look like mail."""
    (tmp_path / "state/marks.jsonl").mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"marks\.jsonl"):
        Marks(str(tmp_path / "state")).read()
