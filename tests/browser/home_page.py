"""The page of a home with an agent, served while a test looks at it."""

import signal
import subprocess
from contextlib import contextmanager

from drupelet_host.home.config import Peer
from host.conftest import COMMAND, WAIT_S, wait_for

PEERS = (
    Peer("well", b"\xb0\0\0\2", "stick:"), Peer("barn", b"\xc0\0\0\3", "mqtt://127.0.0.1:9/orchard"),
)  # fmt: skip


@contextmanager
def served(make_home, messages):
    """The address of the page, and its home, whose log has these messages."""
    home = make_home("house", 0xA0000001, *PEERS)
    for text in messages:
        home.put(text)
    home.start("--wait")
    wait_for(lambda: len(home.log()) == len(messages), "the messages")
    shown = subprocess.Popen(
        [*COMMAND, "web", "--home", str(home.path)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield shown.stdout.readline().strip(), home
    finally:
        shown.send_signal(signal.SIGTERM)
        assert shown.wait(WAIT_S) == 0
        shown.stdout.close()
        home.stop()
