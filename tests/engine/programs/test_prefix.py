"""Programs behind a prefix: a real ssh and chroot, and programs like docker, kubectl and sudo."""

import os
import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest

from engine.config.place_address import parse_address
from engine.config.queue_config import Config
from engine.programs.prefix import HERE, Prefix, path_of, prefix_of, program_paths, run_first
from engine.store import Unavailable
from engine.system.run_program import ProgramEnd
from tests.container_programs import a_docker, a_kubectl, a_sudo
from tests.programs import a_script, needs_root
from tests.ssh_server import SshServer, close_master
from tests.tables import each

WORDS = ("a b", "$(id -un)", "it's", "*", "", "\\", "\n", "-n", "~", "a;b&c|d>e", '"', "\udcff")
"""Words that a shell changes, if it reads them."""

LARGE = b"4EBEB2DA019\n" * 100_000


@pytest.fixture(params=["here", "ssh", "ssh ssh", "docker", "kubectl", "chroot", "ssh docker"])
def prefix(request: pytest.FixtureRequest, tmp_path: Path) -> Prefix:
    """A prefix of each kind."""
    words: list[str] = []
    for kind in str(request.param).split():
        match kind:
            case "ssh":
                words += request.getfixturevalue("ssh").words()
            case "docker":
                words += [a_docker(tmp_path), "exec", "-i", "mta"]
            case "kubectl":
                words += [a_kubectl(tmp_path), "exec", "-i", "-n", "mail", "deploy/mta", "--"]
            case "chroot":
                needs_root("to use chroot")
                words += ["chroot", "/"]
    return Prefix("mx2" if words else "", tuple(words))


def why_not(prefix: Prefix, *paths: str) -> str:
    """Why a prefix runs no program."""
    with pytest.raises(Unavailable) as caught:
        run_first(prefix, paths or program_paths("cat"), ["-l"])
    return str(caught.value)


def test_words_and_input_arrive_unchanged(prefix: Prefix) -> None:
    """No shell reads a word of a program, however many are on the way; all of its input arrives."""
    lines, end = prefix.run(["printf", r"%s\0", *WORDS])
    assert b"\n".join(lines) == b"".join(os.fsencode(word) + b"\0" for word in WORDS)
    assert (end.status, prefix.why_failed(end)) == (0, "")
    lines, end = prefix.run(["cat"], LARGE)
    assert b"".join(line + b"\n" for line in lines) == LARGE
    assert (end.status, prefix.why_failed(end)) == (0, "")


def test_the_end_of_a_program_is_known(prefix: Prefix) -> None:
    """Its status is no failure: only its lines decide; a signal and a limit are. Of a detached one,
    which has no input, the caller has the output if it ends in time."""
    for status in (1, 69, 75):
        script = f"echo line; echo 'postsuper: warning: x' >&2; exit {status}"
        lines, end = prefix.run(["sh", "-c", script])
        assert (lines, prefix.why_failed(end), prefix.is_missing(end)) == ([b"line"], "", False)
        assert end.status == status
    lines, end = prefix.run(["sh", "-c", "echo line; kill -9 $$"])
    assert lines == [b"line"] and prefix.why_failed(end)
    lines, end = prefix.run(["sh", "-c", "exec sleep 3"], idle_seconds=0.01)
    before = "mx2: " if prefix.words else ""
    assert (lines, prefix.why_failed(end)) == ([], f"{before}nothing printed for 0.01 s")
    detached = prefix.start_detached(["sh", "-c", "cat; echo 'a  b'; exit 3"], 60)
    assert detached is not None
    assert (detached.errors.splitlines()[0], detached.status) == (b"a  b", 3)


