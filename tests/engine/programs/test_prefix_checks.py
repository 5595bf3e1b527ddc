"""What the doctor finds about a prefix: a real ssh, and programs like docker and sudo."""

import os
from pathlib import Path

import pytest

from engine.doctor.finding import Grade
from engine.programs import prefix_checks
from engine.programs.prefix import HERE, Prefix
from engine.programs.prefix_checks import check_prefix
from engine.system import users
from tests.container_programs import a_docker, a_kubectl, a_sudo
from tests.programs import a_script, needs, needs_root
from tests.ssh_server import WELCOME, SshServer


def found(prefix: Prefix, *programs: str) -> list[tuple[str, str, str]]:
    """The grade, problem and fix of each finding."""
    findings = [finding for _, finding in check_prefix(prefix, programs)]
    return [(finding.grade.value, finding.problem, finding.fix) for finding in findings]


RIGHT = [
    (Grade.OK, "mx2: input and output arrive unchanged", ""),
    (Grade.OK, "mx2: words arrive unchanged", ""),
]


def test_a_prefix_that_is_right(ssh: SshServer, tmp_path: Path) -> None:
    """Input, output and words arrive unchanged; a place on this host has no findings."""
    assert found(HERE) == []
    for words in (
        ssh.words(),
        (a_docker(tmp_path), "exec", "-i", "mta"),
        (a_kubectl(tmp_path), "exec", "-i", "deploy/mta", "--"),
        (*ssh.words(), a_docker(tmp_path), "exec", "-i", "mta"),
    ):
        assert found(Prefix("mx2", words)) == RIGHT


def test_a_missing_input_is_found(ssh: SshServer, tmp_path: Path) -> None:
    """Without -i, or with option -n of ssh, an act gets no ids, and ends with 0."""
    docker, kubectl = a_docker(tmp_path), a_kubectl(tmp_path)
    to_kubectl = (kubectl, "exec", "-n", "mail", "deploy/mta", "--")
    for words, fix in (
        ((docker, "exec", "mta"), f"add -i: {docker} exec -i mta"),
        (to_kubectl, f"add -i: {kubectl} exec -i -n mail deploy/mta --"),
        (ssh.words("-n"), "remove -n and -f from the words of ssh"),
    ):
        problem = "mx2: standard input does not arrive: each act would be for no message"
        assert found(Prefix("mx2", words)) == [(Grade.BAD, problem, fix)]


def test_a_tty_is_found(ssh: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ssh never ends its input; that of docker is refused or changes ends of lines."""
    monkeypatch.setattr(prefix_checks, "CHECK_SECONDS", 2.0)
    for words in (
        ssh.words("-tt"),
        (a_docker(tmp_path), "exec", "-it", "mta"),
        (a_script(tmp_path / "pty", "sed 's/$/\\r/'"),),
    ):
        [(grade, problem, fix)] = found(Prefix("mx2", words))
        assert (grade, problem) == (Grade.BAD, f"mx2: {prefix_checks.TERMINAL}")
        assert fix == "remove -t from the words of `via`"


def test_a_text_at_login_is_found(ssh: SshServer, tmp_path: Path) -> None:
    """The shell of the other host prints it before the listing; control bytes are not shown."""
    [(grade, problem, fix)] = found(Prefix("mx2", ssh.words(host="chatty")))
    assert problem == f"mx2: its shell prints a text at login: {WELCOME}"
    assert (grade, fix[:30]) == (Grade.BAD, "print it only for terminals: [")
    script = "printf '\\033[2Jhello\\n'; exec \"$@\""
    [(_, problem, _)] = found(Prefix("mx2", (a_script(tmp_path / "login", script),)))
    assert problem.endswith(": \ufffd[2Jhello")


def test_no_connection_is_found(ssh: SshServer) -> None:
    """With the last line of the prefix; a program that is missing is named."""
    refused = "ssh: connect to host 127.0.0.1 port 1: Connection refused"
    install = "install it, or correct `via`: no-such-ssh mx2"
    for words, why, advice in (
        (ssh.words("-o", "Port=1"), refused, ""),
        (("no-such-ssh", "mx2"), "no-such-ssh: No such file or directory", install),
    ):
        [(grade, problem, fix)] = found(Prefix("mx2", words))
        assert (grade, problem) == (Grade.BAD, f"mx2: {why}")
        assert fix == advice or not advice


def test_a_wrapper_needs_its_quoting(ssh: SshServer, tmp_path: Path) -> None:
    """A script that calls ssh: the setting that makes it right is named; and one too many."""
    wrapper = a_script(tmp_path / "wrap", f'exec {" ".join(ssh.words())} "$@"')
    problem = "mx2: words arrive changed: a shell has read them"
    changed = (Grade.BAD, problem, "set via_quoting: {mx2: 1}")
    assert found(Prefix("mx2", (wrapper,))) == [RIGHT[0], changed]
    assert found(Prefix("mx2", (wrapper,), 1)) == RIGHT
    assert found(Prefix("mx2", (a_script(tmp_path / "env", 'exec "$@"'),), 0)) == RIGHT


def test_sudo_without_a_rule_is_found(tmp_path: Path) -> None:
    """The fix is the line of sudoers, for the user that logs in there."""
    sudo = a_sudo(tmp_path, "/usr/sbin/postqueue")
    programs = ("/usr/sbin/postqueue", "/usr/sbin/postsuper", "/usr/sbin/postcat")
    others, user = ", ".join(programs[1:]), users.user_name(os.getuid())
    problem = f"mx2: sudo does not allow {others}: sudo: a password is required"
    rule = f"visudo there: {user} ALL=(root) NOPASSWD: {others}"
    findings = found(Prefix("mx2", (sudo, "-n", "-u", "root")), *programs)
    assert findings == [*RIGHT, (Grade.WARN, problem, rule)]


def test_sudo_with_a_rule_is_right() -> None:
    """Root may run each program by a real sudo."""
    needs_root("to be allowed all by sudo")
    findings = found(Prefix("mx2", (needs("sudo"), "-n")), "/usr/bin/true")
    assert findings == [*RIGHT, (Grade.OK, "mx2: sudo allows /usr/bin/true", "")]
