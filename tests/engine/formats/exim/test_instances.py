"""The Exim of this host."""

from pathlib import Path

import pytest

from engine.formats.base.format import InstalledPlace
from engine.formats.exim import instances
from engine.formats.exim.instances import find_instances
from engine.store import Unavailable
from tests.programs import a_script


def programs(monkeypatch: pytest.MonkeyPatch, *paths: str | Path) -> None:
    """Say where the programs are."""
    monkeypatch.setattr(instances, "PROGRAMS", tuple(map(str, paths)))


def test_the_spool_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to the same program is no other instance; a program that is missing is none."""
    answer = '[ "$*" = "-bP spool_directory" ] && echo "spool_directory = /var/spool/exim4"'
    exim = a_script(tmp_path / "exim4", answer)
    (tmp_path / "exim").symlink_to("exim4")
    other = a_script(tmp_path / "other", answer.replace("exim4", "exim4/"))
    programs(monkeypatch, tmp_path / "no", exim, tmp_path / "exim")
    assert find_instances() == [InstalledPlace("/var/spool/exim4")]
    programs(monkeypatch, exim, other)
    assert len(find_instances()) == 1
    programs(monkeypatch, tmp_path / "no")
    assert find_instances() == []


def test_a_silent_program_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its last line on standard error."""
    programs(monkeypatch, a_script(tmp_path / "exim4", "echo 'exim: bad' >&2; exit 1"))
    with pytest.raises(Unavailable, match=r"-bP spool_directory: exim: bad$"):
        find_instances()
