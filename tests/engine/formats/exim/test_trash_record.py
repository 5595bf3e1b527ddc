"""The record of the messages that we moved to the trash queue."""

from pathlib import Path

import pytest

from engine.formats.exim import trash_record
from engine.formats.exim.trash_record import TrashRecord


def test_a_large_record_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed messages and those of the last day; old ones that are gone are dropped."""
    monkeypatch.setattr(trash_record, "MAX_BYTES", 40)
    record, now = TrashRecord(str(tmp_path / "state")), 1e6
    record.add(["old", "listed"], now - 90_000, ["listed"])
    record.add(["earlier"], now - 60, ["listed"])
    record.add(["removed"], now - 60, ["listed"])
    record.remove(["removed"])
    TrashRecord(str(tmp_path / "state")).add(["last"], now, ["listed"])
    times = {"listed": now - 90_000, "earlier": now - 60, "last": now}
    assert record.read() == times
    assert "old" not in (tmp_path / "state" / trash_record.RECORD).read_text()
