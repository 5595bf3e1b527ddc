"""Each command loads the modules that it needs: loading takes most of the time of a short one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nftban_queues import clean_environment
from tests.programs import needs
from tests.smtp_server import HOST, Server

AGREED = Path(__file__).with_name("loaded_modules.txt")
"""The commands in their order, each with the modules that it loads and the first one does not:
all of ours, and of the others the slow ones. Written by `--draw`."""

COMMANDS = (
    "--version",
    "init {place}",
    "queue add report job",
    "status",
    "queue list",
    "queue process-next",
    "mail send text admin@example.org",
)
SLOW = """
ast asyncio concurrent.futures dataclasses email.message importlib.metadata inspect ipaddress json
locale logging pathlib pickle rich shutil socket sqlite3 ssl subprocess tempfile textual traceback
unittest urllib.parse urllib.request yaml
"""
CODE = "import sys; from tui.cli import main; main(sys.argv[1:]); print(); print(*sys.modules)"


def test_each_command_loads_what_it_needs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No command loads a module of ours, or a slow one, that was not agreed on."""
    needs("curl")
    config, place, found = tmp_path / "some.yaml", str(tmp_path / "place"), list[str]()
    slow, first = set(SLOW.split()), set[str]()
    handlers = "handlers: {report: {command: ['true']}}"
    config.write_text(f"{handlers}\nmail: {{plain_hosts: ['{HOST}']}}\n")
    with Server() as server:
        environ = clean_environment(tmp_path) | {
            "NFTBAN_MAIL_METHOD": "curl",
            "NFTBAN_SMTP_HOST": HOST,
            "NFTBAN_SMTP_PORT": str(server.port),
            "NFTBAN_SENDER": "queue@example.org",
        }
        for command in COMMANDS:
            words = [word.format(place=place) for word in command.split()]
            at = ["--config", str(config), "--root", place] if command not in COMMANDS[:2] else []
            argv = [sys.executable, "-P", "-c", CODE, *at, *words]
            run = subprocess.run(argv, capture_output=True, text=True, check=True, env=environ)
            assert not run.stderr
            loaded = set(run.stdout.splitlines()[-1].split())
            ours = {name for name in loaded if name.partition(".")[0] in ("engine", "tui")}
            found += [command, *(f"    {name}" for name in sorted((ours | loaded & slow) - first))]
            first = first or ours
    if request.config.getoption("--draw", default=False):
        AGREED.write_text("\n".join([*found, ""]), encoding="utf-8")
    assert found == AGREED.read_text(encoding="utf-8").splitlines()
