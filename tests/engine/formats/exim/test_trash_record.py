"""The record of the messages that we moved to the trash queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.formats.exim import trash_record
from engine.formats.exim.trash_record import TrashRecord


def test_a_large_record_keeps_what_may_be_in_the_trash_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of listed messages and of the last day, such as those of the same purge, are kept;
    old ones of messages that are no longer there are dropped."""
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
