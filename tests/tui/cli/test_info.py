"""`info`: what a report of a fault needs, also with a broken configuration, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.formats.kannader.store import make_spool
from engine.version import VERSION
from tests.nftban_queues import Run, write_config
from tests.tui.session.hanging_mount import can_mount, hanging_mount
from tui.cli import info as report


def test_a_report_has_versions_files_settings_and_paths(root: str, spooldeck: Run) -> None:
    """As text to paste, and as JSON."""
    config = write_config(root, f"places: [{root}]\nqueue: {{max_retries: 2}}\n")
    text = spooldeck("info", "--config", config)
    answer = spooldeck("info", "--config", config, "--json", NFTBAN_QUEUE_MAX_PENDING="7")
    assert (text.returncode, text.stderr) == (0, "")
    for words in (f"spooldeck {VERSION} in /", "textual ", "python ", f"{config}  ", f"{config}:2"):
        assert words in text.stdout
    facts = json.loads(answer.stdout)
    assert (facts["place"], facts["format"], facts["problem"]) == (root, "nftban", None)
    assert facts["files"][0] == {"path": config, "status": "read"}
    source = "variable NFTBAN_QUEUE_MAX_PENDING"
    setting = {"key": "queue.max_pending", "value": "7 tasks", "source": source}
    assert setting in facts["settings"]
    assert facts["paths"]["state"] == f"{root}/queue/.spooldeck"
    assert "NFTBAN_QUEUE_MAX_PENDING" in facts["variables"]


def test_a_broken_configuration_is_a_part_of_the_report(spooldeck: Run, tmp_path: Path) -> None:
    """Not an error: the report is about it. The value that was found is not repeated."""
    texts = ("handlers: {x: {environment: hidden}}", "theme: [a", "nonsense: 1", "a: 0177")
    for text in texts:
        config = write_config(tmp_path / "x", text)
        run = spooldeck("info", "--config", config)
        assert (run.returncode, run.stderr) == (0, "")
        assert f"problem: {config}: " in run.stdout
        assert f"{config}  " in run.stdout and "not valid" in run.stdout
        assert "hidden" not in run.stdout and "0177" not in run.stdout


def problem_of(spooldeck: Run, *words: str | Path, **environ: str) -> str:
    """The problem of a report that has no secret, as text and as JSON."""
    run = spooldeck("info", *words, "--json", **environ)
    text = spooldeck("info", *words, **environ)
    assert (run.returncode, run.stderr, text.returncode) == (0, "", 0)
    assert "hidden" not in run.stdout + text.stdout
    return str(json.loads(run.stdout)["problem"])


TWICE = "repeated in line 2, expected once"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("handlers: {a: {command: [b], environment: {TOKEN=hidden}}}", "expected a name"),
        ("handlers: {'hidden: x': 1}", "handlers.?: expected a kind name of letters"),
        ("handlers: {a: {'hidden': 1}}", "handlers.?.?: unknown key, expected one of command"),
        ("stores: {bullmq: {'redis://u:hidden@h': 1}}", "stores.bullmq.?: unknown key"),
        ("via: {'redis://u:hidden@h': [ssh]}", "via.?: expected a name of small letters"),
        ("via_quoting: {'hidden': 1}", "not valid: any other command prints why"),
        ("queue: {'TOKEN=hidden': 1}", "queue.?: unknown key, expected one of root"),
        ("hidden: 1\nhidden: 2", f"?: {TWICE}"),
        ("theme: *hidden", "line 1: not YAML"),
        ("theme: 1\nmouse: [0177", "line 2: not valid: any other command prints why"),
        ("queue: {root: 'redis://u:hidden@h/0'}", "queue.root: expected a path, not a URL"),
        ("logs: ['http://u:hidden@h']", "logs.0: expected a path"),
        ("mail: {relay: {port: hidden}}", "mail.relay.port: "),
    ],
)
def test_a_key_that_may_be_a_value_is_hidden(
    spooldeck: Run, tmp_path: Path, text: str, problem: str
) -> None:
    """Known keys and what was expected are shown, of what is no YAML the line."""
    config = write_config(tmp_path / "x", text)
    shown = problem_of(spooldeck, "--config", config)
    assert shown.startswith(f"{config}: ") and problem.partition(", not ")[0] in shown


def test_a_file_that_cannot_be_used_has_its_reason(spooldeck: Run, tmp_path: Path) -> None:
    """It has no key; and a variable that is wrong is no fault of the file."""
    config, missing = write_config(tmp_path / "x", "theme: night\n"), tmp_path / "missing.yaml"
    expected = f"{missing}: No such file or directory"
    assert problem_of(spooldeck, "--config", missing) == expected
    problem = problem_of(spooldeck, tmp_path / "missing")
    assert problem.startswith(f"no such place: {tmp_path}/missing: no such folder")
    words = ("info", "--config", config, "--json")
    facts = json.loads(spooldeck(*words, SPOOLDECK_PLACES="redis//u:hidden@h").stdout)
    expected = "environment: SPOOLDECK_PLACES: expected an absolute path"
    assert (facts["problem"], facts["files"][0]["status"]) == (expected, "there")
    facts = json.loads(spooldeck("info", "--json", SPOOLDECK_CONFIG="hidden.yaml").stdout)
    status = "no absolute path: no file is read"
    assert facts["files"][0] == {"path": "$SPOOLDECK_CONFIG", "status": status}


@pytest.mark.parametrize("place", ["redis//u:hidden@h/0", "redis:/h?token=hidden&a=u:hidden@h/0"])
def test_the_password_of_a_url_that_is_none_is_hidden(
    spooldeck: Run, tmp_path: Path, place: str
) -> None:
    """It is a path, and shown without what may be a password."""
    config = write_config(tmp_path / "x", f"places: ['{place}']")
    assert "***@h/0: no such " in problem_of(spooldeck, "--config", config)
    run = spooldeck("status", SPOOLDECK_PLACES=place)
    assert run.returncode == 78 and "***@h/0" in run.stderr and "hidden" not in run.stderr


def facts_here(config: str = "") -> dict[str, Any]:
    """The facts of a report made in this process."""
    facts = report.info(config, "", None).values()
    assert isinstance(facts, dict)
    return facts


def test_without_a_place_there_are_no_settings_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of a folder that is not there; a place that is found is taken."""
    monkeypatch.setattr(report, "unnamed_place", lambda config, environ: "")
    facts = facts_here()
    assert facts["problem"] == "no place named, and none found on this host"
    assert (facts["place"], facts["settings"]) == (None, ())
    monkeypatch.setattr(report, "unnamed_place", lambda config, environ: "redis://localhost:1/0")
    assert (facts_here()["place"], facts_here()["problem"]) == ("redis://localhost:1/0", None)


