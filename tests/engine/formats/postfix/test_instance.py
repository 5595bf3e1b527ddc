"""Opening an instance: its settings, what root refuses, and programs that fail or disappear."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix.instance import SETTING_NAMES, open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Move, State, Task
from engine.programs.mail_store import MailStore
from engine.programs.prefix import Prefix
from engine.store import StoreError, Unavailable
from engine.verbs import with_state
from tests.postfix_server import PostfixInstance, new_instance, running_instance
from tests.programs import a_script, needs


@pytest.fixture
def postfix() -> Iterator[PostfixInstance]:
    """An instance that is not started."""
    with new_instance() as instance:
        yield instance


@pytest.fixture(scope="module")
def started() -> Iterator[PostfixInstance]:
    """One that runs."""
    with running_instance() as instance:
        yield instance


def test_one_call_reads_all_settings(postfix: PostfixInstance) -> None:
    """Each setting has its value, also those that are empty; times are seconds."""
    instance = open_instance(str(postfix.config))
    assert set(instance.settings) == {*SETTING_NAMES}
    assert instance.queue_folder == str(postfix.queue)
    assert instance.settings["defer_transports"] == "smtp"
    assert instance.settings["relayhost"] == ""
    assert instance.settings["mail_version"][:1] == "3"
    assert instance.seconds("maximal_queue_lifetime") == 5 * 86400
    assert instance.seconds("minimal_backoff_time") == 1000
    assert instance.seconds("relayhost") == 0
    assert (instance.uid, instance.device) == (0, postfix.queue.stat().st_dev)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda config: (config / "main.cf").chmod(0o666), "main.cf"),
        (lambda config: (config / "master.cf").chmod(0o664), "master.cf"),
        (lambda config: os.chown(config / "main.cf", 65534, 65534), "main.cf"),
        (lambda config: config.chmod(0o777), "etc"),
        (lambda config: os.chown(config, 65534, 65534), "etc"),
        (lambda config: (config / "main.cf").unlink(), "main.cf"),
    ],
)
def test_root_uses_only_a_configuration_of_root(
    postfix: PostfixInstance, spoil: Callable[[Path], None], name: str
) -> None:
    """A file or folder of another user, or that another user may write, is refused by its name."""
    spoil(postfix.config)
    with pytest.raises(Unavailable, match=f"{name}: "):
        open_instance(str(postfix.config))


def test_a_link_to_a_foreign_configuration_is_refused(
    postfix: PostfixInstance, tmp_path: Path
) -> None:
    """A link of another user leads root nowhere."""
    link = tmp_path / "link"
    link.symlink_to(postfix.config)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(Unavailable, match="link"):
        open_instance(str(link))


def test_a_folder_without_a_configuration_there_is_reported(tmp_path: Path) -> None:
    """The words are those of Postfix, or of the prefix."""
    needs("postfix")
    with pytest.raises(Unavailable, match=r"main\.cf"):
        open_instance("/nonexistent", Prefix("env", ("env",)))
    with pytest.raises(Unavailable, match=r"[Nn]o such|not found"):
        open_instance("/etc/postfix", Prefix("gone", (str(tmp_path / "nothing"),)))


def a_prefix(tmp_path: Path, text: str) -> Prefix:
    """A prefix that is a shell script; `$*` has the words of the program."""
    return Prefix("far", (a_script(tmp_path / "far", text),))


def outcomes_behind(postfix: PostfixInstance, prefix: Prefix) -> list[StoreError | None]:
    """Hold three deferred messages through a prefix."""
    postfix.clear()
    postfix.deferred(3)
    marks = Marks(str(postfix.marks))
    server = PostfixServer(open_instance(str(postfix.config), prefix), marks)
    with closing(MailStore(server)) as store:
        tasks = {task.id: task for task in store.scan() if isinstance(task, Task)}
        moves = [Move(task, with_state(task, State.HELD)) for task in tasks.values()]
        errors = [outcome.error for outcome in store.swap_all(moves)]
    assert all(error is None or isinstance(error, StoreError) for error in errors)
    return errors  # type: ignore[return-value]


def test_a_connection_that_is_lost_after_the_act(started: PostfixInstance, tmp_path: Path) -> None:
    """The act was done, though no line arrived: another look shows it, and it is not repeated."""
    prefix = a_prefix(
        tmp_path,
        'case "$1" in */postsuper) "$@" 2>/dev/null; echo "Connection reset" >&2; exit 255;; esac\n'
        'exec "$@"',
    )
    assert outcomes_behind(started, prefix) == [None] * 3
    assert {*started.listed().values()} == {"hold"}


SUDO = """
[ "$1" = -n ] && shift
list=
[ "$1" = -l ] && { list=1; shift; }
case "$*" in */postqueue*|*/postsuper*|*/postcat*) ;; RULE) ;;
*) echo "$*" >> REFUSED; echo "sudo: a password is required" >&2; exit 1;; esac
[ -n "$list" ] || exec "$@"
"""
"""Behaves as sudo does for a user with rules for three programs, and for one with its words."""


@pytest.mark.parametrize("can_find", [True, False])
def test_a_rule_of_sudo_names_the_programs(
    started: PostfixInstance, tmp_path: Path, can_find: bool
) -> None:
    """What any user may run is run without it. Without the rule for find, times are unknown, and
    listings decide; nothing that is refused is tried."""
    words = open_instance(str(started.config)).find_words
    rule = " ".join(f"'{word}'\\ " for word in words).removesuffix("\\ ").replace("\\  ", "\\ ")
    refused = tmp_path / "refused"
    text = SUDO.replace("RULE", rule if can_find else "nothing").replace("REFUSED", str(refused))
    prefix = Prefix("far", (a_script(tmp_path / "sudo", text), "-n"))
    instance = open_instance(str(started.config), prefix)
    assert (instance.can_find, instance.uid) == (can_find, None)
    refused.unlink(missing_ok=True)
    started.clear()
    ids = started.deferred(2)
    with closing(MailStore(PostfixServer(instance, Marks(str(started.marks))))) as store:
        tasks = {task.id: task for task in store.scan() if isinstance(task, Task)}
        assert {task.due is None for task in tasks.values()} == {not can_find}
        for state in (State.HELD, State.TRASH):
            moves = [Move(task, with_state(task, state)) for task in tasks.values()]
            assert [outcome.error for outcome in store.swap_all(moves)] == [None] * 2
            tasks = {task.id: task for task in store.scan({*ids}) if isinstance(task, Task)}
            assert {task.state for task in tasks.values()} == {state}
        bar = store.edges[State.TRASH, None].bars(tasks[ids[0]], 0.0)
        assert bar == ("cannot prove that it stayed on hold" if not can_find else bar)
    assert not refused.exists()


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("kill -9 $$", "ended by SIGKILL"),
        ("exec sleep 600", "not ended after 1 s"),
        ("exec /usr/sbin/postsuper-gone", "not found"),
    ],
)
def test_an_act_that_does_nothing(
    started: PostfixInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    why: str,
) -> None:
    """It is killed, hangs, or is missing: each message is unchanged, with that as the reason."""
    monkeypatch.setattr("engine.formats.postfix.instance.ACT_SECONDS", 1.0)
    prefix = a_prefix(tmp_path, f'case "$1" in */postsuper) {act};; esac\nexec "$@"')
    (text,) = {str(error) for error in outcomes_behind(started, prefix)}
    assert text.startswith("far: ") and text.endswith("; looked again: unchanged") and why in text


@pytest.mark.parametrize(
    "act",
    ['exec "$@" 2>&1', '"$@" 2>&1 | head -c 60 >&2', '"$@" 2>/dev/null', '"$@" 2>&1 | tac >&2'],
)
def test_an_act_whose_lines_are_lost(started: PostfixInstance, tmp_path: Path, act: str) -> None:
    """It prints to the other stream, half of its lines, none, or in another order: another look
    shows what was done."""
    prefix = a_prefix(tmp_path, f'case "$1" in */postsuper) {act}; exit 0;; esac\nexec "$@"')
    assert outcomes_behind(started, prefix) == [None] * 3
    assert {*started.listed().values()} == {"hold"}


def test_a_prefix_that_prints_a_banner(started: PostfixInstance, tmp_path: Path) -> None:
    """Its lines are problems of the listing; what it prints on standard error decides nothing."""
    banner = "echo Welcome to far; echo maintenance at 22:00 >&2"
    prefix = a_prefix(tmp_path, f'case "$1" in */postqueue|*/postsuper) {banner};; esac\nexec "$@"')
    assert outcomes_behind(started, prefix) == [None] * 3


def test_half_of_a_listing_is_no_listing(started: PostfixInstance, tmp_path: Path) -> None:
    """A program that ends early must not make messages disappear."""
    cut = '"$@" | head -c 300; echo "client_loop: send disconnect" >&2; exit 255'
    prefix = a_prefix(tmp_path, f'case "$1" in */postqueue) {cut};; esac\nexec "$@"')
    with pytest.raises(Unavailable, match="send disconnect"):
        outcomes_behind(started, prefix)
