"""The new id of a requeued message: by a real server's log, by its envelopes, or not yet."""

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix import requeued
from engine.formats.postfix.instance import SETTING_NAMES, Instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.operations import undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Who
from engine.operations.plans import freeze_plan
from engine.operations.run_plan import run_journaled_plan
from engine.programs.mail_store import MailStore
from engine.programs.prefix import HERE, Prefix
from tests.engine.task_builders import NOW, clock
from tests.postfix_server import SINK_DOMAIN, PostfixInstance
from tests.programs import a_script
from tests.smtp_server import Server
from tests.store_contents import found, tasks_in

SECONDS = 60.0
"""Until which a new id is waited for: the pickup of the instance looks each second."""
NO_LOG = {"maillog_file": "/nowhere/mail.log"}


@pytest.fixture(params=[{}, NO_LOG])
def settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a store: with its own log, no envelope is read."""
    if not request.param:
        monkeypatch.setattr(requeued, "list_by_delay", lambda instance, deadline: {})
    return dict(request.param)


def test_new_ids_are_found(postfix: PostfixInstance, settings: dict[str, str]) -> None:
    """They are those of the lines of the log; without one they are found by the envelopes."""
    stays, *others = postfix.deferred(3)
    postfix.run("postsuper", "-r", "-", "deferred", stdin="\n".join([*others, ""]))
    with closing(postfix.store(HERE, **settings)) as store:
        new_ids = store.find_new_ids(others, SECONDS)
        assert {*new_ids} == {*others}
        postfix.await_queue([*new_ids.values()], "deferred")
        for old, new in new_ids.items():
            assert f"{new}: uid=" in postfix.log() and f"> orig_id={old}\n" in postfix.log()
        assert store.find_new_ids([stays], 0.0) == {}


def test_a_listed_id_is_found(postfix: PostfixInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the store has listed it before, and others have left since."""
    list_ids = requeued.list_by_delay
    monkeypatch.setattr(
        requeued, "list_by_delay", lambda *how: {"4D9752DA018": b"", **list_ids(*how)}
    )
    first, second = postfix.deferred(2)
    with closing(postfix.store()) as store:
        postfix.run("postsuper", "-r", "-", "deferred", stdin=f"{first}\n{second}\n")
        new_ids = store.find_new_ids([first, second], SECONDS)
        postfix.await_queue([*new_ids.values()], "deferred")
    with closing(postfix.store(HERE, **NO_LOG)) as store:
        assert {*new_ids.values()} <= {*tasks_in(store)}
        for ident in (first, second):
            assert store.find_new_ids([ident], 0.0) == {ident: new_ids[ident]}


def test_requeued_messages_are_searched_first(tmp_path: Path) -> None:
    """Those whose id was made long after their arrival; of short ids, the oldest."""
    ids = {"7DB7F2DA00C": 0, "7DB7F2DA00D": -500, "4jcgVf4PJHzJFCP": 0, "4jcgVf4PJHzJFCQ": -500}
    lines = [
        {"queue_name": "deferred", "queue_id": ident, "arrival_time": 1795941402 + seconds,
         "message_size": 9, "sender": "a@b", "recipients": []}
        for ident, seconds in ids.items()
    ]  # fmt: skip
    a_script(tmp_path / "postqueue", "\n".join(["cat << END", *map(json.dumps, lines), "END"]))
    instance = Instance("/etc", HERE, f"{tmp_path}/", {}, uid=0, device=None)
    listed = requeued.list_by_delay(instance, time.monotonic() + SECONDS)
    assert [*listed] == [*ids][::-1]


