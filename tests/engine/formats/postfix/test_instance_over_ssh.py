"""A real Postfix on another host: a real ssh, also one that loses its connection, and programs like
docker; each planned message has an outcome that is so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.postfix.instance import open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Move, Outcome, State, Task
from engine.programs.mail_store import MailStore
from engine.programs.prefix import Prefix
from engine.store import Unavailable
from tests.container_programs import a_docker
from tests.postfix_server import PostfixInstance, running_instance
from tests.ssh_server import SshServer, running_sshd


@pytest.fixture(scope="module")
def ssh() -> Iterator[SshServer]:
    """A real sshd."""
    with running_sshd() as server:
        yield server


@pytest.fixture(scope="module")
def started() -> Iterator[PostfixInstance]:
    """An instance that runs."""
    with running_instance() as instance:
        yield instance


@pytest.fixture
def postfix(started: PostfixInstance) -> Iterator[PostfixInstance]:
    """The same, without a message."""
    started.clear()
    yield started
    started.clear()


def opened(postfix: PostfixInstance, words: tuple[str, ...]) -> MailStore:
    """A store on it, behind a prefix."""
    instance = open_instance(str(postfix.config), Prefix("mx2", words))
    return MailStore(PostfixServer(instance, Marks(str(postfix.marks))))


def hold(store: MailStore) -> list[Outcome]:
    """Hold all that is listed, as one plan."""
    tasks = {task.id: task for task in store.scan() if isinstance(task, Task)}
    held = partial(verbs.VERBS["hold"].function, now=time.time())
    moves = [Move(tasks[ident], held(tasks[ident])) for ident in sorted(tasks)]
    outcomes = list(store.swap_all(moves))
    assert [outcome.move for outcome in outcomes] == moves
    return outcomes


def test_acts_arrive_over_ssh(postfix: PostfixInstance, ssh: SshServer) -> None:
    """Messages are listed, held and shown as on this host."""
    ids = postfix.deferred(3)
    with closing(opened(postfix, ssh.words())) as store:
        assert [outcome.error for outcome in hold(store)] == [None] * 3
        states = {task.id: task.state for task in store.scan() if isinstance(task, Task)}
    assert states == dict.fromkeys(ids, State.HELD)
    assert postfix.listed() == dict.fromkeys(ids, "hold")


def test_a_connection_that_is_lost_after_an_act_is_looked_at_again(
    postfix: PostfixInstance, ssh: SshServer
) -> None:
    """The act was done for two of three, and its answer is lost: both are done, one has failed with
    the reason, and none was tried again.
    """
    postfix.deferred(3)
    with closing(opened(postfix, ssh.words(host="lossy"))) as store:
        outcomes = hold(store)
    held = {ident for ident, queue in postfix.listed().items() if queue == "hold"}
    assert len(held) == 2
    done = {one.move.new.id for one in outcomes if one.error is None and one.move.new}
    assert done == held
    (failed,) = (str(one.error) for one in outcomes if one.error is not None)
    assert "Connection to 127.0.0.1 closed by remote host" in failed


def test_without_standard_input_no_message_is_said_to_be_gone(
    postfix: PostfixInstance, tmp_path: Path
) -> None:
    """docker without -i: postsuper gets no ids, prints that it is done, and ends with 0. All have
    failed, and the reason names the doctor.
    """
    ids = postfix.deferred(2)
    with closing(opened(postfix, (a_docker(tmp_path), "exec", "mta"))) as store:
        errors = [outcome.error for outcome in hold(store)]
    assert postfix.listed() == dict.fromkeys(ids, "deferred")
    for error in errors:
        assert isinstance(error, Unavailable)
        assert "does it get standard input?" in str(error)


def test_a_text_at_login_is_no_message(postfix: PostfixInstance, ssh: SshServer) -> None:
    """The place is refused: its settings would be read one line off."""
    with pytest.raises(Unavailable):
        opened(postfix, ssh.words(host="chatty"))
