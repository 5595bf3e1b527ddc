"""The agent's side of a conversation."""

import socket
from collections.abc import Iterator

from engine.formats.zmailer.agents.jobs import run_agent
from engine.formats.zmailer.scheduling.agent_lines import JobLine, format_resync


def serve(job: JobLine) -> Iterator[bytes]:
    """AgentAnswer two recipients of a job; nothing to do in file 3."""
    if job.path == "3":
        yield format_resync(job.path)
        return
    for offset in (10, 20):
        yield b"%d/%d\t\tok3 %b\n" % (job.ident, offset, job.host or b"-")


def test_an_agent_answers_each_job_and_is_hungry_again() -> None:
    """Until an empty line or the end of its input; a partial last line is no job."""
    for lines, answers in (
        (b"", b"#hungry\n"),
        (b"\n", b"#hungry\n"),
        (b"#idle\n\n7\th\n", b"#hungry\n#hungry\n"),
        (b"A/7\tmx\n", b"#hungry\n7/10\t\tok3 mx\n7/20\t\tok3 mx\n#hungry\n"),
        (b"3\tmx\n8\n", b"#hungry\n#resync 3\n#hungry\n8/10\t\tok3 -\n8/20\t\tok3 -\n#hungry\n"),
        (b"A/7\tm", b"#hungry\n"),
        (b"../x\n", b"#hungry\n#no job: ../x\n#hungry\n"),
    ):
        scheduler, agent = socket.socketpair()
        with scheduler, agent:
            scheduler.sendall(lines)
            scheduler.shutdown(socket.SHUT_WR)
            run_agent(serve, agent.fileno(), agent.fileno())
            assert scheduler.recv(4096) == answers


def test_an_agent_ends_if_the_scheduler_is_gone() -> None:
    """The job whose answer could not be written is the last one."""
    scheduler, agent = socket.socketpair()
    done = []

    def close_and_serve(job: JobLine) -> Iterator[bytes]:
        done.append(job.path)
        scheduler.close()
        yield b"7/10\t\tok3 done\n"

    with agent:
        scheduler.sendall(b"7\th\n8\th\n")
        run_agent(close_and_serve, agent.fileno(), agent.fileno())
    assert done == ["7"]