def test_a_program_that_is_missing_is_known_as_such(prefix: Prefix) -> None:
    """The first of several paths that is there is used; if none is, the error names all."""
    path, lines, _ = run_first(prefix, ("/no/such", "no-such", "printf"), ["%s", "x y"])
    assert (path, lines) == ("printf", [b"x y"])
    before = "mx2: " if prefix.words else ""
    paths = "/usr/sbin/no-such, /usr/local/sbin/no-such, no-such"
    why = why_not(prefix, *program_paths("no-such"))
    assert why == f"{before}not installed: none of {paths}"


def test_a_lost_connection_is_a_failure(ssh: SshServer, tmp_path: Path) -> None:
    """The act is done and its connection is gone: 255, and what was printed before is kept."""
    mx2, done = Prefix("mx2", ssh.words()), tmp_path / "done"
    script = "trap '' HUP; echo 4EBEB2DA019; kill -9 $PPID; cat >/dev/null; : > \"$1\""
    os.mkfifo(done)
    with closing(mx2.start(["sh", "-c", script, "sh", str(done)], b"")) as program:
        lines = [*program.lines()]
    assert program.end is not None
    assert lines in ([b"4EBEB2DA019"], [])
    assert program.end.status == 255
    assert mx2.why_failed(program.end) == "mx2: Connection to 127.0.0.1 closed by remote host."
    assert done.read_bytes() == b""  # it opens the pipe: the program went on


def test_a_connection_that_ssh_keeps_open_is_not_waited_for(ssh: SshServer) -> None:
    """ControlPersist leaves a process with our standard error; the next program uses it."""
    path = ssh.folder / "master"
    shared = ("ControlMaster=auto", f"ControlPath={path}", "ControlPersist=60")
    mx2 = Prefix("mx2", ssh.words(*(word for one in shared for word in ("-o", one))))
    try:
        for _ in range(2):
            lines, end = mx2.run(["seq", "20000"], idle_seconds=50)
            assert (len(lines), end.status, end.limit) == (20_000, 0, "")
            assert path.is_socket()
    finally:
        close_master(mx2.words)


def test_a_prefix_that_reaches_nothing_is_one_line(ssh: SshServer, tmp_path: Path) -> None:
    """Its own last line decides; a program that is not installed is named."""
    sudo = (a_sudo(tmp_path, "/usr/bin/id"), "-n")
    assert run_first(Prefix("c", sudo), ("/usr/bin/id",), ["-u"])[1] == [b"%d" % os.getuid()]
    docker = (a_docker(tmp_path), "exec", "-i", "gone")
    kubectl = (a_kubectl(tmp_path), "exec", "-i", "deploy/gone", "--")
    no_pod = 'Error from server (NotFound): deployments.apps "gone" not found'
    for words, why in (
        (ssh.words("-o", "Port=1"), "ssh: connect to host 127.0.0.1 port 1: Connection refused"),
        (docker, "Error response from daemon: No such container: gone"),
        (kubectl, no_pod),
        (sudo, "sudo: a password is required"),
        (("no-such-docker", "exec"), "no-such-docker: No such file or directory"),
    ):
        assert why_not(Prefix("c", words)) == f"c: {why}"
    missing = Prefix("c", ("no-such-docker", "exec"))
    for run in (lambda: missing.run(["cat"]), lambda: missing.start_detached(["cat"], 1)):
        with pytest.raises(Unavailable, match=r"^c: no-such-docker: No such file or directory$"):
            run()


