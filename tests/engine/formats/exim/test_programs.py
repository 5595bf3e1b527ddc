"""Finding an Exim and asking its settings, without one."""

from pathlib import Path

import pytest

from engine.formats.exim import facts, programs
from engine.formats.exim.programs import Exim
from engine.programs.prefix import HERE, Prefix
from engine.store import Unavailable
from tests.programs import a_script
from tests.tables import each

LINES = {
    True: [b"0 644"],
    False: [b"0 664", b"0 602", b"1000 644"],
    None: [b"Welcome back", b"0 xyz", b"Welcome", b"\xff \xfe", b""],
}


@each(("line", "is_roots"), [(line, answer) for answer, lines in LINES.items() for line in lines])
def test_only_a_line_of_stat_says_who_may_write(line: bytes, is_roots: bool | None) -> None:
    """What a shell prints at login is no answer, and no failure."""
    assert programs._is_roots_alone(line) is is_roots


SELECTORS = {
    True: ["", "+arguments", "-all +queue_run", "-queue_time"],
    False: ["-queue_run", "+all -queue_run", "-all +arguments"],
}


@each(
    ("selector", "is_logged"), [(one, answer) for answer, some in SELECTORS.items() for one in some]
)
def test_queue_runs_that_are_not_logged_are_not_missed(selector: str, is_logged: bool) -> None:
    """Without lines of queue runs in the log, their absence is no warning."""
    settings = {"log_selector": selector}
    exim = Exim(HERE, HERE, ("exim",), "/nowhere", version="4.96", settings=settings)
    assert exim.has_queue_run_log is is_logged
    if not is_logged:
        assert [*facts.log_warnings(exim, 1.0, 1e12)] == []


@each(("mode", "folder_mode"), [(0o664, 0o755), (0o644, 0o775)])
def test_a_configuration_is_checked_first(tmp_path: Path, mode: int, folder_mode: int) -> None:
    """Exim does not run with a file that others may write, or whose folder they may write."""
    folder, runs = tmp_path / "etc", tmp_path / "runs"
    folder.mkdir()
    config = folder / "exim.conf"
    config.touch()
    config.chmod(mode)
    folder.chmod(folder_mode)
    script = a_script(tmp_path / "prefix", f'echo "$1" >>{runs}; exec "$@"')
    with pytest.raises(Unavailable, match=r"others than root may write it"):
        programs.find_program(Prefix("jail", (script,), 0), "/nowhere", str(config))
    assert {*runs.read_text().split()} == {"stat"}
