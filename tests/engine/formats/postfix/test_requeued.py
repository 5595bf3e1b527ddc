"""The new id of a requeued message: by a real server's log, by its envelopes, or not yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix.instance import open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.operations import undo
from engine.operations.journal import Intent, Journal, Who
from engine.operations.plans import freeze_plan
from engine.operations.run_plan import run_journaled_plan
from engine.programs.mail_store import MailStore
from tests.engine.task_builders import NOW, clock
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, running_instance
from tests.smtp_server import Server
from tests.store_contents import found

SECONDS = 60.0
"""Until which a new id is waited for: the pickup of the instance looks each second."""


@pytest.fixture(scope="module")
def postfix() -> Iterator[PostfixInstance]:
    """An instance that runs."""
    with running_instance() as instance:
        yield instance


def opened(postfix: PostfixInstance, log: str = "") -> MailStore:
    """A store on it; its log is elsewhere with `log`."""
    instance = open_instance(str(postfix.config))
    if log:
        instance = instance._replace(settings={**instance.settings, "maillog_file": log})
    return MailStore(PostfixServer(instance, Marks(str(postfix.marks))))


@pytest.mark.parametrize("log", ["", "/nowhere/mail.log"])
def test_new_ids_are_found(postfix: PostfixInstance, log: str) -> None:
    """They are those of the lines of the log; without one they are found by the envelopes."""
    ids = postfix.deferred(3)
    stays, *requeued = ids
    postfix.run("postsuper", "-r", "-", "deferred", stdin="\n".join([*requeued, ""]))
    with closing(opened(postfix, log)) as store:
        new_ids = store.find_new_ids(requeued, SECONDS)
        assert {*new_ids} == {*requeued}
        postfix.await_queue([*new_ids.values()], "deferred")
        for old, new in new_ids.items():
            assert f"{new}: uid=" in postfix.log() and f"> orig_id={old}\n" in postfix.log()
        assert store.find_new_ids([stays], 0.0) == {}


def test_the_new_id_of_a_message_that_has_left_is_in_the_log(postfix: PostfixInstance) -> None:
    """A message that is delivered under its new id is found as well."""
    (ident,) = postfix.deferred(1, domain=SINK_DOMAIN)  # its port refuses
    with Server(port=postfix.sink_port) as sink, closing(opened(postfix)) as store:
        postfix.run("postsuper", "-r", "-", "deferred", stdin=f"{ident}\n")
        assert sink.wait_for(1)
        (new,) = store.find_new_ids([ident], SECONDS).values()
        postfix.await_queue([new], "")
        assert store.find_new_ids([ident], 0.0) == {ident: new}


@pytest.mark.parametrize("log", ["", "/nowhere/mail.log"])
def test_an_id_that_comes_later_is_shown_later(
    postfix: PostfixInstance, tmp_path: Path, log: str
) -> None:
    """While no pickup runs, the message is requeued and its new id is not seen yet; the operation
    shows it once it is."""
    (ident,) = postfix.deferred(1)
    journal = Journal(f"{tmp_path}/journal", clock=clock)
    with closing(opened(postfix, log)) as store:
        plan = freeze_plan("reroute", [found(store, ident)], NOW, edges=store.edges)
        postfix.stop()
        report = run_journaled_plan(store, journal, plan, Intent("reroute", Who("ana")), clock)
        assert (report.done, dict(report.new_ids)) == ((ident,), {ident: ""})
        (entry,) = journal.entries(report.op)
        assert entry.outcome is not None and entry.outcome.reason == "new id not seen yet"
        assert [*undo.follow_new_ids(store, [entry])] == [entry]
        postfix.start()
        new = store.find_new_ids([ident], SECONDS)[ident]
        (followed,) = undo.follow_new_ids(store, journal.entries(report.op))
        assert followed.outcome == entry.outcome._replace(reason=f"new id {new}")
