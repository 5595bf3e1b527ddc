"""Open a ZMailer spool with all that an operator may do there."""

from __future__ import annotations

import os
import time

from engine.formats.base.format import Setup
from engine.formats.zmailer.environment import SchedulerFiles, read_files
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.scheduler.queue_facts import MailqFacts
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_controls import SpoolControls
from engine.formats.zmailer.spool_mail import SpoolMail, read_form
from engine.mail.host import this_host


def open_spool(setup: Setup) -> ZmailerStore:
    """Open the store of a spool.

    Raises:
        Unavailable: it cannot be reached.
    """

    def scheduler_files() -> SchedulerFiles:
        return read_files(setup.settings, os.environ)

    def mail(folders: PostofficeFolders) -> SpoolMail:
        return SpoolMail(
            folders,
            time.time,
            ReportSettings(this_host().name),
            lambda: read_form(scheduler_files().forms),
            lambda: scheduler_files().notify_socket(setup.place),
        )

    return ZmailerStore(
        setup.place,
        mail=mail,
        more_controls=lambda folders: SpoolControls(folders, mail(folders), scheduler_files),
        facts=MailqFacts(scheduler_files),
    )
