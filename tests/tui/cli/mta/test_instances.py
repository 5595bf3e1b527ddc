"""`mta instances`, with real instances of a mail server."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import a_script, needs, needs_root

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def two_instances(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of two instances; the first has the second in its list."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, lines in (
        (first, f"multi_instance_directories = {second}\nmulti_instance_enable = yes\n"),
        (
            second,
            f"multi_instance_name = postfix-out\nqueue_directory = {tmp_path}/queue\n"
            f"data_directory = {tmp_path}/data\n",
        ),
    ):
        folder.mkdir()
        (folder / "main.cf").write_text(f"compatibility_level = 3.6\n{lines}")
        (folder / "master.cf").write_text("")
    return first, second


def in_a_namespace(first: Path, *words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of ours where the folder of the system's mail server is another one."""
    needs_root("to bind a folder in a mount namespace")
    needs("postmulti")
    command = shlex.join([sys.executable, "-P", "-m", "tui.cli", *words])
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount --bind {first} /etc/postfix; {script}{command}"],
        cwd=first,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
    )


def test_the_instances_of_this_host_are_listed(two_instances: tuple[Path, Path]) -> None:
    """As places, with their names; one that is not started is listed as disabled."""
    first, second = two_instances
    run = in_a_namespace(first, "mta", "instances", "--json")
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert (run.returncode, run.stderr) == (0, "")
    mine = [row for row in rows if row["format"] == "postfix"]
    assert [(row["place"], row["name"], row["enabled"]) for row in mine] == [
        ("/etc/postfix", "", True),
        (str(second), "postfix-out", False),
    ]
    run = in_a_namespace(first, "mta", "instances")
    assert f"{second}  postfix  postfix-out  disabled\n" in run.stdout


def test_a_server_that_does_not_answer_is_named(
    two_instances: tuple[Path, Path], tmp_path: Path
) -> None:
    """With exit code 1, on standard error."""
    first, _ = two_instances
    fails = a_script(tmp_path / "fails", "echo 'postmulti: fatal: \033[2J' >&2; exit 1")
    script = f"mount --bind {fails} {needs('postmulti')}; "
    run = in_a_namespace(first, "mta", "instances", script=script)
    assert run.returncode == 1
    assert run.stderr == (f"spooldeck: {needs('postmulti')} -l: postmulti: fatal: \ufffd[2J\n")