def test_a_search_ends_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its programs is ended at the deadline; of a log elsewhere 1 MiB is asked for."""
    monkeypatch.setattr(requeued, "GRACE_SECONDS", 0.0)
    via = a_script(tmp_path / "via", f'echo "$@" >> {tmp_path}/calls\nexec sleep 600')
    settings = dict.fromkeys(SETTING_NAMES, "") | {"maillog_file": "/var/log/mail.log"}
    instance = Instance("/etc", Prefix("far", (via,)), "/sbin/", settings, uid=0, device=None)
    server = PostfixServer(instance, Marks(f"{tmp_path}/marks"))
    assert server.find_new_ids(["7DB7F2DA00C"], 0.0) == {}
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["tail -c 1048576 /var/log/mail.log", "/sbin/postqueue -c /etc -j"]


def lossy(tmp_path: Path, act: str = '"$@"') -> Prefix:
    """A prefix that loses the connection after an act, in place of which `act` is done."""
    lose = f'case "$1" in */postsuper) {act} 2>/dev/null; echo "Connection reset" >&2; exit 255;;'
    return Prefix("far", (a_script(tmp_path / "far", f'{lose} esac\nexec "$@"'),))


def reroute(store: MailStore, *ids: str, journal: Journal | None = None) -> Report:
    """Requeue messages by a plan."""
    tasks = [found(store, ident) for ident in ids]
    plan = freeze_plan("reroute", tasks, NOW, edges=store.edges)
    intent = Intent("reroute", Who("ana")) if journal else None
    return run_journaled_plan(store, journal, plan, intent, clock)


DONE_LATER = "far: Connection reset; looked again: done"


def test_a_new_id_proves_a_lost_act(postfix: PostfixInstance, tmp_path: Path) -> None:
    """Also of a message that was delivered under it; the result has all new ids."""
    ids = postfix.deferred(1, domain=SINK_DOMAIN) + postfix.deferred(2)
    lost = postfix.store(lossy(tmp_path))
    with Server(port=postfix.sink_port) as sink, closing(lost) as store:
        report = reroute(store, *ids)
        assert sink.wait_for(1)
    assert {*report.done} == {*ids}
    assert report.notes == {DONE_LATER: 3}
    for old, new in report.new_ids.items():
        assert f"{new}: uid=" in postfix.log() and f"> orig_id={old}\n" in postfix.log()


def test_requeued_without_a_pickup_it_is_done(postfix: PostfixInstance, tmp_path: Path) -> None:
    """It has its former id in maildrop: done, and its new id is not seen yet."""
    (ident,) = postfix.deferred(1)
    with closing(postfix.store(lossy(tmp_path), **NO_LOG)) as store, postfix.stopped():
        report = reroute(store, ident)
        assert postfix.listed()[ident] == "maildrop"
    assert (report.done, report.notes) == ((ident,), {DONE_LATER: 1})
    assert report.new_ids == {ident: ""}


def test_without_a_new_id_a_lost_act_is_unknown(postfix: PostfixInstance, tmp_path: Path) -> None:
    """It may have left before or after: the operation stays open until it is settled."""
    (ident,) = postfix.deferred(1)
    journal = Journal(f"{tmp_path}/journal", clock=clock)
    leave = f"/usr/sbin/postsuper -c {postfix.config} -d {ident}"
    with closing(postfix.store(lossy(tmp_path, leave))) as store:
        report = reroute(store, ident, journal=journal)
        why = "far: Connection reset; looked again: not there any more"
        assert (report.gone, report.failed) == ((), ((ident, f"unknown: {why}"),))
        (operation,) = journal.operations()
        assert operation.is_interrupted
        settled = undo.settle_operation(store, journal, operation)
        assert settled.operation is not None and not settled.operation.is_interrupted
    (entry,) = journal.entries(operation.op)
    assert entry.outcome is not None
    assert entry.outcome.reason == "unknown: not there any more, and no new id seen"


def test_an_id_that_comes_later_is_shown_later(
    postfix: PostfixInstance, tmp_path: Path, settings: dict[str, str]
) -> None:
    """While no pickup runs it is not seen; the operation shows it once it is."""
    (ident,) = postfix.deferred(1)
    journal = Journal(f"{tmp_path}/journal", clock=clock)
    with closing(postfix.store(HERE, **settings)) as store:
        with postfix.stopped():
            report = reroute(store, ident, journal=journal)
            assert (report.done, dict(report.new_ids)) == ((ident,), {ident: ""})
            (entry,) = journal.entries(report.op)
            assert entry.outcome is not None and entry.outcome.reason == "new id not seen yet"
            assert [*undo.follow_new_ids(store, journal, report.op, [entry])] == [entry]
        new = store.find_new_ids([ident], SECONDS)[ident]
        (followed,) = undo.follow_new_ids(store, journal, report.op, [entry])
        assert followed.outcome == entry.outcome._replace(reason=f"new id {new}")
        assert [*journal.entries(report.op)] == [followed]
