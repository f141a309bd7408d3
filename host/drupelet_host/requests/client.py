"""Asking the agent that runs on a home: requests, and its status."""

import socket
import time
from typing import Any

from drupelet.base.errors import DrupeletError, PeerError
from drupelet_host.home import config
from drupelet_host.home.config import Config
from drupelet_host.member.report_shapes import MemberReport, converted
from drupelet_host.member.status import last_status
from drupelet_host.requests.connection import open_socket
from drupelet_host.requests.shapes import (
    ANSWER_SIZE_MAX,
    AskStatus,
    Request,
    decode_answer,
    encode,
)

# How long a command waits for the agent: a full stick of 32 KB bodies takes seconds.
ANSWER_WAIT_S = 60.0
# The agent answers this between two turns; while a long visit lasts, what it said last is shown.
STATUS_WAIT_S = 5.0
# How often a socket is looked for that an agent makes just now.
_LOOK_EVERY_S = 0.05
_READ_SIZE = 1 << 16


class NoAnswerError(DrupeletError):
    """The agent is not there, or does something else for too long."""


def ask(
    settings: Config, request: Request, what: str, wait_s: float = ANSWER_WAIT_S
) -> dict[str, Any]:
    """Have the running agent do something; its answer, which may be `error` with one line.

    Who stops waiting, as by Ctrl-C, closes the connection: what was not begun is not done then.
    what: names the request in the error. Raises NoAnswerError.
    """
    answer = _ask(settings, request, wait_s, is_patient=True)
    if answer is None:
        raise NoAnswerError(
            f"{what}: the agent gave no answer; look at what it prints, then repeat"
        )
    return answer


def live_status(settings: Config) -> MemberReport:
    """What the running agent says of itself now; an empty report when none answers."""
    try:
        answer = _ask(settings, AskStatus(), STATUS_WAIT_S, is_patient=False)
    except PeerError:  # it only informs
        return MemberReport()
    return converted(answer) if answer is not None else MemberReport()


def latest_status(settings: Config) -> MemberReport:
    """What the running agent says of itself, or what an agent or a stick visit said last."""
    live = live_status(settings)
    return live if live.said_ms else last_status(settings.status_path)


def _ask(
    settings: Config, request: Request, wait_s: float, is_patient: bool
) -> dict[str, Any] | None:
    """The agent's answer; None when there is none in time.

    is_patient: an agent that has the home and no socket yet is waited for.
    """
    end_s = time.monotonic() + wait_s
    while True:
        try:
            connection = open_socket(settings.home, max(end_s - time.monotonic(), _LOOK_EVERY_S))
            break
        except OSError as error:
            # A queue in front of the socket moves on; an agent that starts makes its socket.
            is_hopeful = isinstance(error, BlockingIOError) or (
                is_patient and config.locked(settings.home)
            )
            if not is_hopeful or time.monotonic() > end_s:
                return None
        time.sleep(_LOOK_EVERY_S)
    with connection:
        try:
            connection.sendall(encode(request))
            line = _read_line(connection, end_s)
        except OSError:
            return None
    return decode_answer(line) if line else None


def _read_line(connection: socket.socket, end_s: float) -> bytes:
    """One line; b"" when the agent hung up before its end. Raises OSError, TimeoutError too."""
    received = bytearray()
    while not received.endswith(b"\n"):
        connection.settimeout(max(end_s - time.monotonic(), _LOOK_EVERY_S))
        part = connection.recv(_READ_SIZE)
        if not part or len(received) > ANSWER_SIZE_MAX:
            return b""
        received += part
        if time.monotonic() > end_s:
            raise TimeoutError
    return bytes(received)
