"""Refused commands: the exit code, one line on stderr, nothing on stdout, and no change."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.nftban.task_format import MAX_KEY_LENGTH
from tests import command
from tests.nftban_queues import add_task, bury_one, clean_environment
from tests.other_users import tree
from tests.tables import each
from tests.zgb_console_place import PAUSE, RATE, REDIRECT, ZgbConsolePlace

DESCRIPTION = "edit: this queue has no description field\n"
RECIPIENT = "edit: this queue has no recipient field\n"
NO_FILE = "expected FILE (or - for stdin) after the recipients"
ANY = "--from a@b.org --to c@d.org"
ADD = "queue add --root {queue}"
LETTER = {"types": {"user": {"template": "/dev/null"}}}
PASSWORD = {"user": "me", "password_file": "/nowhere"}

USAGE = {
    "bogus": "unknown command or place: 'bogus' (see `spooldeck --help`)",
    "edit {task} {queue} --due noon --dry-run": "expected a time to come",
    "edit {task} {queue} --due +8d --dry-run": "at most 7 days",
    "edit {task} {queue} --dry-run": "nothing to change: expected a new --description or",
    "edit {task} {queue} --due now": "expected --dry-run",
    "edit {task} {queue} --due now --apply 2": "or --apply 1",
    "edit {task} {queue} --due now --apply 1 --dry-run": "which changes nothing",
    "edit {mail} {spool} --to b@ --dry-run": "'b@' is not a valid address: nothing after its @\n",
    "note {task} {long} {queue}": "at most 500",
    "control --dry-run": "expected the NAME of a control",
    "control {pause}": "no such place; a control needs --dry-run or --apply N",
    "control {pause} {database}": "expected --dry-run or --apply N with the NAME",
    "control {pause} {database} --dry-run --apply 1": "expected either --dry-run, or --apply N",
    "control {pause} {database} {database} --dry-run": "expected the NAME of a control",
    "kannader init {queue}": "contains another program's queue",
    f"kannader enqueue --root {{spool}} {ANY}": "arguments are required: FILE",
    f"kannader enqueue --root {{spool}} {ANY} e@f.org": NO_FILE,
    f"kannader enqueue --root {{spool}} {ANY} one two three": NO_FILE,
    "kannader enqueue --from a@ --to c@d.org - {spool}": "'a@' is not a valid SMTP address",
    "kannader enqueue --from 'a\nb@c.org' --to c@d.org - {spool}": "is not a valid SMTP address",
    "kannader enqueue --from a@b.org --to 'a b@c.org' - {spool}": "'a b@c.org' is not a valid SMTP",
    "kannader enqueue --from a@b.org --to '<>' - {spool}": "--to is empty, expected an address",
    "kannader enqueue --from a@b.org --to '' - {spool}": "--to is empty, expected an address",
    f"{ADD} report --data missing": "--data missing: No such file or directory",
    f"{ADD} report --data .": "--data .: Is a directory",
    f"{ADD} mail_send --data {{data}}": "mail_send takes a mail of the mail spool",
    f"{ADD} Report --data {{data}}": "task type 'Report': expected a-z 0-9 _",
    f"{ADD} report text {{queue}}/mailspool/x --data {{data}}": "a payload and data: expected one",
    f"{ADD} report --at someday": "at 'someday': expected a time to come",
    f"{ADD} report --delay 8d": "due at most 7 days from now",
    f"{ADD} report --delay soon": "expected a duration such as 30s",
    f"{ADD} report --delay 1m --at 14:00": "--delay and --at: expected one of them",
    f"{ADD} report --key '$HOME'": "key '$HOME': expected at most 200 printable characters",
    f"{ADD} report --key {'x' * (MAX_KEY_LENGTH + 1)}": "expected at most 200 printable",
    f"{ADD} --batch {{data}} --key k": "are for one task: with --batch expected in the JSON",
    "mail spool retry --root {queue}": "expected the ids of mails, as `mail spool list`",
    "mail spool retry --all mail-x --root {queue}": "expected the ids of mails, as ",
    "mail spool retry --refused --root {queue}": "expected the ids of mails, as ",
    "mta ages --by colour /etc/postfix": "--by colour: expected one of destination, group, kind",
    "zgb init {database}": "already exists; nothing was changed",
    "zgb enqueue 8 {database}": "no registration 8",
}
"""Words that make no sense, exit code 64, and what is expected instead."""

REFUSED = {
    "edit {dead} {queue} --due now --apply 1": "not from dead",
    "edit {mail} {spool} --description x": DESCRIPTION,
    "edit 1001-user {database} --description x": DESCRIPTION,
    "edit 1001-user {database} --to b@y.org": RECIPIENT,
    "edit {task} {queue} --to b@y.org": RECIPIENT,
    "note nowhere x {queue}": "nowhere: no such task",
    "mail spool show ../../etc {queue}": "../../etc",
    "mail spool show mail-no {queue}": "mail-no",
    "mail spool retry mail-no {queue}": "mail-no",
    "control pause {queue} --apply 1": "no control 'pause' here: this queue has none; nothing was",
    "control {rate} --value 0 --root {database}": "'0', expected a whole number from 1 to",
    "control {pause} --root {database}": "mailQueueEnabled is nothing, expected 1 or 0",
    "control {pause} --value 1 --target x --root {database}": "mailQueueEnabled takes no target",
    "control halt --root {database}": "no control 'halt' here: expected one of mailQueueEnabled, ",
    "control {redirect} --value 1 --root {database}": "registration period 2026-11-01 to",
}
"""Commands that the queue or the task refuses, exit code 1, and the reason; a dry run and --apply
both, unless one of them is in the row."""

ABSENT = {
    "kannader work {folder}": "is no Kannader spool, expected the folders data, queue, inflight",
    "kannader recover {folder}": "(spooldeck kannader init DIR makes them)",
    f"kannader enqueue {ANY} - {{folder}}": "is no Kannader spool",
    "zgb work {folder}": "no mail queue",
    "zgb work {folder}/text": "no mail queue",
    "zgb work {folder}/missing": "no mail queue",
    "mail spool list --root {spool}": "{spool} is a Kannader spool: no mail spool\n",
    "queue recover --root {folder}": "no queue, expected the folders pending, work and dlq",
}
"""Places that are not what the command needs, exit code 69, and what was expected."""

SETTINGS = {
    "": ("kannader", {}, "stores.kannader.host is not set"),
    "password file": ("kannader", {"host": "relay.example.org", **PASSWORD}, "/nowhere"),
    "no TLS": ("kannader", {"host": "192.0.2.1", "tls": "none", **PASSWORD}, "without TLS"),
    "ca_file": ("kannader", {"host": "127.0.0.1", "ca_file": "/nowhere"}, "/nowhere"),
    "misspelt": ("kannader", {"hots": "127.0.0.1"}, "did you mean host?"),
    "short lease": ("zgb", {"lease": 60, **LETTER}, "stores.zgb.lease: the lease of 60 s may"),
    "no number": ("zgb", {"lease": "x"}, "stores.zgb.lease: expected a duration"),
}
"""Settings of a store by which its worker cannot send, exit code 78, and the reason."""


@pytest.fixture(scope="module")
def placeholders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A queue, a Kannader spool, a ZGB database and a folder that is none of them."""
    folder = tmp_path_factory.mktemp("r")
    (folder / "folder").mkdir()
    (folder / "folder" / "text").write_text("hello")
    queue, spool, database = str(folder / "data"), str(folder / "spool"), ZgbConsolePlace(folder)
    database.in_earnest()
    command.run(["init", queue], check=True, env=clean_environment(folder), capture_output=True)
    dead, task = bury_one(queue).id, add_task(queue).id
    make_spool(spool)
    with closing(KannaderStore(spool)) as store:
        (mail,) = store.enqueue("a@b.org", ["c@d.org"], [b"Hi\n"])
    return {
        **{"queue": queue, "spool": spool, "database": database.path, "folder": folder / "folder"},
        **{"task": task, "dead": dead, "mail": mail, "all": folder, "data": folder / "folder/text"},
        **{"long": "x" * 501, "pause": PAUSE, "rate": RATE, "redirect": REDIRECT},
    }


