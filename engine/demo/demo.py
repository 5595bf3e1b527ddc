"""The demo: a folder with demo places, and the keeper process that makes them and keeps them busy.

`Demo` starts the keeper (`engine.demo.keeper`) and reads its messages, a line each: the word
`READY` and the places, `FAILED` and a reason, or any other words for a step.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from engine.config.place_address import parse_address, places_folder
from engine.system import files
from engine.text.error_text import error_text

KEEPER = (
    "import spooldeck; spooldeck.use_own_modules(); from engine.demo.keeper import main; main()"
)
CONFIG_FILE = "spooldeck.yaml"
LOG_FILE = "demo.log"
"""In the demo's folder: what the keeper and the workers print, with the traceback of an error."""
READY, FAILED = "ready", "failed"
"""First words of a line of the keeper: followed by its places, or by the reason of a failure."""

_MAX_MESSAGE_BYTES = 65536
"""Bytes of the keeper's lines that are read at a time: what a pipe holds."""


class Demo:
    """Context manager that starts the keeper process, and with it the whole demo."""

    def __init__(
        self, tasks: int, keep: str, program: Sequence[str], demo_places: Sequence[str]
    ) -> None:
        """`program` is the command line that works a place, after `--config F --root D` and a
        subcommand are added. `keep` names a folder for the places that is not deleted; "": a
        temporary one. `demo_places` are the classes of the places, as "MODULE:CLASS"."""
        self.folder = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix="spooldeck-demo-")
        self._stays = bool(keep)
        self._argv = [
            sys.executable,
            "-P",
            "-c",
            KEEPER,
            self.folder,
            str(tasks),
            "keep" if keep else "leave-nothing",
            ",".join(demo_places),
            *program,
        ]
        self._keeper: subprocess.Popen[bytes] | None = None
        self._urls: list[str] = []
        self._messages = b""

    @property
    def config_path(self) -> str:
        """Path of the configuration file."""
        return f"{self.folder}/{CONFIG_FILE}"

    def wait_for_places(self, say: Callable[[str], None] = lambda _: None) -> list[str]:
        """Wait for the places and return their paths; `say` gets a line for each step until then.
        Raises OSError: they could not be created."""
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        for line in keeper.stdout:
            word, _, rest = line.decode().strip().partition(" ")
            if word == READY:
                os.set_blocking(keeper.stdout.fileno(), False)
                self._urls = [name for name in rest.split() if "://" in name]
                return [place_address(self.folder, name) for name in rest.split()]
            if word == FAILED:
                raise self._failure(rest)
            say(f"{word} {rest}")
        raise self._failure("its process ended")

    def _failure(self, reason: str) -> OSError:
        return OSError(f"the demo could not be set up in {self.folder}: {reason}")

    def trouble(self) -> str:
        """What failed last, or how the keeper ended by itself; "" for nothing. Does not block."""
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        code = keeper.poll()  # before the pipe: its last words are there once it has ended
        with contextlib.suppress(BlockingIOError):
            self._messages += os.read(keeper.stdout.fileno(), _MAX_MESSAGE_BYTES)
        whole = self._messages.rpartition(b"\n")[0]
        self._messages = self._messages[whole.rfind(b"\n") + 1 :]  # from the last whole line on
        last = whole.rpartition(b"\n")[2].decode("utf-8", "replace").partition(" ")[2]
        if code is None:
            return f"the demo: {last} ({self.folder}/{LOG_FILE})" if last else ""
        reason = last if code > 0 else ""  # an error's; a signal leaves no words
        return f"the demo's keeper ended: {reason or describe_exit(keeper)}"

    def last_log_lines(self, most: int = 20) -> list[str]:
        """The last lines of the log, which is deleted with the folder; [] if it is gone."""
        try:
            with open(f"{self.folder}/{LOG_FILE}", encoding="utf-8", errors="replace") as log:
                return log.read().splitlines()[-most:]
        except OSError:
            return []

    def __enter__(self) -> Demo:
        try:
            files.make_folders(self.folder)
            log = open(f"{self.folder}/{LOG_FILE}", "ab")
        except OSError as error:
            raise self._failure(error_text(error)) from error
        with log:
            self._keeper = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # `trouble` reads what comes after the lines that are read here
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        keeper = self._keeper
        if keeper is not None:
            assert keeper.stdout is not None
            os.set_blocking(keeper.stdout.fileno(), True)
            # Closes its standard input; its standard output ends with the last of its processes.
            keeper.communicate()
        for url in self._urls:
            # What our workers keep for a server that ends with the demo, below the user's state.
            place = places_folder(parse_address(url), os.environ, os.geteuid())
            shutil.rmtree(place, ignore_errors=True)
        if not self._stays:
            # Remains of a killed keeper, or files that the console wrote later.
            shutil.rmtree(self.folder, ignore_errors=True)


def describe_exit(process: subprocess.Popen[bytes]) -> str:
    """How a process ended."""
    code = process.returncode
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def place_address(folder: str, name: str) -> str:
    """A place of the demo: below its folder, unless its name is a URL."""
    return name if "://" in name else f"{folder}/{name}"
