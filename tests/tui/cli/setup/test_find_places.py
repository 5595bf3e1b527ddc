"""Places of this host where none is named: what is found, how, and which are opened."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.config.place_address import Address
from engine.config.queue_config import Config
from engine.formats.base.detect import folder_lookups, has_folders
from engine.formats.base.format import InstalledPlace, Lookup
from engine.formats.bullmq.servers import server_lookups
from engine.formats.kannader.format import KANNADER_FOLDERS
from engine.formats.kannader.store import make_spool
from engine.formats.known_formats import FORMATS
from engine.store import Unavailable
from engine.system.command_errors import CommandError
from tests.bullmq_jobs import write_waiting
from tests.console_places import make_spool as make_queue
from tests.redis_server import running_server
from tests.tui.session.hanging_mount import can_mount, hanging_mount
from tests.unprivileged_user import as_other_user
from tests.zmailer_spool import Spool
from tui.cli import main
from tui.cli.setup import find_places as finding
from tui.cli.setup.find_places import find_places, unit_lookups, unnamed_place

ONE, TWO = InstalledPlace("/etc/one"), InstalledPlace("/etc/two", "two")


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give formats these lookups, and the others none; there are no units."""
    monkeypatch.setattr(finding, "unit_lookups", lambda environ: [])

    def give(**lookups: list[Lookup]) -> None:
        for name, form in FORMATS.items():
            its_own = lookups.get(name, [])
            monkeypatch.setattr(form, "lookups", lambda *_, its_own=its_own: its_own)

    give()
    return give


@pytest.fixture
def installed(look: Callable[..., None]) -> Callable[..., None]:
    """Say which places the programs of this host know, in two formats."""

    def say(*places: InstalledPlace) -> None:
        first, rest = Lookup("one -l", lambda: places[:1]), Lookup("two -l", lambda: places[1:])
        look(zgb=[first], bullmq=[rest])

    return say


def opened() -> list[str]:
    """The places that the console opens."""
    return find_places(Config(), {}).opened


CLOSED = "permission denied"


@pytest.mark.parametrize(
    ("places", "opens", "named"),
    [
        ((), [], ""),
        ((ONE, TWO._replace(is_enabled=False)), ["/etc/one"], "/etc/one"),
        ((ONE, TWO), ["/etc/one", "/etc/two"], None),
        ((ONE, TWO._replace(problem=CLOSED)), ["/etc/one", "/etc/two"], "/etc/one"),
        ((ONE._replace(problem=CLOSED),), ["/etc/one"], "/etc/one"),
    ],
    ids=["none", "one not started", "several", "one closed", "only a closed one"],
)
def test_without_a_place_those_that_are_found_are_opened(
    installed: Callable[..., None],
    places: tuple[InstalledPlace, ...],
    opens: list[str],
    named: str | None,
) -> None:
    """A command takes the only one that can be read, and of several none."""
    installed(*places)
    assert opened() == opens
    if named is not None:
        assert unnamed_place(Config(), {}) == named
        return
    with pytest.raises(CommandError) as caught:
        unnamed_place(Config(), {})
    assert str(caught.value) == "several places on this host: name one of /etc/one, /etc/two"


