"""What is opened in steps is closed when a step fails."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.index.reader import Reader
from engine.index.writer import Writer
from engine.model import attempts_allowed
from tests.open_files import open_files


@pytest.mark.parametrize("open_file", [partial(Writer, limit=attempts_allowed), Reader])
def test_what_is_no_database_is_closed(open_file: Callable[[str], object], tmp_path: Path) -> None:
    """The error is raised, and no descriptor of the file is left while it is handled."""
    path = tmp_path / "index"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        open_file(str(path))
    assert str(path.resolve()) not in {file for _, file in open_files()}