@each(
    ("words", "status", "errors", "why"),
    [
        ("ssh mx2", 255, b"", "x: ssh ended with status 255"),
        ("docker exec -i mta", 255, b"", ""),
        ("docker exec -i mta", 125, b"docker: bad\n", "x: docker: bad"),
        ("docker exec -i mta", 137, b"", "x: ended by SIGKILL"),
        ("wrapper", 1, b"sudo: unable to resolve host mx2\n", ""),
        ("wrapper", 1, b"Sorry, user web is not allowed to execute 'x'.\n", None),
        ("wrapper", 0, b"Error: x\n", ""),
        ("kubectl exec -i p --", 1, b"command terminated with exit code 1\n", ""),
        ("kubectl exec -i p --", 1, b"x\ncommand terminated with exit code 137\n", None),
        ("kubectl exec -i p --", 1, b"error: unable to upgrade connection\n", None),
        ("ssh mx2", -15, b"", "x: ended by SIGTERM"),
        ("ssh mx2", None, b"", "x: ended by no signal"),
        ("", 127, b"", ""),
        ("", 255, b"Error: x", ""),
        ("", -9, b"", "x: ended by SIGKILL"),
    ],
)
def test_the_failures_of_a_prefix_are_told_from_those_of_a_program(
    words: str, status: int | None, errors: bytes, why: str | None
) -> None:
    """By exit status where the prefix has its own, else by its last line; None is any reason."""
    reason = Prefix("x", tuple(words.split())).why_failed(ProgramEnd(status, errors, 0.1))
    assert reason if why is None else reason == why


def test_a_wrapper_is_quoted_as_often_as_the_setting_says(ssh: SshServer, tmp_path: Path) -> None:
    """`via_quoting` is for a script that calls ssh itself."""
    script = f'exec {shlex.join(ssh.words())} "$@"'
    wrapper = a_script(tmp_path / "on-mx2", script)
    for quoting, expected in ((None, b"[a][b]"), (1, b"[a  b]")):
        prefix = Prefix("mx2", (wrapper,), quoting)
        assert prefix.run(["printf", "[%s]", "a  b"])[0] == [expected]


VIA = Config("/etc/spooldeck/config.yaml", via={"mx2": ("ssh", "mx2"), "jail": ("chroot", "/j")})


def test_the_prefix_of_a_place_is_named_in_its_url() -> None:
    """A path has none."""
    assert prefix_of(VIA, parse_address("/etc/postfix")) == HERE
    address = parse_address("SCHEME://MX2/etc/a%20b")
    assert prefix_of(VIA, address) == Prefix("mx2", ("ssh", "mx2"), None)
    assert path_of(address) == "/etc/a b"
    assert path_of(parse_address("/etc/postfix")) == "/etc/postfix"
    quoting = VIA._replace(via_quoting={"jail": 2})
    assert prefix_of(quoting, parse_address("x://jail/p")).quoting == 2


@each(
    ("config", "place", "why"),
    [
        (VIA, "x://mx9/etc", "no mx9 in `via` of /etc/spooldeck/config.yaml: expected one of"),
        (VIA, "x://root@mx2/etc", "no root@mx2 in `via`"),
        (VIA, "x://mx2:22/etc", "no mx2:22 in `via`"),
        (VIA, "x:///etc", "no name in `via`"),
        (Config(), "x://mx2/etc", "no mx2 in `via`: it has no names: add its words there"),
        *(
            (None, f"x://mx2{path}", "expected SCHEME://NAME/PATH, such as x://mx2/")
            for path in ("", "/", "//", "/etc/", "/a/../b", "/etc?db=1")
        ),
    ],
)
def test_an_unknown_name_or_path_is_one_line(config: Config | None, place: str, why: str) -> None:
    """It names the place, and the names that there are; one place has one name."""
    with pytest.raises(Unavailable, match=re.escape(why)):
        if config is None:
            path_of(parse_address(place))
        else:
            prefix_of(config, parse_address(place))


@each(
    ("words", "rest"),
    [
        ("ssh mx2 sudo -n", "ssh mx2"),
        ("ssh mx2 /usr/bin/sudo -n -u root", "ssh mx2"),
        ("sudo -n docker exec -i mta", "sudo -n docker exec -i mta"),
        ("ssh mx2", "ssh mx2"),
        ("sudo", ""),
    ],
)
def test_only_a_sudo_at_the_end_is_left_away(words: str, rest: str) -> None:
    """One before docker belongs to docker."""
    assert Prefix("x", tuple(words.split())).plain.words == tuple(rest.split())
