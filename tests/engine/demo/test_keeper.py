"""The keeper of the demo: what fails in it is reported, and nothing is left however it ends."""

from pathlib import Path

import psutil
import pytest

from engine.demo.demo import Demo
from engine.demo.keeper import load_demo_place
from engine.formats.known_formats import FORMATS
from tests.demo_places import KANNADER, NFTBAN, ZGB, end, ended, start, until


@pytest.mark.deep
@pytest.mark.parametrize("victim", ["neither", "console", "keeper"])
def test_left_or_killed_it_leaves_nothing(victim: str, tmp_path: Path) -> None:
    """When it ends, or its console or keeper is killed, its processes and folder are gone."""
    process, places = start("", NFTBAN, KANNADER, ZGB)
    console = psutil.Process(process.pid)
    (keeper,) = console.children()
    processes = [keeper, *keeper.children(recursive=True)]
    assert len(processes) >= 5
    assert places[0].joinpath("queue", "pending").is_dir()
    if victim == "neither":
        end(process)
    else:
        (console if victim == "console" else keeper).kill()
    until(lambda: all(map(ended, processes)), tmp_path)
    assert not places[0].parent.exists()
    if victim != "neither":
        end(process)


BROKEN = """
from engine.demo.keeper import main

class Place:
    interval = 0.4

    def __init__(self):
        self.name = type(self).__name__.lower()
        self.work = {self.name: ()}

    def make(self, settings):
        self.path = f"{settings.folder}/{self.name}"
        return {}

    def open(self): pass

class Sound(Place):
    def add(self, now):
        open(self.path, "w").close()

class Broken(Place):
    def add(self, now):
        raise PermissionError(13, "Permission denied", self.path)

main()
"""

PLACES = ["__main__:Broken", "__main__:Sound"]


def test_what_fails_in_the_keeper_is_reported_and_ends_nothing_else(tmp_path: Path) -> None:
    """Traffic of one place goes on while another's fails; the end of a killed keeper is named."""
    folder = tmp_path / "demo"
    demo = Demo(8, str(folder), ["true"], PLACES)
    demo._argv[1:4] = ["-c", BROKEN]
    with demo:
        demo.wait_for_places()
        until(lambda: (folder / "sound").exists(), folder)
        until(lambda: "traffic of broken" in demo.trouble(), folder)
        assert demo.trouble().endswith(f": Permission denied ({folder}/demo.log)")
        assert "PermissionError: [Errno 13]" in (folder / "demo.log").read_text()
        assert demo._keeper is not None
        demo._keeper.kill()
        demo._keeper.wait()
        assert demo.trouble() == "the demo's keeper ended: SIGKILL"


def test_every_format_names_demo_places_by_their_class() -> None:
    """The keeper finds the class that a format names."""
    classes = {name for form in FORMATS.values() for name in form.demo_places.values()}
    places = [load_demo_place(name) for name in classes]
    assert len({place.name for place in places}) == 6
    for place in places:
        assert all(map(callable, (place.make, place.open, place.add)))