@pytest.mark.skipif(not can_mount(), reason="no FUSE, or no right to mount")
def test_a_mount_that_hangs_does_not_hang_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no settings then, and the files with what is known of them."""
    monkeypatch.setattr(report, "PLACE_SECONDS", 1.0)
    hung = tmp_path / "hung"
    make_spool(str(hung))
    config = write_config(tmp_path / "x", f"places: [{hung}]")
    with hanging_mount(hung):
        facts = facts_here(config)
    assert facts["problem"] == "the place gives no answer within 1 s"
    assert facts["files"][0]["status"] == "read"


def test_the_settings_of_another_format_are_not_in_force(spooldeck: Run, tmp_path: Path) -> None:
    """A queue of a server has its own attempts; its worker uses the limits of any worker."""
    config = write_config(tmp_path / "x", "queue: {max_retries: 2, rate: {per_hour: 5}}")
    words = ("info", "redis://localhost:1/0", "--config", config, "--json")
    rows = {one["key"]: one for one in json.loads(spooldeck(*words).stdout)["settings"]}
    assert rows["queue.max_retries"]["value"] == "not in use here"
    assert rows["queue.rate"]["value"] == "per_hour=5 burst=5"
    assert "queue.backoff_base" not in rows


def test_a_report_has_no_secrets(spooldeck: Run, tmp_path: Path) -> None:
    """Neither those of a file, of the environment, nor of an address that is no address."""
    config = write_config(
        tmp_path / "x",
        "places: ['redis://:hidden-1@localhost:1/0']\n"
        "destinations: postgresql://ann:hidden-2@db/x\n"
        "handlers: {x: {command: [/bin/x, hidden-3], environment: {TOKEN: hidden-4}}}\n",
    )
    environ = {"NFTBAN_SMTP_PASS": "hidden-5", "SPOOLDECK_MAILQ_PASSWORD": "hidden-6"}
    for more in (environ, {**environ, "SPOOLDECK_PLACES": "redis://:hidden-7@h:x/0"}):
        for words in ((), ("--json",)):
            run = spooldeck("info", "--config", config, *words, **more)
            assert run.returncode == 0
            assert "hidden" not in run.stdout + run.stderr
            assert "NFTBAN_SMTP_PASS" in run.stdout
