"""An operator's controls with our real scheduler: freeze, thaw, reread and slow stop."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.zmailer.environment import ZmailerSettings
from engine.formats.zmailer.mailq.client import MailqClient
from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.store import Unavailable
from tests.engine.formats.zmailer.scheduler.test_process import until
from tests.engine.formats.zmailer.scheduler.test_process_scripted_day import Day, DaySpool, watching
from tests.engine.formats.zmailer.scheduler.test_spool_controls import store_with_controls

PATIENCE = 60.0


def pending(root: Path) -> set[str]:
    """Why the threads of the scheduler cannot start; none if it does not answer yet."""
    address = ServerAddress("mailq", f"{root}/mailq")
    try:
        with closing(MailqClient(address)) as client:
            view = client.dump()
    except Unavailable:
        return set()
    return {thread.pending for group in view.groups for thread in group.threads}


def open_store(root: Path) -> ZmailerStore:
    """A store with all controls."""
    settings = ZmailerSettings(scheduler_conf=f"{root}/scheduler.conf")
    return store_with_controls(root, settings, time.time)


@pytest.mark.deep
def test_our_scheduler_obeys_an_operator(tmp_path: Path) -> None:
    """Frozen before its start, it starts no agent; thawed, it delivers. A changed configuration is
    shown as a difference and then used; a slow stop ends it."""
    day_spool = DaySpool.fill(tmp_path, Day(messages=1, recipients=1, hosts=1, kills=0))
    conf = tmp_path / "scheduler.conf"
    with closing(open_store(tmp_path)) as store, watching(day_spool):
        store.control("freeze", value="on")
        process = day_spool.start()
        try:
            until(lambda: pending(tmp_path) == {"Frozen"})
            with closing(open_store(tmp_path)) as now:
                assert not [one.refusal for one in now.controls.values() if one.refusal]
                assert now.forecast("reread").words == "no change"
                conf.write_text(conf.read_text().replace("maxring=2", "maxring=1"))
                assert now.forecast("reread").words == "clause smtp/*0: maxring: 2 -> 1"
                assert now.control("reread").endswith(str(process.pid))
                until(lambda: now.forecast("reread").words == "no change")
                now.control("freeze", value="off")
                until(day_spool.is_empty)
                now.control("slow-stop")
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
