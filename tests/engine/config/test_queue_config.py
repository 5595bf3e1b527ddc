"""Settings: where they come from, which of them count for which place, and what is refused."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine.config import nftban_variables, queue_config, shell_assignments
from engine.config.place_address import Address
from engine.config.queue_config import Config, ConfigError, HandlerConfig, Queue, load_config
from engine.policy import Rate
from engine.schedules import exponential
from tests.programs import needs_root
from tests.tables import each
from tests.unprivileged_user import as_other_user

NO_CONF = {"NFTBAN_CONFIG_DIR": "/nonexistent"}
NONE = Config()
Load = Callable[[str], Config]


def loader(folder: Path) -> Load:
    """A function that loads a configuration from its text."""

    def load(text: str) -> Config:
        path = folder / "config.yaml"
        path.write_text(text)
        path.chmod(0o644)
        return load_config(str(path), {"HOME": "/home/me"})

    return load


def queue(place: str, environ: Mapping[str, str] | None = None, config: Config = NONE) -> Queue:
    """The settings of a place, without a configuration of its own."""
    return queue_config.queue_settings_for(config, place, environ or {})


@pytest.fixture
def written(tmp_path: Path) -> Load:
    """Load a configuration from its text."""
    return loader(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> str:
    """Return a data folder with a queue in it."""
    for state in ("pending", "work", "dlq"):
        (tmp_path / "data" / "queue" / state).mkdir(parents=True)
    return str(tmp_path / "data")


@pytest.fixture
def conf(tmp_path: Path) -> Callable[..., str]:
    """Write an nftban.conf pair; answers with its folder."""

    def write(text: str, local: str = "") -> str:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "nftban.conf").write_text(text)
        (tmp_path / "etc" / "nftban.conf.local").write_text(local)
        return str(tmp_path / "etc")

    return write


def test_every_line_can_be_formatted(written: Load, tmp_path: Path) -> None:
    """Each key of the file arrives as a value of its own type."""
    got = written("""
        places: [/srv/spool, ~/spool, relative, "redis://host/1"]
        handlers:
          feeds_sync: {command: [sync, --all], timeout: 30, concurrency: 2, run_as: root}
          mail_send:
            {command: ["true"], rate: {per_hour: 40}, environment: {A: "1", _B2: ""},
             retry: exponential 5s limit 4}
        queue: {root: /srv/spool, run_dir: /run/spool, max_retries: 5, backoff_base: 1.5,
          profile: shipped, rate: {per_hour: 40, burst: 2}, run_as: root, place_label: out,
          durable: false}
        logs: [/var/log/a.log]
        theme: night
        wire: 16000
        read_only: true
        start_armed: false
        environment: PROD
        alerts: {dlq: 3, dlq_growth: 5, oldest: 2h, idle: 30, transport_failures: 0.25}
        trash: {hours: 48, quota: 2G}
        destinations: postgres://me:secret@db/peers
        outbox: {table: app.delivery_jobs, field: jobId, attempts: tries}
        via:
          mx2: [ssh, -o, ControlPath=~/.ssh/cm-%C, admin@mx2, sudo, -n]
          pod-1.a_b: [/usr/bin/kubectl, exec, -i, deploy/mta, --]
        via_quoting: {pod-1.a_b: 0}
    """)
    places = ("/srv/spool", "/home/me/spool", f"{tmp_path}/relative", "redis://host/1")
    sync = HandlerConfig(("sync", "--all"), timeout=30, concurrency=2, run_as="root")
    send = HandlerConfig(("true",), rate=Rate(40, 5), environment={"A": "1", "_B2": ""})
    numbers = {"max_retries": 5, "backoff_base": 1.5, "rate": Rate(40, 2), "durable": False}
    words = {"profile": "shipped", "run_as": "root", "place_label": "out"}
    peers = Address("postgresql://me@db/peers", "secret")

    assert got == Config(
        path=str(tmp_path / "config.yaml"),
        places=tuple(map(Address, places)),
        handlers={"feeds_sync": sync, "mail_send": send._replace(retry=exponential(5, limit=4))},
        queue={"root": "/srv/spool", "run_dir": "/run/spool"} | numbers | words,
        logs=("/var/log/a.log",),
        theme="night",
        wire=16000,
        read_only=True,
        environment="PROD",
        alerts=queue_config.Thresholds(3, 5, 7200, 30, 0.25),
        trash=queue_config.Trash(48, 2_000_000_000),
        destinations=peers,
        outbox=queue_config.OutboxConfig(
            "app.delivery_jobs", "id", "jobId", "tries", database=peers
        ),
        via={
            "mx2": ("ssh", "-o", "ControlPath=~/.ssh/cm-%C", "admin@mx2", "sudo", "-n"),
            "pod-1.a_b": ("/usr/bin/kubectl", "exec", "-i", "deploy/mta", "--"),
        },
        via_quoting={"pod-1.a_b": 0},
    )


def test_a_time_or_a_size_may_have_a_unit(written: Load) -> None:
    """Without a unit it is seconds or bytes; an empty file or section leaves the defaults."""
    for text, seconds in {"90": 90, "90.5": 90.5, "90s": 90, "15m": 900, "3d": 259_200}.items():
        assert written(f"alerts: {{oldest: {text}}}").alerts.oldest == seconds
    for text, size in {"90": 90, "800K": 800_000, "512M": 512_000_000, "1T": 10**12}.items():
        assert written(f"trash: {{quota: {text}}}").trash.quota == size
    for text in ("", "# nothing\n", "queue:\nhandlers: {}\ntheme:\n"):
        assert written(text)._replace(path="") == NONE


IN_A = "handlers: {a: {command: [x], environment"

REFUSED = (
    ("handlers: {a: {command: [x], retry: often}}", "handlers.a.retry", "one of exponential"),
    ("handlers: {a: {command: [x], retry: 5}}", "handlers.a.retry", "one of exponential"),
    ("handlers: {a: {command: [x], retry: {fixed: 5}}}", "handlers.a.retry", "one of exponential"),
    ("destinations: /var/lib/d.db", "destinations", "sqlite:///PATH or postgresql://"),
    ("destinations: sqlite://var/d.db", "destinations", "sqlite:///PATH or postgresql://"),
    ("destinations: redis://:secret@host", "destinations", "sqlite:///PATH or postgresql://"),
    ("outbox: {table: jobs, field: id}", "outbox", "needs destinations or outbox.database"),
    ("outbox: {table: jobs}", "outbox.field", "expected a text, not nothing"),
    ("outbox: {field: id}", "outbox.table", "letters, digits and _, not nothing"),
    ("outbox: {table: 'a\"b', field: id}", "outbox.table", "letters, digits and _"),
    ("outbox: {table: a.b.c, field: id}", "outbox.table", "delivery_jobs or public.delivery_jobs"),
    ("outbox: {table: '', field: id}", "outbox.table", "letters, digits and _"),
    ("outbox: {table: j, field: f, key: 'i\" = 1 --'}", "outbox.key", "letters, digits and _"),
    (f"outbox: {{table: j, field: f, key: {'k' * 64}}}", "outbox.key", "letters, digits and _"),
    ("them: x", "them", "did you mean theme?"),
    ("queue: {max_retires: 3}", "queue.max_retires", "did you mean max_retries?"),
    ("handlers: {a: {command: [x], time: 3}}", "handlers.a.time", "did you mean timeout?"),
    ("queue: {zzz: 1}", "queue.zzz", "expected one of root, pending"),
    ("theme: 2", "theme", "expected text, not 2"),
    ("environment: PRODUCTION", "environment", "a word of at most 8 ASCII characters"),
    ("environment: 'a b'", "environment", "a word of at most 8 ASCII characters"),
    ('environment: "\\e[2J"', "environment", "a word of at most 8 ASCII characters"),
    ("alerts: {dql: 3}", "alerts.dql", "did you mean dlq?"),
    ("alerts: {dlq: -1}", "alerts.dlq", "a whole number of tasks, at least 0"),
    ("alerts: {oldest: 1 hour}", "alerts.oldest", "1d or 1h30m, or a number of seconds"),
    ("alerts: {oldest: 0s}", "alerts.oldest", "at least 1, not '0s'"),
    ("alerts: {oldest: true}", "alerts.oldest", "a number of seconds, at least 1, not True"),
    ("alerts: {idle: 15s}", "alerts.idle", "a number of minutes, at least 1, not '15s'"),
    ("alerts: {transport_failures: 50}", "alerts.transport_failures", "such as 0.5"),
    ("alerts: {transport_failures: 0}", "alerts.transport_failures", "such as 0.5"),
    ("trash: {hour: 3}", "trash.hour", "did you mean hours?"),
    ("trash: {hours: 0.5}", "trash.hours", "a number of hours, at least 1"),
    ("trash: {quota: 512 MB}", "trash.quota", "a size like 800K, 512M or 2G"),
    ("trash: {quota: 0M}", "trash.quota", "at least 1"),
    ("trash: {quota: 1.5}", "trash.quota", "bytes, or a size"),
    ("read_only: 1", "read_only", "expected true or false, not 1"),
    ("queue: 7", "queue", "expected a mapping"),
    ("queue: {max_retries: true}", "queue.max_retries", "a whole number of retries"),
    ("queue: {max_retries: 2.5}", "queue.max_retries", "at least 0, not 2.5"),
    ("queue: {max_retries: -1}", "queue.max_retries", "at least 0, not -1"),
    ("queue: {max_pending: 0}", "queue.max_pending", "at least 1"),
    ("queue: {backoff_base: .nan}", "queue.backoff_base", "a number of seconds"),
    ("queue: {backoff_max: .inf}", "queue.backoff_max", "a number of seconds"),
    ("queue: {backoff_max: 15x}", "queue.backoff_max", "a number of seconds, not '15x'"),
    ("queue: {stuck_threshold: 29}", "queue.stuck_threshold", "seconds, at least 30, not 29"),
    ("queue: {profile: nftban}", "queue.profile", "one of contract, shipped"),
    ("queue: {rate: 40}", "queue.rate", "{per_hour: 40, burst: 5}"),
    ("queue: {rate: {burst: 5}}", "queue.rate.per_hour", "not nothing"),
    ("queue: {rate: {per_hour: 0}}", "queue.rate.per_hour", "at least 1"),
    ("queue: {run_dir: /run/x}", "queue.run_dir", "needs queue.root too"),
    ("queue: {root: ''}", "queue.root", "expected a path"),
    ("places: /srv", "places", "expected a list"),
    ("places: [1]", "places.0", "expected a path"),
    ("places: [redis://:hidden@host:port/]", "places.0", "expected a port from 0 to 65535"),
    ("handlers: []", "handlers", "expected a mapping"),
    ("handlers: {a: }", "handlers.a.command", "a list with the program first"),
    ("handlers: {a: {command: echo hi}}", "handlers.a.command", "a list, not a shell command line"),
    ("handlers: {a: {command: []}}", "handlers.a.command", "the program first"),
    ("handlers: {a: {command: ['']}}", "handlers.a.command", "the program first"),
    ("handlers: {a: {command: [sleep, 5]}}", "handlers.a.command.1", "text (put it in"),
    (f"queue: {{max_retries: 1{'0' * 40}}}", "queue.max_retries", "at most 9,007,199,254,74"),
    (f"queue: {{backoff_base: 1{'0' * 40}}}", "queue.backoff_base", "at most 1,000,000,000"),
    ("alerts: {oldest: 1.0e+300}", "alerts.oldest", "at most 1,000,000,000"),
    ("trash: {quota: 999999999T}", "trash.quota", "at most 1,152,921,504,606,846,976"),
    ("handlers: {a: {command: [x], timeout: 0}}", "handlers.a.timeout", "at least 0.1"),
    ("queue: {place_label: 'a\"b'}", "queue.place_label", "printable text without"),
    ("queue: {place_label: 7}", "queue.place_label", "printable text without"),
    ("handlers: {a: {command: [x], run_as: nosuch}}", "handlers.a.run_as", "a user of this system"),
    ("handlers: {a: {command: [x], run_as: 0}}", "handlers.a.run_as", "expected text"),
    (f"{IN_A}: {{A: 1}}}}}}", "handlers.a.environment.A", "text (put it in quotes)"),
    (f"{IN_A}: {{A=B: x}}}}}}", "handlers.a.environment.A=B", "a name of letters, digits and _"),
    (f"{IN_A}: {{TASK_ID: x}}}}}}", "handlers.a.environment.TASK_ID", "set from the task"),
    (
        "handlers: {mail_send: {environment: {A: x}}}",
        "handlers.mail_send.environment",
        "needs command too",
    ),
    ("handlers: {a b: {command: [x]}}", "handlers.a b", "a kind name of letters"),
    ("handlers: {../a: {command: [x]}}", "handlers.../a", "a kind name of letters"),
    ("handlers: {1: {command: [x]}}", "handlers.1", "a kind name of letters"),
    ("via: [ssh, mx2]", "via", "a mapping like {NAME: [ssh, HOST]}"),
    ("via: {MX2: [ssh, mx2]}", "via.MX2", "a name of small letters, digits and . _ -"),
    ("via: {-a: [ssh, mx2]}", "via.-a", "a name of small letters"),
    ("via: {'': [ssh, mx2]}", "via.", "a name of small letters"),
    ("via: {2: [ssh, mx2]}", "via.2", "a name of small letters"),
    ("via: {a: ssh mx2}", "via.a", "a list, not a shell command line"),
    ("via: {a: []}", "via.a", "the program first"),
    ("via: {a: [ssh, 5]}", "via.a.1", "text (put it in quotes)"),
    ("via: {a: [./wrap]}", "via.a.0", "the name of a program or an absolute path"),
    ("via_quoting: [1]", "via_quoting", "a mapping like {NAME: 1}"),
    ("via_quoting: {a: 1}", "via_quoting.a", "one of the names in `via`"),
    ("{via: {a: [x]}, via_quoting: {a: 3}}", "via_quoting.a", "expected 0, 1 or 2, not 3"),
    ("{via: {a: [x]}, via_quoting: {a: true}}", "via_quoting.a", "expected 0, 1 or 2"),
    ("on: 1", "True", "unknown key"),
    ("theme: a\ntheme: b", "theme", "repeated in line 2"),
    ("queue: {durable: yes, durable: no}", "queue.durable", "repeated"),
)
"""A configuration, the key that is wrong, and what is expected there."""

NO_YAML = ("queue: {", "a: b: c", "\tx", "- 1\nb", "x: \x00", "&a [*a]", "[" * 5000, "? [a]\n: b")


def test_an_impossible_setting_is_refused(written: Load, tmp_path: Path) -> None:
    """An error, also of broken YAML, is one line: file, dotted key, what was expected."""
    for text, key, expected in (*REFUSED, *((text, "", "") for text in NO_YAML)):
        with pytest.raises(ConfigError) as refused:
            written(text)
        message = str(refused.value)
        assert message.startswith(f"{tmp_path}/config.yaml: {key}{': ' if key else ''}"), text
        assert expected in message and message.isprintable(), text


def test_what_is_no_plain_file_is_no_config(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """What cannot be read is an error, not an absence; only the command line names a link."""
    monkeypatch.chdir(tmp_path)

    def refuse(why: str, named: str | None, *search: str) -> None:
        with pytest.raises(ConfigError, match=why):
            load_config(named, {}, search or queue_config.SEARCH_PATHS)

    refuse("No such file", str(tmp_path / "none.yaml"))
    refuse("expected a regular file", None, str(tmp_path))
    os.mkfifo("spooldeck.yaml")
    refuse(r"spooldeck\.yaml: expected a regular file", "spooldeck.yaml")
    refuse(r"spooldeck\.yaml: expected a regular file", None)
    Path("spooldeck.yaml").unlink()
    Path("other.yaml").write_text("theme: other\n")
    Path("spooldeck.yaml").symlink_to("other.yaml")
    refuse(r"a symbolic link \(name the file with --config\)", None)
    assert load_config("spooldeck.yaml", {}).theme == "other"


def test_the_first_file_found_counts_alone(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The working folder goes before XDG_CONFIG_HOME, if absolute, that before the machine's."""
    monkeypatch.chdir(tmp_path)
    own, machine = tmp_path / "home/.config/spooldeck", tmp_path / "machine.yaml"
    own.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home")}
    search = (*queue_config.SEARCH_PATHS[:2], str(machine))
    assert load_config(None, environ, search).theme == ""
    for path, theme in ((machine, "c"), (own / "config.yaml", "b"), (Path("spooldeck.yaml"), "a")):
        path.write_text(f"theme: {theme}\n")
        assert load_config(None, environ, search).theme == theme
    for folder, theme in ((str(own.parent), "b"), (".", "")):
        assert load_config(None, {"XDG_CONFIG_HOME": folder}, search[1:2]).theme == theme


