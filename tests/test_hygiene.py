"""What a start loads: every command pays for it, and root runs it from a timer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from engine.stores.nftban import SpoolFolders, make_spool

KEPT_OUT = {
    *("textual", "rich", "redis", "bullmq", "ctypes", "yaml", "json", "sqlite3", "asyncio"),
    *("logging", "prometheus_client", "psutil", "humanize", "subprocess", "tempfile", "pathlib"),
    *("dataclasses", "inspect"),
    *("socket", "engine.system.syslog_handler", "email", "shutil", "re2"),
    *("tui.app", "engine.index.schema", "engine.live.inspector", "engine.operations.plans"),
}

REPORT = """
import sys
from tui.cli import main
code = main(sys.argv[1:])
before = {before!r}
print("\\n".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


def test_nothing_due_loads_nothing_that_is_not_needed(tmp_path: Path) -> None:
    """A timer that finds no work pays for no console, no YAML, no JSON and no database."""
    queue = tmp_path / "queue"
    make_spool(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
    clean = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=clean,
    )

    run = subprocess.run(
        [
            *(sys.executable, "-c", REPORT.format(before=set(bare.stdout.split()))),
            *("--root", str(tmp_path), "queue", "process-next"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=clean,
    )

    assert run.returncode == 1, run.stderr
    loaded = set(run.stdout.split())
    assert "engine.work.worker" in loaded
    assert loaded & KEPT_OUT == set()
