"""What an Exim place is, and its settings."""

from contextlib import closing
from pathlib import Path

import pytest

from engine.config.place_address import parse_address
from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.exim import place
from engine.formats.exim.format import FORMAT, SPOOL_FOLDERS
from engine.formats.known_formats import own_format
from engine.store import Unavailable
from tests.engine.formats.exim.exim_places import opened, setup_of
from tests.exim_server import CONFIG, EximServer, Sink, wait_until
from tests.store_contents import tasks_in
from tests.tables import each
from tests.unprivileged_user import as_other_user, other_users_folder

AT = ConfigLocation("/etc/spooldeck.yaml", "stores.exim")


def test_a_spool_is_detected(tmp_path: Path) -> None:
    """A folder with the three folders of a spool is one; with two of them it is none."""
    for name in SPOOL_FOLDERS[:2]:
        (tmp_path / name).mkdir()
    assert not FORMAT.detects(parse_address(str(tmp_path)))
    (tmp_path / SPOOL_FOLDERS[2]).mkdir()
    assert own_format(parse_address(str(tmp_path))) is FORMAT
    assert own_format(parse_address("exim://mx2/var/spool/exim")) is FORMAT
    assert not FORMAT.detects(parse_address("postfix://mx2/etc/postfix"))


def test_a_closed_spool_is_detected_by_its_name() -> None:
    """A user who cannot look into a spool gets the reason, not a wrong format."""
    with other_users_folder() as folder:
        (folder / "exim4").mkdir(mode=0o000)

        def check() -> None:
            assert FORMAT.detects(parse_address(f"{folder}/exim4"))

        as_other_user(check)


@each("section", [{"config": 3}, {"other": "x"}, ["config"]])
def test_wrong_settings_are_refused(section: object) -> None:
    """The section has one path, and nothing else."""
    with pytest.raises(ConfigError, match=r"stores\.exim"):
        FORMAT.parse_settings(section, AT)


def test_a_private_configuration_is_used(exim: EximServer) -> None:
    """Each call has a configuration file of its own; one that others may write is refused."""
    private = exim.root / "etc/exim4/private.conf"
    private.write_text((exim.root / CONFIG[1:]).read_text())
    exim.submit()
    settings = FORMAT.parse_settings({"config": "/etc/exim4/private.conf"}, AT)
    setup = setup_of(exim)._replace(settings=settings)
    with closing(setup.open_store()) as store:
        (task,) = tasks_in(store).values()
        (header,) = [part for part in store.parts(task) if part.name == "envelope"]
    assert header.where.startswith("/usr/sbin/exim4 -C /etc/exim4/private.conf -Mvh")
    private.chmod(0o664)
    with pytest.raises(Unavailable, match=r"private\.conf: others than root may write it"):
        setup.open_store()
    private.unlink()


def test_next_tries_of_the_database(exim: EximServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In UTC for any zone; untried mail has none; too many domains or no answer: unknown."""
    sink = Sink("127.0.0.3", "450 4.2.0 Greylisted")
    exim.configure(sinks=[("grey.example.test", sink)])
    (tried,) = exim.submit(recipients=["a@grey.example.test"], deliver=True)
    wait_until(lambda: len(exim.log_lines(" == ")) == 1)
    (untried,) = exim.submit(recipients=["b@other.example.test"])
    (many,) = exim.submit(recipients=[f"a@d{number}.example.test" for number in range(6)])
    exim.run("-Mf", *exim.submit())
    with opened(exim) as store:
        tasks = tasks_in(store)
    texts = FORMAT.describe_next_tries(setup_of(exim), [*tasks.values()], 0.0)
    assert "a@grey.example.test" in texts[tried] and "(retry database)" in texts[tried]
    for zone in ("TZ=JST-9", "TZ=EST5"):
        far = FORMAT.describe_next_tries(setup_of(exim, "env", zone), [tasks[tried]], 0.0)
        assert far[tried] == texts[tried]
    rest = {untried: "at the next queue run: no retry time is known", many: ""}
    assert texts == {tried: texts[tried], **rest}
    monkeypatch.setattr(place, "ask_retries", lambda exim, domain: "no answer of exinext")
    unanswered = FORMAT.describe_next_tries(setup_of(exim), [*tasks.values()], 0.0)
    assert unanswered == dict.fromkeys(texts, "")