def test_the_environment_names_the_file_unless_the_command_line_does(tmp_path: Path) -> None:
    """By an absolute path; a file that is missing is an error, not a reason to read another one."""
    for name in ("found", "named", "option"):
        (tmp_path / name).write_text(f"theme: {name}\n")
        (tmp_path / name).chmod(0o644)
    tmp_path.chmod(0o755)
    search, named = [f"{tmp_path}/found"], f"{tmp_path}/named"
    for path, variable, theme in (
        (None, "", "found"), (None, named, "named"), (f"{tmp_path}/option", named, "option"),
    ):  # fmt: skip
        assert load_config(path, {"SPOOLDECK_CONFIG": variable}, search).theme == theme
    missing = f"{tmp_path}/missing"
    for path, expected in ((missing, f"{missing}: No such file"), ("x", "an absolute path, not")):
        with pytest.raises(ConfigError, match=expected):
            load_config(None, {"SPOOLDECK_CONFIG": path}, search)


def test_a_file_of_another_user_is_not_taken_from_the_environment() -> None:
    """`sudo -E` passes the variable of the user: such a file would run its programs as us."""
    needs_root("to give a file to another user")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # all can reach it
        path = Path(folder, "config.yaml")
        path.write_text("theme: night\n")
        path.chmod(0o644)
        environ = {"SPOOLDECK_CONFIG": str(path)}
        assert load_config(None, environ).theme == "night"

        os.chown(path, 65533, 65533)
        with pytest.raises(ConfigError, match="owned by root; to use it anyway, name"):
            load_config(None, environ)

        def act() -> None:
            with pytest.raises(ConfigError, match="_CONFIG names it: it is not owned by you"):
                load_config(None, environ)
            assert load_config(str(path), {}).theme == "night"

        as_other_user(act)


