"""`find` and `mta instances`, with real instances of a mail server."""

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


def in_a_namespace(
    first: Path, *words: str, script: str = "", options: str = "-m"
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours where the folder of the system's mail server is another one."""
    needs_root("to bind a folder in a mount namespace")
    needs("postmulti")
    command = shlex.join([sys.executable, "-P", "-m", "tui.cli", *words])
    return subprocess.run(
        ["unshare", options, "sh", "-c", f"mount --bind {first} /etc/postfix; {script}{command}"],
        cwd=first,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
    )


def test_the_instances_of_this_host_are_listed(two_instances: tuple[Path, Path]) -> None:
    """As places, by both commands; one that is not started is listed as disabled."""
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
    run = in_a_namespace(first, "find", "--json")
    found = {row["place"]: row for line in run.stdout.splitlines() for row in [json.loads(line)]}
    assert (run.returncode, run.stderr) == (0, "")
    assert found["/etc/postfix"] == {
        **{"place": "/etc/postfix", "format": "postfix", "name": ""},
        **{"enabled": True, "problem": ""},
    }
    assert found[str(second)]["enabled"] is False


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


def test_where_was_looked_is_named_if_there_is_no_queue(
    two_instances: tuple[Path, Path], tmp_path: Path
) -> None:
    """With exit code 1; the console says the same, and how to name one."""
    first, _ = two_instances
    (tmp_path / "empty").mkdir()
    folders = ("/run", "/var/lib", "/var/spool", "/etc/systemd/system")
    mounts = [f"mount --bind {tmp_path}/empty {path}; " for path in folders if Path(path).is_dir()]
    hide = f"mount --bind /dev/null {needs('postmulti')}; "
    for words, code in ((["find"], 1), ([], 69)):
        run = in_a_namespace(first, *words, script="".join([*mounts, hide]), options="-mn")
        assert (run.returncode, run.stdout) == (code, "")
        for where in ("/var/lib/nftban", "/run/redis/redis-server.sock", "postmulti -l"):
            assert where in run.stderr
