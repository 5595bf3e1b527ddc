"""The demo's folder and its keeper process, as the console sees them."""

from pathlib import Path

import pytest

from engine.config.queue_config import load_config
from engine.demo.demo import Demo
from tests.demo_places import NFTBAN, PROGRAM


def test_a_folder_that_cannot_hold_a_demo_is_named(tmp_path: Path) -> None:
    """A demo that cannot be set up names the path and leaves nothing running."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError) as error, Demo(8, str(blocked / "demo"), PROGRAM, [NFTBAN]):
        pass
    assert str(error.value).endswith(f"{blocked}/demo: Not a directory")


def test_the_folder_of_a_demo_has_a_configuration_with_its_places(tmp_path: Path) -> None:
    """Commands in the folder of a demo that was kept work on its places without naming them."""
    with Demo(8, str(tmp_path / "demo"), PROGRAM, [NFTBAN]) as demo:
        names = demo.wait_for_places()
        places = load_config(demo.config_path, {}).places
    assert [place.text for place in places] == names != []
