"""What the doctor finds at a real Postfix place."""

import pwd
from typing import NoReturn

from engine.config.queue_config import Config
from engine.doctor.finding import Finding, Grade
from engine.formats.known_formats import setup_for
from engine.formats.postfix.doctor import check_instance
from engine.formats.postfix.place import check_place, find_instance
from engine.store import Unavailable
from tests.postfix_server import PostfixInstance, new_instance

NOT_ROOT = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def findings(
    postfix: PostfixInstance, via: tuple[str, ...] = (), folder: str = ""
) -> dict[str, list[Finding]]:
    """The findings by check, here or through a prefix, where it may be in another folder."""
    setup = postfix.setup()
    if via:
        config, place = Config()._replace(via={"mx": via}), folder or postfix.config
        setup = setup_for(config, f"postfix://mx{place}", {})
        setup = setup._replace(state_folder=str(postfix.marks))
    found: dict[str, list[Finding]] = {}
    for name, finding in check_place(setup):
        found.setdefault(name, []).append(finding)
    return found


def test_an_instance_that_runs(postfix: PostfixInstance) -> None:
    """Each check has a line; only the setting of the test is warned of."""
    (ident,) = postfix.deferred(1)
    found = findings(postfix)
    names = "program files running rights corrupt settings log disk"
    assert " ".join(found) == names
    worse = {name for name, all_ in found.items() for one in all_ if one.grade is not Grade.OK}
    assert worse == {"settings"}
    assert found["settings"][0].problem.startswith("defer_transports = smtp")
    assert "-X defer_transports" in found["settings"][0].fix
    assert "running, PID" in found["running"][0].problem
    assert any("short ids" in one.problem for one in found["settings"])
    (path,) = postfix.queue.glob(f"deferred/*/{ident}")
    damaged = postfix.queue / "corrupt" / ident
    path.rename(damaged)
    (corrupt,) = findings(postfix)["corrupt"]
    damaged.unlink()
    assert corrupt.grade is Grade.BAD and ident in corrupt.problem


def test_a_user_who_is_not_root_gets_the_line_for_sudo(postfix: PostfixInstance) -> None:
    """What he may not run is named, with what is unknown without it."""
    found = findings(postfix, NOT_ROOT)
    (rights,) = found["rights"]
    assert rights.grade is Grade.BAD and "may not list" in rights.problem
    user = pwd.getpwuid(65534).pw_name
    assert f"{user} ALL=(root) NOPASSWD: /usr/sbin/postqueue" in rights.fix
    (running,) = found["running"]
    assert running.grade is Grade.HIDDEN and "Permission denied" in running.problem
    assert [one.grade for one in found["prefix"]] == [Grade.OK, Grade.OK]


def test_root_that_gets_no_listing_lacks_no_right(postfix: PostfixInstance) -> None:
    """The reason is the one that was printed; no line for sudo would help."""

    def refuse(_: object) -> NoReturn:
        raise Unavailable("postqueue: fatal: no memory")

    found = dict(check_instance(find_instance(postfix.setup()), refuse))
    assert "rights" not in found and "running, PID" in found["running"].problem
    assert found["listing"].problem == "unknown what waits: postqueue: fatal: no memory"


def test_a_user_who_may_only_list(postfix: PostfixInstance) -> None:
    """Each right that is missing has the line for sudo; what he cannot see is unknown, not well."""
    there = f'mount --bind {postfix.config} /etc/postfix && exec "$@"'
    words = ("unshare", "-m", "--propagation=private", "sh", "-c", there, "sh", *NOT_ROOT)
    found = findings(postfix, words, "/etc/postfix")
    missing = [one.problem.split(": ")[1] for one in found["rights"]]
    assert missing == ["postsuper", "postcat", "find"]
    assert all("NOPASSWD: /usr/sbin/postqueue" in one.fix for one in found["rights"])
    assert [one.grade for one in found["corrupt"]] == [Grade.HIDDEN]
    assert [one.grade for one in found["running"]] == [Grade.OK]


def test_a_stopped_instance_whose_files_others_may_write() -> None:
    """It is stopped, and a prefix shows that others than root could run programs as root by it."""
    with new_instance() as postfix:
        (postfix.config / "master.cf").chmod(0o664)
        found = findings(postfix, ("env",))
        here = findings(postfix)
    (running,) = found["running"]
    assert (running.grade, running.problem) == (Grade.BAD, "Postfix is stopped")
    assert running.fix == f"postfix -c {postfix.config} start"
    assert "rights" not in found and "listing" not in found
    (file,) = found["files"]
    assert file.grade is Grade.BAD and file.fix.startswith("chown root ")
    (program,) = here["program"]  # without a prefix it is not used at all
    assert "not used as root" in program.problem
