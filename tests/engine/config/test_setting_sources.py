"""Each setting in force is named with its source, and no value that may be secret is shown."""

import os
import tempfile
from pathlib import Path

import pytest

from engine.config import setting_sources as source
from engine.config.queue_config import Config, load_config, queue_settings_for
from engine.config.setting_sources import NOT_SHOWN, config_files, setting_sources
from tests.unprivileged_user import as_other_user

Sources = dict[str, source.SettingSource]
CONFIG = """\
places: ['redis://ann:hidden-1@h/0', /srv/q]
theme: night
alerts:
  dlq: 3
  accepted: [{kind: refused mail, place: 'redis://:hidden-2@h/0'}]
handlers:
  report:
    command: [/bin/report, --token, hidden-3]
    environment:
      PIN: "1234"
queue: {max_retries: 2, rate: {per_hour: 600}}
mail:
  relay: {host: mx.hidden-4.example, user: hidden-5}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the settings."""
    (tmp_path / "some.yaml").write_text(CONFIG)
    return tmp_path / "some.yaml"


def sources(path: Path, environ: dict[str, str], place: str = "/srv/q") -> Sources:
    """The settings in force at a place, by key."""
    config = load_config(str(path), environ)
    queue = queue_settings_for(config, place, environ)
    return {one.key: one for one in setting_sources(config, queue, str(path), environ)}


def test_each_setting_has_its_source(path: Path) -> None:
    """A line of a file, a variable, which may override the places, the format, or the default."""
    conf = path.with_name("nftban.conf")
    conf.write_text("# its settings\nNFTBAN_QUEUE_MAX_PENDING=50\n")
    names = {"QUEUE_MAX_RETRIES": "9", "QUEUE_BACKOFF_BASE_SECONDS": "5", "CONFIG_DIR": conf.parent}
    rows = sources(path, {f"NFTBAN_{name}": str(value) for name, value in names.items()})
    expected = {
        "places": ("[redis://ann@h/0, /srv/q]", f"{path}:1"),
        "theme": ("night", f"{path}:2"), "alerts.dlq": ("3 tasks", f"{path}:4"),
        "alerts.oldest": ("1h00m", source.DEFAULT), "queue.max_retries": ("2", f"{path}:11"),
        "queue.rate": ("per_hour=600 burst=5", f"{path}:11"),
        "queue.backoff_base": ("5s", "variable NFTBAN_QUEUE_BACKOFF_BASE_SECONDS"),
        "queue.max_pending": ("50 tasks", f"{conf}:2"), "queue.durable": ("true", source.DEFAULT),
        "handlers.report.environment.PIN": (NOT_SHOWN, f"{path}:10"),
    }  # fmt: skip
    assert {key: rows[key][1:] for key in expected} == expected

    environ = {"SPOOLDECK_PLACES": "/srv/y", "NFTBAN_DATA_DIR": "/srv/x"}
    rows = sources(path, environ, "/srv/x")
    assert rows["places"][1:] == (source.NOT_IN_USE, "variable NFTBAN_DATA_DIR")
    path.write_text("queue: {retention_days: 3}\n")
    config = load_config(str(path), {})
    queue = queue_settings_for(config, "/srv/q", {})._replace(retention_days=float("inf"))
    rows = {one.key: one for one in setting_sources(config, queue, str(path), {})}
    assert rows["queue.retention_days"][1:] == ("for ever", source.FORMAT)


def test_no_value_that_may_be_secret_is_shown(path: Path) -> None:
    """Of commands, variables, addresses of mail and passwords of URLs only the line is named."""
    rows = sources(path, {"SPOOLDECK_PLACES": "redis://:hidden-6@h/1"})
    text = " ".join(" ".join(one) for one in rows.values())
    assert "hidden" not in text and "1234" not in text
    assert rows["places"][1:] == ("[redis://h/1]", "variable SPOOLDECK_PLACES")
    assert rows["alerts.accepted"] == ("alerts.accepted", NOT_SHOWN, f"{path}:5")
    assert rows["handlers.report.command"].source == f"{path}:8"
    assert rows["mail.relay.user"].value == NOT_SHOWN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that are closed to others")
def test_a_file_that_is_closed_to_us_is_not_missing() -> None:
    """In a folder that is closed, or closed itself."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        below, closed = Path(folder, "below"), Path(folder, "nftban.conf")
        below.mkdir(mode=0o700)
        closed.touch(mode=0o600)

        def act() -> None:
            files = dict(config_files(Config(), f"{below}/some", {"NFTBAN_CONFIG_DIR": folder}))
            assert {files[f"{below}/some"], files[str(closed)]} == {"Permission denied"}

        as_other_user(act)


def test_the_files_are_named_in_the_order_in_which_they_are_looked_for(tmp_path: Path) -> None:
    """With which one is read, and why the others are not."""
    own = tmp_path / ".config/spooldeck/config.yaml"
    own.parent.mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "NFTBAN_CONFIG_DIR": str(tmp_path)}
    config = load_config(None, environ, ())
    before = dict(config_files(config, None, environ))
    own.write_text("theme: [night]\n")
    broken = dict(config_files(config, None, environ, f"{own}: theme: expected text"))
    other = dict(config_files(config, None, environ, "environment: SPOOLDECK_PLACES: no path"))
    own.write_text("theme: night\n")
    own.chmod(0o600)
    after = [*config_files(config._replace(path=str(own)), None, environ)]

    paths = ["./spooldeck.yaml", str(own), "/etc/spooldeck/config.yaml", f"{tmp_path}/nftban.conf"]
    assert [path for path, _ in after] == [*paths, f"{tmp_path}/nftban.conf.local"]
    assert before[str(own)] == "not there"
    assert (broken[str(own)], other[str(own)]) == ("not valid", "there")
    rest = "not looked at: the first one counts alone"
    assert [status for _, status in after[1:3]] == ["read", rest]
    assert [status for _, status in after[3:]] == ["not there", "not there"]
    for name in ("nftban.conf", "nftban.conf.local"):
        (tmp_path / name).touch()
    pair = [status for _, status in config_files(config, "", environ)][1:]
    assert pair == ["there", "there, goes before the other"]
    named = {"SPOOLDECK_CONFIG": str(own), **environ}
    assert next(config_files(config, None, named)).path == str(own)
    assert next(config_files(config, "/option.yaml", named)).path == "/option.yaml"
