"""Opening an instance, programs that fail or disappear, and a real ssh."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix.instance import SETTING_NAMES, open_instance
from engine.model import State
from engine.programs.prefix import Prefix
from engine.store import StoreError, Unavailable
from tests.container_programs import a_docker
from tests.postfix_server import PostfixInstance, errors, new_instance
from tests.programs import a_script, needs
from tests.ssh_server import SshServer
from tests.store_contents import found, tasks_in


@pytest.fixture
def idle() -> Iterator[PostfixInstance]:
    """An instance that is not started."""
    with new_instance() as instance:
        yield instance


def test_one_call_reads_all_settings(postfix: PostfixInstance) -> None:
    """Each setting has its value, also those that are empty; times are seconds."""
    instance = open_instance(str(postfix.config))
    settings = instance.settings
    assert set(settings) == {*SETTING_NAMES}
    assert instance.queue_folder == str(postfix.queue)
    assert (settings["defer_transports"], settings["relayhost"]) == ("smtp", "")
    assert settings["mail_version"][:1] == "3"
    names = ("maximal_queue_lifetime", "minimal_backoff_time", "relayhost")
    assert [instance.seconds(name) for name in names] == [5 * 86400, 1000, 0]
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
    idle: PostfixInstance, spoil: Callable[[Path], None], name: str
) -> None:
    """A file or folder of another user, or that another user may write, is refused by its name."""
    spoil(idle.config)
    with pytest.raises(Unavailable, match=f"{name}: "):
        open_instance(str(idle.config))


def test_a_link_of_another_user_is_refused(postfix: PostfixInstance, tmp_path: Path) -> None:
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


def hold(postfix: PostfixInstance, *words: str) -> dict[str, Exception | None]:
    """Hold three messages behind a prefix, as one plan; why each was not held."""
    ids = postfix.deferred(3)
    with closing(postfix.store(Prefix("far", words))) as store:
        results = errors(store, [found(store, ident) for ident in ids], "hold")
        held = {ident for ident, task in tasks_in(store).items() if task.state is State.HELD}
    assert all(isinstance(error, StoreError | None) for error in results)
    assert held == {ident for ident, queue in postfix.listed().items() if queue == "hold"}
    return dict(zip(ids, results, strict=True))


def a_case(folder: Path, case: str) -> str:
    """A prefix that acts as a case of sh(1) says."""
    return a_script(folder / "far", f'case "$1" in {case};; esac\nexec "$@"')


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
def test_sudo_names_the_programs(postfix: PostfixInstance, tmp_path: Path, can_find: bool) -> None:
    """No other is tried by sudo; without the rule for find, listings decide."""
    words = postfix.server().instance.find_words
    rule = " ".join(f"'{word}'\\ " for word in words).removesuffix("\\ ").replace("\\  ", "\\ ")
    refused = tmp_path / "refused"
    text = SUDO.replace("RULE", rule if can_find else "nothing").replace("REFUSED", str(refused))
    prefix = Prefix("far", (a_script(tmp_path / "sudo", text), "-n"))
    instance = open_instance(str(postfix.config), prefix)
    assert (instance.can_find, instance.uid) == (can_find, None)
    ids = postfix.deferred(2)
    with closing(postfix.store(prefix)) as store:
        refused.unlink(missing_ok=True)
        tasks = [*tasks_in(store).values()]
        assert {task.due is None for task in tasks} == {not can_find}
        for verb, state in (("hold", State.HELD), ("purge", State.TRASH)):
            assert errors(store, tasks, verb) == [None] * 2
            tasks = [found(store, ident) for ident in ids]
            assert {task.state for task in tasks} == {state}
        bar = store.edges[State.TRASH, None].bars(tasks[0], 0.0)
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
def test_an_act_in_vain(
    postfix: PostfixInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, why: str
) -> None:
    """It is killed, hangs, or is missing: each message is unchanged, with that as the reason."""
    monkeypatch.setattr("engine.formats.postfix.instance.ACT_SECONDS", 1.0)
    results = hold(postfix, a_case(tmp_path, f"*/postsuper) {act}"))
    (text,) = {str(error) for error in results.values()}
    assert text.startswith("far: ") and text.endswith("; looked again: unchanged") and why in text


@pytest.mark.parametrize(
    "case",
    [
        '*/postsuper) "$@" 2>/dev/null; echo "Connection reset" >&2; exit 255',
        '*/postsuper) exec "$@" 2>&1',  # on the other stream
        '*/postsuper) "$@" 2>&1 | head -c 60 >&2; exit 0',
        '*/postsuper) "$@" 2>/dev/null; exit 0',
        '*/postsuper) "$@" 2>&1 | tac >&2; exit 0',
        # a banner: its lines are problems of the listing, those on standard error decide nothing
        "*/postqueue|*/postsuper) echo Welcome to far; echo maintenance at 22:00 >&2",
    ],
)
def test_an_act_whose_lines_are_lost(postfix: PostfixInstance, tmp_path: Path, case: str) -> None:
    """Another look shows what was done, and it is not repeated."""
    results = hold(postfix, a_case(tmp_path, case))
    assert results == dict.fromkeys(results)
    assert postfix.listed() == dict.fromkeys(results, "hold")


def test_half_of_a_listing_is_no_listing(postfix: PostfixInstance, tmp_path: Path) -> None:
    """A program that ends early must not make messages disappear."""
    cut = '"$@" | head -c 300; echo "client_loop: send disconnect" >&2; exit 255'
    with pytest.raises(Unavailable, match="send disconnect"):
        hold(postfix, a_case(tmp_path, f"*/postqueue) {cut}"))


def test_acts_arrive_over_ssh(postfix: PostfixInstance, ssh: SshServer) -> None:
    """Messages are listed, held and shown as on this host."""
    results = hold(postfix, *ssh.words())
    assert results == dict.fromkeys(results)
    assert postfix.listed() == dict.fromkeys(results, "hold")


def test_without_input_no_message_is_gone(postfix: PostfixInstance, tmp_path: Path) -> None:
    """docker without -i: postsuper gets no ids and ends with 0; the reason says so."""
    results = hold(postfix, a_docker(tmp_path), "exec", "mta")
    assert postfix.listed() == dict.fromkeys(results, "deferred")
    for error in results.values():
        assert isinstance(error, Unavailable)
        assert "does it get standard input?" in str(error)


def test_a_text_at_login_is_no_message(postfix: PostfixInstance, ssh: SshServer) -> None:
    """The place is refused: its settings would be read one line off."""
    with pytest.raises(Unavailable):
        postfix.store(Prefix("mx2", ssh.words(host="chatty")))
