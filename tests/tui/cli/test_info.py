"""`info`: what a report of a fault needs, also with a broken configuration, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path

from engine.version import VERSION
from tests.nftban_queues import Run


def test_a_report_has_versions_files_settings_and_paths(root: str, spooldeck: Run) -> None:
    """As text to paste, and as JSON."""
    config = Path(root).parent / "some.yaml"
    config.write_text(f"places: [{root}]\nqueue: {{max_retries: 2}}\n")

    text = spooldeck("info", "--config", str(config))
    answer = spooldeck("info", "--config", str(config), "--json", NFTBAN_QUEUE_MAX_PENDING="7")

    assert (text.returncode, text.stderr) == (0, "")
    for words in (f"spooldeck {VERSION} in /", "textual ", "python ", f"{config}  ", f"{config}:2"):
        assert words in text.stdout
    facts = json.loads(answer.stdout)
    assert (facts["place"], facts["format"], facts["problem"]) == (root, "nftban", None)
    assert facts["files"][0] == {"path": str(config), "status": "read"}
    assert {
        "key": "queue.max_pending",
        "value": "7",
        "source": "variable NFTBAN_QUEUE_MAX_PENDING",
    } in facts["settings"]
    assert facts["paths"]["state"] == f"{root}/queue/.spooldeck"
    assert "NFTBAN_QUEUE_MAX_PENDING" in facts["variables"]


def test_a_broken_configuration_is_a_part_of_the_report(spooldeck: Run, tmp_path: Path) -> None:
    """Not an error: the report is about it. The value that was found is not repeated."""
    config = tmp_path / "some.yaml"
    texts = ("handlers: {x: {environment: hidden}}", "theme: [a", "nonsense: 1", "a: 0177")
    for text in texts:
        config.write_text(text)
        run = spooldeck("info", "--config", str(config))
        assert (run.returncode, run.stderr) == (0, "")
        assert f"problem: {config}: " in run.stdout
        assert f"{config}  " in run.stdout and "not valid" in run.stdout
        assert "hidden" not in run.stdout and "0177" not in run.stdout


def test_a_report_has_no_secrets(spooldeck: Run, tmp_path: Path) -> None:
    """Neither those of a file, of the environment, nor of an address that is no address."""
    config = tmp_path / "some.yaml"
    config.write_text(
        "places: ['redis://:hidden-1@localhost:1/0']\n"
        "destinations: postgresql://ann:hidden-2@db/x\n"
        "handlers: {x: {command: [/bin/x, hidden-3], environment: {TOKEN: hidden-4}}}\n"
    )
    environ = {"NFTBAN_SMTP_PASS": "hidden-5", "SPOOLDECK_MAILQ_PASSWORD": "hidden-6"}
    for more in (environ, {**environ, "SPOOLDECK_PLACES": "redis://:hidden-7@h:x/0"}):
        for words in ((), ("--json",)):
            run = spooldeck("info", "--config", str(config), *words, **more)
            assert run.returncode == 0
            assert "hidden" not in run.stdout + run.stderr
            assert "NFTBAN_SMTP_PASS" in run.stdout