def test_what_is_configured_is_never_replaced(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither a place, a root, a variable of the contract, nor a queue that is installed."""
    installed(ONE)
    for config in (Config(places=(Address("/srv"),)), Config(queue={"root": "/srv"})):
        assert unnamed_place(config, {}) == ""
    for name in ("NFTBAN_DATA_DIR", "NFTBAN_CONFIG_DIR", "SPOOLDECK_CONTRACT"):
        assert unnamed_place(Config(), {name: str(tmp_path)}) == ""
    monkeypatch.setattr(finding, "has_queue", lambda path: True)
    assert unnamed_place(Config(), {}) == ""


def test_what_cannot_be_used_hides_no_other_place(
    look: Callable[..., None], installed: Callable[..., None]
) -> None:
    """A program that fails is a problem of its own; a place has its reason and its unit."""

    def refuse() -> tuple[InstalledPlace, ...]:
        raise Unavailable("postmulti -l: permission denied")

    look(zgb=[Lookup("one -l", lambda: [ONE])], bullmq=[Lookup("postmulti -l", refuse)])
    found = find_places(Config(), {})
    assert (found.opened, found.problems) == (["/etc/one"], ["postmulti -l: permission denied"])
    assert found.looked_at == ["one -l", "postmulti -l"]
    assert found.message == "postmulti -l: permission denied"
    installed(ONE, TWO._replace(is_enabled=False))
    assert find_places(Config(), {}).message == "1 more found, not opened: spooldeck find"
    odd = InstalledPlace("foo://h/0", "spooldeck-x.service")
    look(zgb=[Lookup("units", lambda: [odd, ONE])])
    found = find_places(Config(), {})
    first, second = found.places
    assert (first.format_name, first.installed.name) == ("?", "spooldeck-x.service")
    assert "no format with URLs that begin with foo://" in first.installed.problem
    assert (found.opened, second.installed.place) == (["/etc/one"], "/etc/one")


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"redis://localhost:{server.getsockname()[1]}"


@pytest.mark.skipif(not can_mount(), reason="no FUSE, or no right to mount")
def test_a_mount_that_hangs_and_a_silent_server_delay_no_other_place(
    tmp_path: Path, silent: str, look: Callable[..., None]
) -> None:
    """Each has its reason; the queue beside them is found, and the search has ended."""
    hung, well = tmp_path / "hung", tmp_path / "well"
    make_spool(str(hung))
    make_queue(well, [])
    is_spool = FORMATS["kannader"].detects
    look(
        kannader=folder_lookups([str(hung)], lambda path: is_spool(Address(path))),
        nftban=folder_lookups([str(well)], lambda path: True),
        bullmq=server_lookups((), silent, ()),
    )
    with hanging_mount(hung):
        found = find_places(Config(), {}, 2.0)
    assert found.problems == [f"{hung}: no answer within 2 s"]
    shown = {one.installed.place: one.installed.problem for one in found.places}
    assert shown == {f"{silent}/0": "it accepts, and does not answer within 0.8 s", str(well): ""}


def test_usual_folders_are_places_if_they_have_a_queue(
    tmp_path: Path, look: Callable[..., None]
) -> None:
    """Of each format; a folder without one, a file and a missing folder are none."""
    make_spool(str(tmp_path / "mail"))
    Spool(tmp_path / "postoffice").make()
    make_queue(tmp_path / "queue", [])
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "zmailer.conf").write_text(f"POSTOFFICE={tmp_path}/postoffice\n")
    environ = {"ZCONFIG": str(tmp_path / "zmailer.conf")}
    zmailer, nftban = (FORMATS[name] for name in ("zmailer", "nftban"))
    names = [str(tmp_path / name) for name in ("mail", "empty", "file", "missing")]
    config = Config(queue={"root": str(tmp_path / "queue")})
    look(
        kannader=folder_lookups(names, lambda path: has_folders(path, KANNADER_FOLDERS)),
        zmailer=type(zmailer).lookups(zmailer, config, environ),
        nftban=type(nftban).lookups(nftban, config, environ),
    )
    found = find_places(config, environ)
    assert [(one.installed.place, one.format_name) for one in found.places] == [
        (str(tmp_path / "mail"), "kannader"),
        (str(tmp_path / "postoffice"), "zmailer"),
        (str(tmp_path / "queue"), "nftban"),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="root's folders are closed to others")
def test_a_closed_folder_is_shown_with_the_command_that_may(
    look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a user without rights; it is opened too, and shows the same there."""
    monkeypatch.delenv("NFTBAN_MAIL_METHOD")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        spool = Path(folder, "kannader")
        make_spool(str(spool))
        spool.chmod(0o700)
        look(kannader=folder_lookups([str(spool)], lambda path: False))

        def act() -> None:
            found = find_places(Config(), {})
            (one,) = found.places
            assert one.format_name == "kannader"
            assert one.installed.problem == (
                f"permission denied: cannot read {spool}: use sudo -u root spooldeck {spool}"
            )
            assert found.opened == [str(spool)]

        as_other_user(act)


ODD = "an odd 'place' $HOME %h \"q\" \\x; # @user@"


def test_the_queue_of_a_unit_of_ours_is_found(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `install-units` writes it, under an odd name, once for two units."""
    root, units = tmp_path / ODD, tmp_path / "config/systemd/user"
    units.mkdir(parents=True)
    assert main(["init", str(root)]) == 0
    assert main(["install-units", str(units), "--root", str(root)]) == 0
    monkeypatch.setattr(finding, "unit_lookups", unit_lookups)
    monkeypatch.setattr(finding, "UNIT_FOLDER", str(tmp_path / "missing"))
    (one,) = find_places(Config(), {"XDG_CONFIG_HOME": str(tmp_path / "config")}).places
    assert one.installed == InstalledPlace(str(root), "spooldeck-queue.service")
    assert one.format_name == "nftban"


def test_a_unit_that_others_could_write_names_nothing(tmp_path: Path) -> None:
    """Nor does one that is no unit of ours, or a FIFO; a missing place is found with the reason."""
    os.mkfifo(tmp_path / "spooldeck-fifo.service")
    lines = {
        "spooldeck-a.service": "ExecStart=/usr/bin/spooldeck --root /srv/a queue work\n",
        "spooldeck-b.service": "ExecStart=/usr/bin/spooldeck --root /srv/b queue work\n",
        "spooldeck-c.service": "ExecStart=/usr/bin/spooldeck --root c queue work\n",
        "spooldeck-d.service": 'ExecStart="/usr/bin/spooldeck --root /srv/d\n',
        "other.service": "ExecStart=/usr/bin/other --root /srv/other\n",
        "spooldeck-e.service": "ExecStart=spooldeck --root redis://h/0 --config /etc/e.yaml x\n",
        "spooldeck-f.service": "ExecStart = spooldeck \\\n  --root=redis://u:hidden@h/1 \\\n  x\n",
        "spooldeck-g.service": "ExecStart=spooldeck --root redis://u:hidden@h:99999/0 x\n",
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(f"[Service]\n{text}")
        (tmp_path / name).chmod(0o644)
    (tmp_path / "spooldeck-b.service").chmod(0o666)

    found = [one for lookup in unit_lookups({}, str(tmp_path)) for one in lookup.find()]

    port = "expected a port from 0 to 65535"

    assert found == [
        InstalledPlace("/srv/a", "spooldeck-a.service", problem="no such file or folder"),
        InstalledPlace("redis://h/0", "spooldeck-e.service with --config /etc/e.yaml"),
        InstalledPlace("redis://u@h/1", "spooldeck-f.service"),
        InstalledPlace(
            "redis://...", "spooldeck-g.service", False, port, identity="spooldeck-g.service"
        ),
    ]


def test_a_database_that_a_unit_names_is_one_place(
    look: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is what the lookup of its server finds, and is opened without queues too."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    unit = tmp_path / "spooldeck-bullmq.service"
    unit.write_text(f"ExecStart=spooldeck --root redis://127.0.0.1:{port} bullmq work\n")
    monkeypatch.setattr(finding, "unit_lookups", lambda environ: unit_lookups({}, str(tmp_path)))
    with running_server("--port", str(port), "--bind", "127.0.0.1") as server:
        look_up = server_lookups((), f"redis://localhost:{port}", ())
        monkeypatch.setattr(FORMATS["bullmq"], "lookups", lambda *_: look_up)
        assert opened() == [f"redis://127.0.0.1:{port}"]
        write_waiting(server.client(), "mail", "1")
        assert opened() == [f"redis://localhost:{port}/0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users")
def test_the_file_of_another_user_names_no_spool(look: Callable[..., None], tmp_path: Path) -> None:
    """A variable that root has kept from another user may name it."""
    conf = tmp_path / "zmailer.conf"
    Spool(tmp_path / "postoffice").make()
    conf.write_text(f"POSTOFFICE={tmp_path}/postoffice\n")
    os.chown(conf, 12345, -1)
    zmailer = FORMATS["zmailer"]
    look(zmailer=type(zmailer).lookups(zmailer, Config(), {"ZCONFIG": str(conf)})[:1])
    found = find_places(Config(), {})
    problem = f"{conf}: ZCONFIG names it: it is not owned by root: chown it"
    assert ([*found.places], [*found.problems]) == ([], [problem])


def test_a_search_waits_as_long_as_one_lookup_after_the_other_answers() -> None:
    """It ends when none has answered for so many seconds, not after that time in all."""
    first, second, never = (threading.Event() for _ in range(3))

    def wait_and_set(mine: threading.Event, following: threading.Event) -> float:
        mine.wait()
        following.set()
        return time.monotonic()

    first.set()
    calls = [
        lambda: wait_and_set(second, threading.Event()),
        lambda: wait_and_set(first, second),
        lambda: wait_and_set(never, threading.Event()),
    ]
    answers = finding.call_all(calls, 0.5)
    never.set()
    assert [one.done() for one in answers[:2]] == [True, True]
