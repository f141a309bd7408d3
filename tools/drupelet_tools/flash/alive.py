"""Waits for the first reading of a board that was flashed, as its agent receives it."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import IO

from drupelet_host.base.output import printable
from drupelet_host.home.config import Config, Peer
from drupelet_tools.flash.errors import FlashError

# A board boots, makes its seal's first epoch and sends what it measured within this, and the
# period after which it measures again: its first reading may be put off that long.
WAIT_S = 90.0
_STOP_S = 20.0
_SHOWN_CHARACTERS_MAX = 80


def first_reading(home: Config, peer: Peer, period_s: float = 0.0) -> str:
    """The text of the first reading that comes in from `peer`; raises FlashError.

    An agent is started for it, and stopped again. period_s: from one reading to the next.
    """
    wait_s = WAIT_S + period_s
    command = [sys.executable, "-m", "drupelet_host", "agent", "--home", str(home.home), "--json",
               "--wait"]  # fmt: skip
    lines: queue.Queue[bytes] = queue.Queue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        assert agent.stdout is not None and agent.stderr is not None
        readers = [
            threading.Thread(target=_pass_on, args=(stream, lines), daemon=True)
            for stream in (agent.stdout, agent.stderr)
        ]
        for reader in readers:
            reader.start()
        try:
            return _wait(lines, agent, peer, wait_s)
        finally:
            agent.send_signal(signal.SIGTERM)
            try:
                agent.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                agent.kill()
            for reader in readers:  # whose streams are closed behind this
                reader.join(_STOP_S)


def _pass_on(stream: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    for line in stream:
        lines.put(line)


def _wait(
    lines: "queue.Queue[bytes]", agent: "subprocess.Popen[bytes]", peer: Peer, wait_s: float
) -> str:
    end_s = time.monotonic() + wait_s
    reason = ""
    while (left_s := end_s - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=min(left_s, 1.0))
        except queue.Empty:
            if agent.poll() is not None:
                break
            continue
        try:
            event = json.loads(line)
        except ValueError:
            reason = line.decode("utf-8", "replace").strip()
            continue
        if event.get("event") == "delivered" and event.get("via") == peer.name:
            if event.get("again"):
                continue  # it came before
            return printable(str(event.get("text"))[:_SHOWN_CHARACTERS_MAX])
        if event.get("event") == "carrier" and event.get("peer") == peer.name:
            reason = str(event.get("reason") or event.get("state"))
    raise FlashError(
        f"{peer.name}: no reading came within {wait_s:.0f} s over {peer.url}"
        f" ({printable(reason) or 'nothing heard'}); look at what the board says on its console"
    )
