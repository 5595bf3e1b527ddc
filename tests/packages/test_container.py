"""The Containerfile: each of its steps is done in a small Debian by debootstrap and chroot, as no
container program is needed for that, and the result is used."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.bullmq_jobs import write_waiting
from tests.programs import needs, needs_root
from tests.pseudo_terminals import Terminal
from tests.redis_server import running_server
from tui import cli

ROOT = Path(__file__).parents[2]

CERTIFICATES = "/etc/pip-certificates.crt"

IN_ROOT = """
mount --make-rprivate /
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
mount -t tmpfs none "$0/tmp"
[ -z "$1" ] || { mkdir -p "$0/queue"; mount --bind "$1" "$0/queue"; }
exec chroot --userspec "$2" "$0" env -i "${@:3}"
"""
"""Run a command in a root folder, with mounts of its own, as a user."""


class Image:
    """A root folder with what the instructions after one FROM have made of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.user = root, "root"
        self.words: tuple[str, ...] = ()
        self.environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def argv(self, *words: str, mount: Path | None = None, also: Sequence[str] = ()) -> list[str]:
        """The command that runs another one there; a folder is mounted on /queue."""
        start = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-ec", IN_ROOT]
        pairs = [f"{name}={value}" for name, value in self.environ.items()]
        return [*start, str(self.root), str(mount or ""), self.user, *pairs, *also, *words]

    def path(self, name: str) -> Path:
        """A path there as one of this machine."""
        return self.root / name.lstrip("/")

    def run(self, *words: str, mount: Path) -> subprocess.CompletedProcess[str]:
        """Run the entry point with words."""
        argv = self.argv(*self.words, *words, mount=mount)
        return subprocess.run(argv, capture_output=True, text=True)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Containerfile with their arguments, without comments."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line and not line.startswith("#"):
            yield line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]


def carry_out(text: str, base: Path, context: Path) -> Image:
    """Do what a Containerfile says, each FROM on a copy of one base. Raises ValueError: an
    instruction is not known."""
    network = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k}
    if "PIP_CERT" in network:
        network["PIP_CERT"] = CERTIFICATES
    stages: dict[str, Image] = {}
    for number, (instruction, words) in enumerate(instructions(text)):
        match instruction, words.split():
            case "FROM", [name, *alias]:
                assert name == "docker.io/library/debian:trixie-slim"
                image = Image(base.with_name(f"stage{number}"))
                subprocess.run(["cp", "-a", base, image.root], check=True)
                stages[alias[-1] if alias else ""] = image
            case "RUN", _:
                also = [f"{name}={value}" for name, value in network.items()]
                argv = image.argv("sh", "-c", words, also=also)
                done = subprocess.run(argv, capture_output=True, text=True)
                assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
            case "COPY", [*options, source, target]:
                (stage,) = (one.removeprefix("--from=") for one in options or ["--from="])
                folder = stages[stage].root if stage else context
                start, end = folder / source.lstrip("/"), image.path(target)
                subprocess.run(["cp", "-aT", start, end], check=True)
            case "ENV", pairs:
                image.environ |= dict(pair.split("=", 1) for pair in pairs)
            case "USER", [user]:
                image.user = user
            case "WORKDIR", [folder]:
                assert image.path(folder).is_dir()
            case "ENTRYPOINT", _:
                image.words = tuple(json.loads(words))
            case _:
                raise ValueError(f"not known: {instruction} {words}")
    return image


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """The last image of the Containerfile."""
    needs_root("chroot, and debootstrap")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mount")
    base, context = tmp_path / "base", tmp_path / "context"
    argv = [needs("debootstrap"), "--variant=minbase", "trixie", str(base)]
    made = subprocess.run(argv, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-2000:]
    for name in ("/etc/resolv.conf", "/etc/hosts"):  # as podman and docker do
        shutil.copy(name, base / name.lstrip("/"))
    if certificates := os.environ.get("PIP_CERT"):  # of an index behind a proxy
        shutil.copy(certificates, base / CERTIFICATES.lstrip("/"))
    ignored = (ROOT / ".dockerignore").read_text().replace("**/", "").split()
    shutil.copytree(ROOT, context, ignore=shutil.ignore_patterns(*ignored))
    return carry_out((ROOT / "Containerfile").read_text(), base, context)


@pytest.mark.deep
def test_a_container_shows_a_mounted_queue_and_one_by_url(image: Image, tmp_path: Path) -> None:
    """Its user is not root, and owns only its home."""
    account = re.search(r"(?m)^spooldeck:x:(\d+):(\d+):", image.path("/etc/passwd").read_text())
    assert account and image.user == "spooldeck"
    uid, gid = map(int, account.groups())
    queue = tmp_path / "queue"
    assert cli.main(["init", str(queue)]) == 0
    assert cli.main(["queue", "add", "report", "--root", str(queue)]) == 0
    for path in (queue, *queue.rglob("*")):
        os.chown(path, uid, gid)
    (tmp_path / "redis").mkdir(mode=0o755)
    url = "redis+unix:///queue/s?db=0"
    status = image.run("status", "/queue", mount=queue)
    with Terminal(image.argv(*image.words, "/queue", mount=queue), {}, (120, 40)) as terminal:
        terminal.shows("report")
        terminal.send("q")
        code = terminal.end()
    with running_server("--unixsocketperm", "777", folder=tmp_path / "redis") as server:
        write_waiting(server.client(), "1")
        held = image.run("hold", url, "--id", "mails/1", "--apply", "1", mount=tmp_path / "redis")
        by_url = image.run("status", url, mount=tmp_path / "redis")
    assert (status.stderr, held.stderr, by_url.stderr, held.returncode) == ("", "", "", 0)
    assert "pending 1" in status.stdout and "held 1" in by_url.stdout
    assert code == 0
