"""Report the diagnostics of a message to its sender: a mail in router/, and `+` on their d lines.

The mail is staged with the lines that it reports; the tag of the first one decides after a kill
whether it is sent (`submit.Router`), so each diagnostic is reported once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from engine.stores.zmailer import marks
from engine.stores.zmailer.folders import PostofficeFolders
from engine.stores.zmailer.marks import Commit, LineChange
from engine.system import files
from engine.zmailer import diagnostics, syslog_lines
from engine.zmailer.reports import (
    MAX_ENVELOPE_BYTES,
    ReportedMessage,
    ReportForm,
    ReportSettings,
    compose_report,
)
from engine.zmailer.scheduler.message_outcomes import ReportRequest
from engine.zmailer.submit import Router

_COPY_BYTES = 1 << 20
