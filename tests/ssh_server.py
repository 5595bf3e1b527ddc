"""A real sshd on loopback with its own keys and settings, for tests of programs on other hosts."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.exim_server import free_port
from tests.programs import a_script, needs, needs_root

START_TIMEOUT_SECONDS = 20.0

WELCOME = "Welcome to mx2"
"""What the shell of `chatty` prints at each login."""

SHELLS = {
    "chatty": f'echo {WELCOME}; eval "$SSH_ORIGINAL_COMMAND"',
}
"""Hosts that do more than to run a command: one prints a text first."""

CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""

CLIENT = """\
Host *
  HostName 127.0.0.1
  Port {port}
  User root
  UserKnownHostsFile {folder}/known
  BatchMode yes
  IdentitiesOnly yes
  IdentityFile {folder}/%n
"""


class SshServer:
    """A running sshd; root logs in to `mx2` and the hosts of `SHELLS`, which are all this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def words(self, *options: str, host: str = "mx2") -> tuple[str, ...]:
        """The prefix of a program there."""
        return ("ssh", "-F", str(self.folder / "client"), *options, host)


def _make_key(path: Path) -> str:
    command = [needs("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path.with_suffix(".pub").read_text()


@contextmanager
def running_sshd() -> Iterator[SshServer]:
    """Start sshd, and end it by its PID; the connections that it has are closed then."""
    needs_root("to log in by ssh without the password of a user")
    program, _ = needs("sshd"), needs("ssh")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd(8): the package makes it at boot
    with tempfile.TemporaryDirectory(prefix="sds", dir="/tmp") as name:
        folder, port = Path(name), free_port()
        _make_key(folder / "host")
        host_key = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}")
        keys = [_make_key(folder / "mx2")]
        for host, script in SHELLS.items():
            shell = a_script(folder / f"{host}.sh", script)
            keys.append(f'command="{shell}" {_make_key(folder / host)}')
        (folder / "authorized").write_text("".join(keys))
        (folder / "client").write_text(CLIENT.format(port=port, folder=folder))
        (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
        with (folder / "log").open("wb") as log:
            words = [program, "-D", "-e", "-f", str(folder / "config")]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log)
        try:
            _await(process, folder / "log")
            yield SshServer(folder)
        finally:
            process.terminate()
            process.wait()


def _await(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_TIMEOUT_SECONDS
    while "Server listening" not in log.read_text():
        if process.poll() is not None or time.monotonic() > until:
            raise OSError(f"sshd does not start: {log.read_text()}")
        time.sleep(0.01)


def close_master(words: tuple[str, ...]) -> None:
    """End the connection that a prefix with ControlPersist keeps open."""
    *options, host = words
    subprocess.run([*options, "-O", "exit", host], capture_output=True, env=dict(os.environ))