@each(("text", "expected"), [
    ("/a redis://:s@h:6379/0", ["/a", "redis://h:6379/0"]),
    ("'/a b'  /c\n", ["/a b", "/c"]), ("~/q", ["/home/us/q"]), ("  ", ["/file", "redis://h/1"]),
    ("a", "environment: SPOOLDECK_PLACES: expected an absolute path, not 'a'"),
    ("'/a", "environment: SPOOLDECK_PLACES: a quote has no end"),
    ("http:///x:y@", "environment: SPOOLDECK_PLACES: @ only before the host"),
])  # fmt: skip
def test_the_environment_names_the_places(
    text: str, expected: list[str] | str, written: Load, tmp_path: Path
) -> None:
    """Instead of those of the file, separated by blanks; no error text has a password."""
    path = written("places: [/file, 'redis://:secret@h/1']").path
    environ = {"SPOOLDECK_PLACES": text, "HOME": "/home/us"}
    if isinstance(expected, str):
        with pytest.raises(ConfigError) as refused:
            load_config(path, environ)
        assert str(refused.value).startswith(expected)
    else:
        assert [one.text for one in load_config(path, environ).places] == expected


def test_a_url_of_the_environment_has_the_password_of_the_file(written: Load) -> None:
    """Its own goes before that."""
    path = written("places: ['redis://:secret@h/1', 'redis://:other@h/2']").path
    environ = {"SPOOLDECK_PLACES": "redis://h/1 redis://:own@h/2"}
    assert [one.password for one in load_config(path, environ).places] == ["secret", "own"]


