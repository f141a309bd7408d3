"""Homes with messages to export, exports as processes, and places at which one is killed."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from drupelet_host import create_home
from drupelet_host.base import clock
from drupelet_host.home import config
from drupelet_host.member.member import Member
from drupelet_host.store import database, outbox

MakeLog = Callable[[Path, Iterable[bytes]], None]
# The command in a process that ends itself, as by SIGKILL, before or after the n-th call of a
# method; `half` only: after half of the bytes of an append.
KILLED = """
import importlib, os, signal, sys
where, name, when, count = sys.argv[1:5]
sys.argv = ["drupelet", *sys.argv[5:]]
module, _, owner = where.partition(":")
place = importlib.import_module(module)
for part in owner.split(".") if owner else []:
    place = getattr(place, part)
real, left = getattr(place, name), int(count)
def call(*values, **named):
    global left
    left -= 1
    if left == 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if left == 0 and when == "half":
        real(values[0], values[1][: len(values[1]) // 2], *values[2:])
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*values, **named)
    if left == 0 and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(place, name, call)
from drupelet_host.export import run
run.BATCH_MAX = 5
from drupelet_host.entry import main
main()
"""


def fill(home: Path, bodies: Iterable[bytes], wall_ms: int | None = None) -> None:
    """Make the home if it is not there, and publish messages as its agent does."""
    if not home.exists():
        create_home(home, "gate", "orchard").close()
    settings = config.load(home)
    with contextlib.closing(database.connect(settings.store_path)) as connection:
        for body in bodies:
            outbox.post(connection, body, wall_ms)
    member = Member(settings)
    while member.publish_letters(clock.now_ms()):
        for event in member.events():
            member.take_delivered(event)
    member.close(clock.now_ms())
    member.sealing.close()


def killed(where: str, name: str, when: str, count: int, *words: str) -> int:
    """Run a command that ends itself there; its exit code."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, where, name, when, str(count), *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode
