"""The instances of Postfix on this host."""

from pathlib import Path

import pytest

from engine.formats.base.format import InstalledPlace
from engine.formats.postfix import instances
from engine.formats.postfix.instances import find_instances, parse_instance
from engine.store import Unavailable
from tests.programs import a_script, needs
from tests.tables import each


def test_a_line_of_postmulti_is_an_instance() -> None:
    """Its folder may have blanks and any byte; a name of - is none."""
    for line, expected in (
        ("-           -   y   /etc/postfix", ("/etc/postfix", "", True)),
        ("postfix-out mta n   /etc/postfix out", ("/etc/postfix out", "postfix-out", False)),
        ("a b y /etc/\udcff", ("/etc/\udcff", "a", True)),
    ):
        assert parse_instance(line) == InstalledPlace(*expected)


@each("line", ["", "- - y", "- - x /etc", "- - y etc", "postmulti: \x1b[2J x y"])
def test_any_other_line_is_refused(line: str) -> None:
    """It is shown without its control bytes."""
    with pytest.raises(Unavailable, match="expected NAME GROUP y") as caught:
        parse_instance(line)
    assert str(caught.value).isprintable()


def test_a_real_postmulti_lists_the_default_instance() -> None:
    """Any user may ask it."""
    needs("postmulti")
    assert find_instances()[0] == InstalledPlace("/etc/postfix")


def test_a_failed_postmulti_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own last line; without the program there is no instance."""
    script = a_script(tmp_path / "postmulti", "echo 'postmulti: fatal: no main.cf' >&2; exit 1")
    monkeypatch.setattr(instances, "find_program", lambda name: script)
    with pytest.raises(Unavailable, match=r"-l: postmulti: fatal: no main.cf$"):
        find_instances()
    monkeypatch.setattr(instances, "find_program", lambda name: "")
    assert find_instances() == []
