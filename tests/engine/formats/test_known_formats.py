"""What is said of a place that does not exist, and which places are opened if none is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.place_address import Address
from engine.config.queue_config import Config
from engine.formats import known_formats
from engine.formats.base.format import InstalledPlace
from engine.formats.known_formats import (
    FORMATS,
    describe_missing,
    installed_places,
    unnamed_place,
    unnamed_places,
)
from engine.store import Unavailable
from engine.system.command_errors import CommandError


def test_a_format_that_no_command_makes_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of one that has such a command is offered to be made."""
    assert describe_missing("/x/q.db").endswith("(spooldeck zgb init /x/q.db makes it)")
    monkeypatch.setattr(FORMATS["zgb"], "init_command", "")
    assert describe_missing("/x/q.db") == "/x/q.db: no such file"


ONE, TWO = InstalledPlace("/etc/one"), InstalledPlace("/etc/two", "two")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which places the programs of this host know, in two formats; no queue is installed."""
    for form in FORMATS.values():
        monkeypatch.setattr(form, "instances", tuple)
    monkeypatch.setattr(known_formats, "has_queue", lambda path: False)

    def say(*places: InstalledPlace) -> None:
        monkeypatch.setattr(FORMATS["zgb"], "instances", lambda: places[:1])
        monkeypatch.setattr(FORMATS["bullmq"], "instances", lambda: places[1:])

    return say


def test_without_a_place_those_that_are_installed_are_opened(
    installed: Callable[..., None],
) -> None:
    """One that is not started with the others is not opened; a command takes the only one."""
    assert (unnamed_places(Config(), {}), unnamed_place(Config(), {})) == ([], "")
    installed(ONE)
    assert (unnamed_places(Config(), {}), unnamed_place(Config(), {})) == (["/etc/one"], "/etc/one")
    installed(ONE, TWO._replace(is_enabled=False))
    assert unnamed_place(Config(), {}) == "/etc/one"
    installed(ONE, TWO)
    assert unnamed_places(Config(), {}) == ["/etc/one", "/etc/two"]
    with pytest.raises(CommandError) as caught:
        unnamed_place(Config(), {})
    assert str(caught.value) == "several places on this host: name one of /etc/one, /etc/two"


def test_what_is_configured_is_never_replaced(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither a place, a root, a variable of the contract, nor a queue that is installed."""
    installed(ONE)
    for config in (Config(places=(Address("/srv"),)), Config(queue={"root": "/srv"})):
        assert unnamed_places(config, {}) == []
    for name in ("NFTBAN_DATA_DIR", "NFTBAN_CONFIG_DIR", "SPOOLDECK_CONTRACT"):
        assert unnamed_places(Config(), {name: str(tmp_path)}) == []
    monkeypatch.setattr(known_formats, "has_queue", lambda path: True)
    assert unnamed_places(Config(), {}) == []


def test_a_program_that_does_not_answer_hides_no_other(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason is known, and the places of the other formats are."""

    def refuse() -> tuple[InstalledPlace, ...]:
        raise Unavailable("postmulti -l: permission denied")

    installed(ONE)
    monkeypatch.setattr(FORMATS["bullmq"], "instances", refuse)
    answers = {form.name: (places, why) for form, places, why in installed_places()}
    assert answers["zgb"] == ((ONE,), "")
    assert answers["bullmq"] == ((), "postmulti -l: permission denied")
    assert unnamed_places(Config(), {}) == ["/etc/one"]
