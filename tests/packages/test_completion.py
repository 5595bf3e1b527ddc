"""Completion of commands, options, places, states and ids, by the real shells."""

import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nftban_queues import Run, bury_one, clean_environment, journal_at, spooldeck
from tests.programs import a_script, needs
from tui import cli
from tui.cli import completion
from tui.cli.completion import make_script

__all__ = ["spooldeck"]


PATIENT = """
import sys
from tui.cli import completion, main
completion.READ_SECONDS = 60
sys.exit(main())
"""
"""The command on a machine that is too busy for its usual time."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of each shell, in a folder that also has the command."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell in ("bash", "zsh", "fish"):
        (folder / f"_{shell}").write_text(make_script(shell))
    a_script(folder / "spooldeck", f"exec {sys.executable} -P -c '{PATIENT}' \"$@\"")
    return folder


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A queue `q` with two dead tasks."""
    assert cli.main(["init", str(tmp_path / "q")]) == 0
    for name in ("one", "two"):
        bury_one(tmp_path / "q", description=name)
    return tmp_path / "q"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are read to their end, also on a busy machine."""
    monkeypatch.setattr(completion, "READ_SECONDS", 60)


def ids(queue: Path) -> list[str]:
    """The ids of its dead tasks."""
    return sorted(path.stem for path in (queue / "queue" / "dlq").iterdir())


BASH = """
source "$1"
for typed in "${@:2}"; do
    IFS=' ' read -ra COMP_WORDS <<< "$typed"
    [[ $typed != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    _shtab_spooldeck
    printf '%s\\n' "$typed:" "${COMPREPLY[@]}"
done
"""

FISH = """
source $argv[1]
for line in $argv[2..-1]
    echo "$line:"
    complete -C "$line"
end
"""


def completed(scripts: Path, folder: Path, shell: str, *lines: str) -> dict[str, list[str]]:
    """How a shell completes the last word of some lines, without its descriptions."""
    path = needs(shell)
    argv = [path, "-c", BASH, "bash"] if shell == "bash" else [path, "--no-config", "-c", FISH]
    argv += [str(scripts / f"_{shell}"), *lines]
    environ = clean_environment(folder)
    environ["PATH"] = f"{scripts}:{environ['PATH']}"
    run = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True)
    assert run.stderr == ""
    by_name: dict[str, list[str]] = {}
    for text in run.stdout.splitlines():
        if text.removesuffix(":") in lines:
            by_name[text.removesuffix(":")] = current = []
        elif text:
            current.append(text.partition("\t")[0])
    return {line: sorted(values) for line, values in by_name.items()}


@pytest.mark.parametrize("shell", ["bash", pytest.param("fish", marks=pytest.mark.deep)])
def test_a_shell_completes_each_kind_of_word(shell: str, scripts: Path, queue: Path) -> None:
    """Each kind of word is completed, values by the place that the line names."""
    assert cli.main(["purge", str(queue), "--id", bury_one(queue).id, "--apply", "1"]) == 0
    (operation,) = journal_at(queue).operations()
    (queue.parent / "spooldeck.yaml").write_text("places: [/srv/first]")
    expected = {
        "spooldeck qu": ["queue"],
        "spooldeck queue dl": ["dlq"],
        "spooldeck purge --canary-like --inc": ["--include", "--include-all"],
        "spooldeck status q": ["q" if shell == "bash" else "q/"],
        "spooldeck status /srv/f": ["/srv/first"],
        "spooldeck queue add --batch spool": ["spooldeck.yaml"],
        "spooldeck --root q queue dlq show 2": ids(queue),
        "spooldeck purge q --state d": ["dlq"],
        "spooldeck undo q 2": [operation.op],
        "spooldeck mail suspend p": ["postfix"],
    }
    assert completed(scripts, queue.parent, shell, *expected) == expected


@pytest.mark.deep
def test_zsh_completes_an_id_on_a_terminal(scripts: Path, queue: Path) -> None:
    """zsh loads the script as a function from its path, and inserts what all ids begin with."""
    environ = clean_environment(queue.parent)
    environ |= {"PATH": f"{scripts}:{environ['PATH']}", "TERM": "dumb", "PS1": "ready> "}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(queue.parent)
        os.execve(needs("zsh"), ["zsh", "-f"], environ)
    (start,) = {name.rpartition("-")[0] for name in ids(queue)}
    try:
        load = f"fpath=({scripts} $fpath); autoload -U compinit; compinit -u -D; echo load''ed\n"
        os.write(terminal, load.encode())
        read_until(terminal, "loaded")
        os.write(terminal, b"spooldeck queue dlq sh\t--root q 2\t")
        read_until(terminal, f"--root q {start}")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def read_until(terminal: int, text: str) -> None:
    """Read what a shell writes until a text is part of it, escape sequences removed."""
    output = ""
    while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\x08]", "", output):
        ready, _, _ = select.select([terminal], [], [], 20)
        assert ready, output
        output += os.read(terminal, 65536).decode(errors="replace")


def test_what_cannot_be_read_completes_nothing(tmp_path: Path, spooldeck: Run) -> None:
    """No output and exit code 0, without a wait for another process's lock."""
    (tmp_path / "broken.yaml").write_text("places: 7")
    assert spooldeck("zgb", "init", tmp_path / "zgb.db").returncode == 0
    with sqlite3.connect(tmp_path / "zgb.db", isolation_level=None) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        for words in (
            ("--root", "nothing-here"),
            ("--config", "broken.yaml"),
            ("--root", "redis://127.0.0.1:1/0"),
            ("--root", "zgb.db"),
        ):
            run = spooldeck("completion", "--values", "ids", "zsh", "--", *words, "", cwd=tmp_path)
            assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
        other.execute("ROLLBACK")


def test_only_values_that_no_shell_changes_are_printed(
    queue: Path, tmp_path: Path, patient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that a shell would expand is never offered, nor one with a colon to bash."""
    config = tmp_path / "odd.yaml"
    config.write_text("places: ['/a;b', '/$(touch pwned)', '/a b', 'redis://h/0', /plain]")
    dead = queue / "queue" / "dlq"
    (dead / "$(touch pwned).task").write_bytes(next(dead.iterdir()).read_bytes())

    def printed(*words: str | Path) -> list[str]:
        capsys.readouterr()
        assert cli.main(["completion", "--values", *map(str, words)]) == 0
        return capsys.readouterr().out.split()

    assert printed("places", "bash", "--config", config) == ["/plain"]
    assert printed("places", "fish", "--config", config) == ["redis://h/0", "/plain"]
    offered = printed("ids", "bash", "--root", queue)
    assert sorted(offered) == [one for one in ids(queue) if "$" not in one]


def test_ids_are_bounded(tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most `MAX_VALUES` values are read, also if the place has more."""
    monkeypatch.setattr(completion, "MAX_VALUES", 1)
    cli.main(["init", str(tmp_path)])
    for _ in range(3):
        bury_one(tmp_path)
    assert len(completion.read_values("ids", completion.TypedLine([""], str(tmp_path)))) == 1
