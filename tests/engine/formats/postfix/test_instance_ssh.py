"""A real Postfix on another host: a real ssh, also one that loses its connection, and programs like
docker; each planned message has an outcome that is so.
"""

from contextlib import closing
from pathlib import Path

import pytest

from engine.model import State
from engine.programs.prefix import Prefix
from engine.store import Unavailable
from tests.container_programs import a_docker
from tests.postfix_server import PostfixInstance, errors
from tests.ssh_server import SshServer
from tests.store_contents import tasks_in


def hold(postfix: PostfixInstance, *words: str) -> dict[str, Exception | None]:
    """Hold all that is listed behind a prefix, as one plan; why each message was not held."""
    with closing(postfix.store(Prefix("mx2", words))) as store:
        tasks = tasks_in(store)
        results = dict(zip(tasks, errors(store, tasks.values(), "hold"), strict=True))
        held = {ident for ident, task in tasks_in(store).items() if task.state is State.HELD}
    assert held == {ident for ident, queue in postfix.listed().items() if queue == "hold"}
    return results


def test_acts_arrive_over_ssh(postfix: PostfixInstance, ssh: SshServer) -> None:
    """Messages are listed, held and shown as on this host."""
    ids = postfix.deferred(3)
    assert hold(postfix, *ssh.words()) == dict.fromkeys(ids)
    assert postfix.listed() == dict.fromkeys(ids, "hold")


def test_a_lost_act_is_looked_at_again(postfix: PostfixInstance, ssh: SshServer) -> None:
    """Two of three are done, one has failed with the reason, and none was tried again."""
    postfix.deferred(3)
    results = hold(postfix, *ssh.words(host="lossy"))
    held = {ident for ident, queue in postfix.listed().items() if queue == "hold"}
    assert len(held) == 2
    assert {ident for ident, error in results.items() if error is None} == held
    (failed,) = filter(None, results.values())
    assert "Connection to 127.0.0.1 closed by remote host" in str(failed)


def test_without_input_no_message_is_gone(postfix: PostfixInstance, tmp_path: Path) -> None:
    """docker without -i: postsuper gets no ids and ends with 0; the reason says so."""
    ids = postfix.deferred(2)
    results = hold(postfix, a_docker(tmp_path), "exec", "mta")
    assert postfix.listed() == dict.fromkeys(ids, "deferred")
    for error in results.values():
        assert isinstance(error, Unavailable)
        assert "does it get standard input?" in str(error)


def test_a_text_at_login_is_no_message(postfix: PostfixInstance, ssh: SshServer) -> None:
    """The place is refused: its settings would be read one line off."""
    with pytest.raises(Unavailable):
        postfix.store(Prefix("mx2", ssh.words(host="chatty")))
