"""The demo's folder and its keeper process, as the console sees them."""

from pathlib import Path

import pytest

from engine.demo.demo import Demo
from tests.demo_places import NFTBAN, PROGRAM


def test_a_folder_that_cannot_hold_a_demo_is_named(tmp_path: Path) -> None:
    """A demo that cannot be set up names the path and leaves nothing running."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError) as error, Demo(8, str(blocked / "demo"), PROGRAM, [NFTBAN]):
        pass
    assert str(error.value).endswith(f"{blocked}/demo: Not a directory")
