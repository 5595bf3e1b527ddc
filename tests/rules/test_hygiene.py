"""What a start loads: every command pays for it, and root runs it from a timer."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from engine.formats.nftban.store import SpoolFolders, make_spool
from tests.rules.syntax_trees import parsed, walked

KEPT_OUT = """
textual rich redis bullmq ctypes yaml json sqlite3 asyncio logging prometheus_client psutil
humanize subprocess tempfile pathlib dataclasses inspect socket engine.system.syslog_handler
email shutil re2 tui.app engine.index.schema engine.live.inspector engine.operations.plans
importlib.metadata
"""
"""Modules that a run without due tasks does not load."""

REPORT = """
import sys
from tui.cli import main
code = main(sys.argv[1:])
before = {before!r}
print("\\n".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


def loaded_by(folder: Path, *words: str) -> tuple[int, set[str]]:
    """The exit code of a command, and the modules that it loads."""
    clean = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=clean,
    )
    report = REPORT.format(before=set(bare.stdout.split()))
    run = subprocess.run(
        [sys.executable, "-c", report, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=clean,
    )
    return run.returncode, set(run.stdout.split())


def test_nothing_due_loads_nothing_that_is_not_needed(tmp_path: Path) -> None:
    """A timer that finds no work pays for no console, no YAML, no JSON and no database."""
    queue = tmp_path / "queue"
    make_spool(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
    code, loaded = loaded_by(tmp_path, "--root", str(tmp_path), "queue", "process-next")
    assert code == 1
    assert "engine.work.worker" in loaded
    assert loaded & {*KEPT_OUT.split()} == set()


def test_the_version_and_the_status_load_little(tmp_path: Path) -> None:
    """The version is printed without the metadata of packages; a summary of a quiet queue is read
    without an event loop, TLS, Rich or the library for metrics files."""
    queue = tmp_path / "queue"
    make_spool(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
    code, loaded = loaded_by(tmp_path, "--version")
    assert code == 0
    assert loaded & {"importlib.metadata", "email", "zipfile", "textual"} == set()
    loaded_by(tmp_path, "--root", str(tmp_path), "queue", "process-next")  # writes metrics
    code, loaded = loaded_by(tmp_path, "status", str(tmp_path))
    assert code == 0
    kept_out = {"asyncio", "ssl", "prometheus_client", "logging", "textual", "http", "platform"}
    assert loaded & (kept_out | {"rich"}) == set()


DEVNULL_REASONS = {
    "engine/system/supervisor.py": "outlives its caller, whose streams close; reports by a pipe",
    "tui/cli/__init__.py": "a descriptor that was closed before the start gets no other file",
    "engine/system/command_errors.py": "the reader of the stream has gone",
    "tui/cli/formats/zmailer/scheduler.py": "a daemon: its reports are in its log",
}
"""Modules that open /dev/null, and why."""


def test_no_process_is_started_with_its_errors_thrown_away() -> None:
    """What a process of ours prints to standard error is read, logged or shown."""
    root, found = Path(__file__).parents[2], set()
    for path in (path for package in ("engine", "tui") for path in (root / package).rglob("*.py")):
        for node in walked(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr == "devnull":
                found.add(str(path.relative_to(root)))
            if isinstance(node, ast.Call):
                streams = {each.arg: ast.unparse(each.value) for each in node.keywords}
                out, err = streams.get("stdout", ""), streams.get("stderr", "")
                if "DEVNULL" in err or ("DEVNULL" in out and "STDOUT" in err):
                    found.add(f"{path.relative_to(root)}:{node.lineno}")
    assert found == set(DEVNULL_REASONS)


UNKNOWN_SIGN_REASONS = {
    "tui/cli/commands.py": "optional arguments, as argparse writes them",
    "tui/cli/formats/nftban/demo_text.py": "no count in the answer: the command then refuses it",
    "tui/cli/command_help.py": "optional keys",
    "tui/packaging/share_files.py": "optional arguments",
    "tui/text/glyphs.py": "a character that the terminal cannot show",
    "tui/text/table.py": "the query of a URL",
}
"""Files of the console with a literal `?` -> what it means there, which is not an unknown value."""


def test_the_sign_of_an_unknown_value_is_written_in_one_place() -> None:
    """`engine.text.figure` has it; elsewhere a literal could be drawn as if it were known."""
    root, found = Path(__file__).parents[2], set()
    for path in (root / "tui").rglob("*.py"):
        tree = parsed(path)
        texts = (node.values for node in walked(tree) if isinstance(node, ast.JoinedStr))
        pieces = {id(piece) for values in texts for piece in values}  # the end of a question
        for node in walked(tree):
            if isinstance(node, ast.Constant) and node.value == "?" and id(node) not in pieces:
                found.add(str(path.relative_to(root)))
    assert found == {*UNKNOWN_SIGN_REASONS}