def refuse(
    placeholders: dict[str, object], words: str, code: int, why: str, settings: str = "{}"
) -> None:
    """Run one command, and check what every refused command keeps."""
    folder = Path(str(placeholders["all"]))
    config = folder / "some.yaml"
    config.write_text(settings)
    before = tree(folder)
    argv = ["--config", str(config), *shlex.split(words.format_map(placeholders))]
    done = command.run_text(*argv, input="Hi\n", env=clean_environment(folder))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("spooldeck: ") and done.stderr.count("\n") == 1
    assert why.format_map(placeholders) in done.stderr
    assert tree(folder) == before


ROWS = [
    *((words, 64, why) for words, why in USAGE.items()),
    *((words, 1, why) for words, why in REFUSED.items()),
    *((words, 69, why) for words, why in ABSENT.items()),
]


@each(("words", "code", "why"), ROWS)
def test_a_command_that_cannot_be_carried_out_has_its_code(
    placeholders: dict[str, object], words: str, code: int, why: str
) -> None:
    """Wrong words are 64, a refusal 1, also of a dry run, and a missing place 69."""
    both = code == 1 and not words.startswith(("note", "mail")) and not words.endswith("--apply 1")
    for how in ("--dry-run", "--apply 1") if both else ("",):
        refuse(placeholders, f"{words} {how}", code, why)


@each(("store", "settings", "why"), SETTINGS.values())
def test_unusable_settings_are_code_78(
    placeholders: dict[str, object], store: str, settings: dict[str, object], why: str
) -> None:
    """A worker that can send nothing claims nothing."""
    place = {"kannader": "{spool} --until-idle", "zgb": "{database}"}[store]
    text = json.dumps({"stores": {store: settings}})
    refuse(placeholders, f"{store} work {place}", 78, why, text)


def test_a_required_reason_is_asked_for(placeholders: dict[str, object]) -> None:
    """Where the configuration requires a reason, a change without one is code 64."""
    words = "control {pause} {database} --value 0 --apply 1"
    refuse(placeholders, words, 64, "expected --reason TEXT", "require_reason: true")
