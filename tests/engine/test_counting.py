"""What several processes count together is read and written under one lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import files
from engine.limits import Buckets
from engine.metrics import Counters
from engine.policy import Rate


def _count(folder: Path) -> None:
    Counters(str(folder)).add("n")


def _spend(folder: Path) -> None:
    Buckets(str(folder / "buckets"), {"mail": Rate(40, 5)}, lambda: 1e9).spend("mail")


@pytest.mark.parametrize(
    ("change", "lock"), [(_count, "n.lock"), (_spend, "buckets")], ids=["counter", "bucket"]
)
def test_reading_and_writing_a_number_are_one(
    change: Callable[[Path], None], lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From reading a number to writing the next one its lock can be had by nobody else."""
    seen: list[tuple[str, bool]] = []

    def looking(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any) -> Any:
            with (tmp_path / lock).open("rb") as file:
                seen.append((name, files.is_unclaimed(file.fileno())))
            return call(*args)

        return look

    monkeypatch.setattr(os, "pread", looking("read", os.pread))
    monkeypatch.setattr(files, "write", looking("write", files.write))
    change(tmp_path)

    assert seen == [("read", False), ("write", False)]
