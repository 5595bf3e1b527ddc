"""ZMailer's demo place: a spool as router and agents leave it."""

import json
import time
from pathlib import Path

from engine.demo.keeper import DemoSettings
from engine.formats.zmailer.demo import DemoPostoffice
from engine.system import files
from tests import command


def run(*words: str) -> str:
    """The output of a command."""
    output: str = command.run(words, capture_output=True, text=True).stdout
    return output


def test_the_demo_has_a_spool_with_all_sorts_of_recipients(tmp_path: Path) -> None:
    """Waiting, deferred and failed ones, a lock of a dead agent, a parked file; more arrive."""
    now = time.time()
    demo = DemoPostoffice()
    files.make_folder(f"{tmp_path}/postoffice")
    sections = demo.make(DemoSettings(str(tmp_path), 40, [], now))
    demo.add(now)
    demo.close()
    config = tmp_path / "config.yaml"
    config.write_text("stores:\n" + sections["stores"])
    place = str(tmp_path / "postoffice")
    report = json.loads(run("--config", str(config), "status", "--json", place))
    counts = report["tasks"]
    assert counts["waiting"] > 60 and counts["failed"] > 1 and counts["locked"] == 1
    assert len(list((tmp_path / "postoffice" / "transport").iterdir())) == 62
    doctor = run("--config", str(config), "doctor", place)
    assert "scheduler.conf: 4 clauses, no errors" in doctor
    assert "uucp/oldhost: never delivered: " in doctor
    assert "freezer/4711: parked: torn" in doctor
    assert "1 recipient locked by agents that have ended" in doctor