ROOT, US, OTHER = 0, 1000, 1001
HERE, FOUND, NAMED = (False, True), (False, False), (True, False)


def status(mode: int, uid: int) -> os.stat_result:
    """The status of a file of this mode and user."""
    return os.stat_result((mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


@each(("us", "where", "owner", "mode", "above", "above_mode", "refused"), [
    # our uid, where it was found, owner and mode of the file and of its folder, the refusal
    (ROOT, HERE, ROOT, 0o644, ROOT, 0o755, ""),
    (ROOT, HERE, ROOT, 0o644, ROOT, 0o1777, "a folder that only root can write"),
    (ROOT, HERE, ROOT, 0o644, OTHER, 0o755, "a folder that only root can write"),
    (ROOT, HERE, OTHER, 0o644, ROOT, 0o755, "a file owned by root"),
    (ROOT, FOUND, OTHER, 0o644, ROOT, 0o755, "a file owned by root"),
    (ROOT, FOUND, ROOT, 0o664, ROOT, 0o755, "chmod go-w"),
    (ROOT, NAMED, ROOT, 0o646, ROOT, 0o755, "chmod go-w"),
    (ROOT, NAMED, OTHER, 0o644, OTHER, 0o777, ""),
    (US, HERE, US, 0o644, OTHER, 0o1777, ""),
    (US, HERE, US, 0o664, US, 0o755, "chmod go-w"),
    (US, HERE, OTHER, 0o644, US, 0o755, "a file owned by you or root"),
    (US, FOUND, US, 0o664, US, 0o775, ""),
    (US, NAMED, OTHER, 0o666, OTHER, 0o777, ""),
])  # fmt: skip
def test_whose_configuration_is_taken(us: int, where: tuple[bool, bool], **row: Any) -> None:
    """No file is taken that another user could have put there; in a named place all are."""
    file = status(stat.S_IFREG | row["mode"], row["owner"])
    folder = status(stat.S_IFDIR | row["above_mode"], row["above"])
    why = queue_config._refusal(file, folder, us, *where)
    assert row["refused"] in why and bool(why) == bool(row["refused"])


@each(("us", "owner", "mode", "refused"), [
    (ROOT, ROOT, 0o644, ""),
    (ROOT, OTHER, 0o644, "is not owned by root"),
    (ROOT, ROOT, 0o664, "is writable by its group or by others"),
    (US, US, 0o600, ""), (US, ROOT, 0o644, ""),
    (US, OTHER, 0o644, "is not owned by you or root"),
    (US, US, 0o662, "is writable by its group or by others"),
])  # fmt: skip
def test_whose_words_for_hosts_are_taken(us: int, owner: int, mode: int, refused: str) -> None:
    """Only those of a file that root or the user owns and no other user may write."""
    why = queue_config.describe_distrust(status(stat.S_IFREG | mode, owner), us)
    assert why.startswith(refused) and bool(why) == bool(refused)


def test_words_for_other_hosts_are_refused_also_if_the_file_is_named(tmp_path: Path) -> None:
    """Its other settings could be used, but a prefix has our rights on other hosts."""
    needs_root("to give a file to another user")
    path = tmp_path / "config.yaml"
    path.write_text("theme: night\n")
    os.chown(path, 65534, 65534)
    assert load_config(str(path), {}).theme == "night"
    path.write_text("via: {a: [ssh, a]}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(str(path), {})
    why = "words of programs, and this file is not owned by root: chown it"
    assert str(refused.value) == f"{path}: via: {why}"


def test_a_place_is_data_or_a_queue(spool: str, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A private spool has its lock, logs and metrics; a folder `queue` belongs to that above."""
    bare = tmp_path / "bare"
    (bare / "pending").mkdir(parents=True)
    (bare / "dlq").mkdir()
    monkeypatch.chdir(spool)
    folders = {"pending": "queue/pending", "work": "queue/work", "dlq": "queue/dlq"}
    folders |= {"run_dir": "run", "log_dir": "log", "mail_spool": "mailspool"}
    folders |= {"queue_metrics": "metrics/queue.prom", "mail_metrics": "metrics/mail.prom"}
    folders |= {"counters": "metrics/counters"}
    below: dict[str, Any] = {name: f"{spool}/{folder}" for name, folder in folders.items()}
    assert queue(spool) == Queue(root=spool, profile="contract", **below)
    assert queue(f"{spool}/queue") == queue(spool) == queue(".")
    got = queue(str(bare))
    assert (got.root, got.pending, got.run_dir) == (str(bare), f"{bare}/pending", f"{bare}/run")
    assert queue(f"{tmp_path}/new").pending == f"{tmp_path}/new/queue/pending"


def test_folders_elsewhere_count_only_at_their_root(written: Load, spool: str) -> None:
    """Paths of the configuration count at its root; another place takes only the numbers."""
    for place in ("", "/var/lib/nftban", "/var/lib/nftban/"):
        got = queue(place, NO_CONF)
        assert (got.root, got.run_dir) == ("/var/lib/nftban", "/run/nftban")
        assert got.log_dir == "/var/log/nftban"
    settings = written("queue: {root: /srv/q, run_dir: /run/q, dlq: /dead, max_retries: 9}")
    own, other = queue("", None, settings), queue(spool, None, settings)
    assert (own.root, own.run_dir, own.dlq, own.max_retries) == ("/srv/q", "/run/q", "/dead", 9)
    assert (other.run_dir, other.dlq) == (f"{spool}/run", f"{spool}/queue/dlq")
    assert other.max_retries == 9


SHIPPED = """
# the file of another program
[[ -n "${_LOADED:-}" ]] && return 0 2>/dev/null || true
_LOADED=1
: "${NFTBAN_DATA_DIR:=@ROOT@}"
: "${NFTBAN_RUN_DIR:=/run/elsewhere}"
NFTBAN_STUFF="$(hostname)"
LIST=(a b)
NFTBAN_QUEUE_MAX_RETRIES="4"   # and a comment
NFTBAN_QUEUE_BACKOFF_BASE_SECONDS='20'
NFTBAN_QUEUE_PENDING_DIR="${NFTBAN_DATA_DIR}/queue/pending"
export NFTBAN_QUEUE_WORK_DIR=$NFTBAN_DATA_DIR/w
NFTBAN_QUEUE_METRICS_FILE="${NFTBAN_METRICS:-/m}/queue.prom"
"""


def test_nftban_conf_counts_for_the_folder_that_it_names(
    conf: Callable[..., str], spool: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """Its plain assignments count there; NFTBAN_CONFIG_DIR lends another place its numbers."""
    folder, private = conf(SHIPPED.replace("@ROOT@", spool)), f"{tmp_path}/private"
    asked = {"NFTBAN_CONFIG_DIR": folder}
    got = queue(spool, asked)
    assert (got.pending, got.work) == (f"{spool}/queue/pending", f"{spool}/w")
    assert (got.run_dir, got.queue_metrics) == ("/run/elsewhere", "/m/queue.prom")
    assert (got.max_retries, got.backoff_base, got.profile) == (4, 20, "shipped")
    monkeypatch.setattr(nftban_variables, "CONFIG_DIR", folder)
    got = queue(private)
    assert got == queue(private, NO_CONF)
    assert (got.run_dir, got.max_retries, got.profile) == (f"{private}/run", 3, "contract")
    borrowed = queue(private, asked)
    assert (borrowed.pending, borrowed.run_dir) == (f"{private}/queue/pending", f"{private}/run")
    assert (borrowed.max_retries, queue(spool).max_retries, queue("").root) == (4, 4, spool)
    Path(folder, "nftban.conf").write_text('NFTBAN_DATA_DIR="`id`"\n')
    assert queue(spool).root == spool
    with pytest.raises(ConfigError, match="line 1: NFTBAN_DATA_DIR"):
        queue("")


def test_each_source_precedes_the_next(conf: Callable[..., str], spool: str, written: Load) -> None:
    """YAML goes before the environment, that before .conf.local, that before .conf."""
    words = ("MAX_RETRIES", "BACKOFF_BASE_SECONDS", "BACKOFF_MAX_SECONDS", "MAX_PENDING")
    names = [f"NFTBAN_QUEUE_{word}" for word in words]
    files = ("\n".join(f"{name}={n}" for name in names[:last]) for n, last in ((1, 4), (2, 3)))
    environ = {"NFTBAN_CONFIG_DIR": conf(*files), names[0]: "3", names[1]: "3"}
    got = queue(spool, environ, written("queue: {max_retries: 4}"))
    assert (got.max_retries, got.backoff_base, got.backoff_max) == (4, 3, 2)
    assert (got.max_pending, got.retention_days) == (1, 7)


RETRIES = {"NFTBAN_QUEUE_MAX_RETRIES": "3"}


@each(("yaml", "environ", "profile", "base"), [
    ("", {}, "contract", 60), ("", RETRIES, "shipped", 30),
    ("", {"NFTBAN_QUEUE_BACKOFF_MAX_SECONDS": "900"}, "shipped", 30),
    ("", {"NFTBAN_QUEUE_BACKOFF_BASE_SECONDS": "10"}, "shipped", 10),
    ("", {"NFTBAN_QUEUE_MAX_PENDING": "3"}, "contract", 60),
    ("", {"NFTBAN_QUEUE_MAX_RETRIES": ""}, "contract", 60),
    ("queue: {profile: shipped}", {}, "shipped", 30),
    ("queue: {profile: contract}", RETRIES, "contract", 60),
    ("queue: {max_retries: 3}", RETRIES, "contract", 60),
], written=loader)  # fmt: skip
def test_a_retry_value_of_the_real_program_chooses_its_profile(
    written: Load, yaml: str, environ: dict[str, str], profile: str, base: float
) -> None:
    """A retry value of the real program chooses its way of counting, unless YAML chooses."""
    got = queue("/srv/x", environ, written(yaml))
    assert (got.profile, got.backoff_base) == (profile, base)


def test_the_manual_names_the_values_that_choose_the_profile() -> None:
    """The page of the format names each retry value of the real program where it explains them."""
    page = Path(__file__).parents[3] / "engine/formats/nftban/MANUAL.md"
    text = page.read_text().partition("## Retries\n")[2].partition("## ")[0]
    names = [row.name for row in queue_config._TABLE if row.field in queue_config._RETRY_VALUES]
    assert (len(names), [name for name in names if name not in text]) == (3, [])


def test_a_low_threshold_of_the_real_program_is_raised(tmp_path: Path, spool: str) -> None:
    """Below the least that spares a healthy worker, the least counts; it is no error there."""
    name = "NFTBAN_QUEUE_LOCK_STUCK_THRESHOLD"
    for written, counts in (("0", 90), ("5", 90), ("91", 91), ("1200", 1200)):
        (tmp_path / "nftban.conf").write_text(f"{name}={written}\n")
        for environ in ({name: written}, {"NFTBAN_CONFIG_DIR": str(tmp_path)}):
            assert queue(spool, environ).stuck_threshold == counts


@pytest.mark.parametrize(("environ", "run_dir", "pending"), [
    ("RUN_DIR=/r", "/r", "{root}/queue/pending"),
    ("RUN_DIR=/r DATA_DIR={root}", "/r", "{root}/queue/pending"),
    ("RUN_DIR=/r DATA_DIR=/o", "{root}/run", "{root}/queue/pending"),
    ("QUEUE_PENDING_DIR=/p", "{root}/run", "{root}/queue/pending"),
    ("QUEUE_PENDING_DIR=/p DATA_DIR={root}", "{root}/run", "/p"),
])  # fmt: skip
def test_folders_count_at_their_place(spool: str, environ: str, run_dir: str, pending: str) -> None:
    """Folders count for the named data folder; the place alone decides where its tasks are."""
    pairs = (f"NFTBAN_{word}".split("=") for word in environ.format(root=spool).split())
    got = queue(spool, {**dict(pairs), **NO_CONF})
    assert (got.run_dir, got.pending) == (run_dir.format(root=spool), pending.format(root=spool))


FOR_A_SHELL = (
    ('NFTBAN_QUEUE_MAX_RETRIES="$(touch PWNED)"', "commands are never run"),
    ("NFTBAN_QUEUE_MAX_RETRIES=`touch PWNED`", "commands are never run"),
    ('NFTBAN_RUN_DIR="`touch PWNED`/x"', "commands are never run"),
    (': "${NFTBAN_RUN_DIR:=$(touch PWNED)}"', "commands are never run"),
    ('NFTBAN_RUN_DIR="${UNHEARD_OF}/x"', "UNHEARD_OF is not set"),
    ('NFTBAN_RUN_DIR="${X/a/b}"', "expected a variable name"),
    ('NFTBAN_RUN_DIR="/a', "a closing quote"),
    ('NFTBAN_RUN_DIR="/a"; touch PWNED', 'only NAME="value"'),
    ("NFTBAN_RUN_DIR=/a touch PWNED", 'only NAME="value"'),
    ('NFTBAN_RUN_DIR="/a\\"b"', 'only NAME="value"'),
    ("NFTBAN_RUN_DIR=relative", "an absolute path"),
    ("NFTBAN_QUEUE_MAX_RETRIES=three", "expected a whole number"),
    (f"NFTBAN_QUEUE_MAX_RETRIES={'9' * 5000}", "expected a whole number"),
    ('A="$(x)"\nNFTBAN_RUN_DIR="$A/x"', "the value of A is unknown"),
)
"""Lines of nftban.conf, and what is expected instead."""


def test_words_for_shells_are_refused(spool: str, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A value that is no plain text is an error with its line; nothing is executed."""
    monkeypatch.chdir(tmp_path)
    environ = {"NFTBAN_CONFIG_DIR": str(tmp_path), "NFTBAN_DATA_DIR": spool}
    for line, expected in FOR_A_SHELL:
        Path("nftban.conf").write_text(f"# first\n{line}\n")
        with pytest.raises(ConfigError) as refused:
            queue(spool, environ)
        message, number = str(refused.value), 2 + line.count("\n")
        assert f"/nftban.conf: line {number}: NFTBAN_" in message
        assert expected in message and message.isprintable(), line
    with pytest.raises(ConfigError, match=r"^environment: NFTBAN_QUEUE_MAX_RETRIES: expected a"):
        queue(spool, {"NFTBAN_QUEUE_MAX_RETRIES": "many"})
    assert not (tmp_path / "PWNED").exists()


ASSIGNMENTS = {
    **{'X="a b"': "a b", "X='a $HOME b'": "a $HOME b", "X=a#b # c": "a#b"},
    **dict.fromkeys(("X=", 'X="" # nothing'), ""),
    **dict.fromkeys(("  export X=1", "readonly X=1"), "1"),
    **{"A=1\nX=${A}2$A": "121", "A=1\nX='$A'": "$A", "X=${E}/x": "from-environment/x"},
    "E=file\nX=$E": "from-environment",
    **{': "${X:=a}"': "a", 'X=b\n: "${X:=a}"': "b", "X=a\nX=b": "b"},
}


def test_plain_assignments_are_understood() -> None:
    """A plain line means what a shell makes of it, except that the environment goes first."""
    for text, value in ASSIGNMENTS.items():
        variables = shell_assignments.parse_variables(text, {}, {"E": "from-environment"})
        assert (variables["X"].text, variables["X"].problem) == (value, ""), text


@pytest.mark.parametrize(
    ("profile", "base", "waits"),
    [("contract", 60, [60, 120, 240, None]), ("shipped", 30, [60, 120, None, None])],
)
def test_a_profile_chooses_retries(profile: str, base: float, waits: list[float | None]) -> None:
    """The contract retries three times, the real program two times."""
    settings = queue("/srv/x")._replace(profile=profile, backoff_base=base)
    schedule = queue_config.retry_policy(settings).schedule
    assert [schedule.wait(retries) for retries in range(4)] == waits


@each(("work", "slow"), [
    ("engine.system import files", "dataclasses enum json pathlib tempfile shutil subprocess"),
    (
        "engine.config.queue_config import *; "
        "queue_settings_for(load_config(None, {}, ()), '/srv/x', {})",
        "yaml json pathlib difflib logging tempfile shutil",
    ),
])  # fmt: skip
def test_the_import_of_files_and_config_is_cheap(work: str, slow: str) -> None:
    """Importing the modules, and a load without a file, imports no module that is slow to load."""
    program = f"import sys; from {work}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stderr == ""
    assert not set(slow.split()) & set(ran.stdout.split())
