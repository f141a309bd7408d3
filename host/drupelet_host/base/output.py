"""What the agent and the commands print: lines for people, JSON lines for programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# What stands for a byte from 80 to ff that is no UTF-8 (PEP 383).
_BYTE_FIRST = 0xDC80
_BYTE_LAST = 0xDCFF
# Of a message so much is shown to a person: five lines of a usual terminal.
MESSAGE_CHARACTERS_MAX = 400
# Shown in place of a message that the disk has spoiled.
DAMAGED_TEXT = "(damaged; `drupelet doctor` says what to do)"
# Events with a message of somebody, which is nothing for a log.
_MESSAGE_KINDS = ("delivered", "channel", "chat")


class Output:
    """Prints events to standard output, each at once unless they are told `together`."""

    def __init__(self, as_json: bool) -> None:
        import logging  # what only prints a line does not wait for it

        self.as_json = as_json
        self._at_once = True
        self._log = logging.getLogger("drupelet.event")

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is told inside may be seen at the end only: many lines are one write."""
        self._at_once = False
        try:
            yield
        finally:
            self._at_once = True
            sys.stdout.flush()

    def event(self, kind: str, text: str, /, **fields: object) -> None:
        """One line; `fields` are the JSON object's keys beside `event`.

        The log gets it, too, unless it has a message in it.
        """
        if kind not in _MESSAGE_KINDS:
            say = self._log.warning if kind == "alarm" else self._log.info
            say("%s: %s", kind, text)
        if self.as_json:
            print(json.dumps({"event": kind, **fields}), flush=self._at_once)
        else:
            line(f"{kind:<10} {text}", self._at_once)


def counted(count: int, noun: str) -> str:
    """How many of what: "1 peer", "2 peers"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def payload_text(payload: bytes) -> str:
    """A payload for a table: its text as `printable` shows it, or its size and hex."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload)} B {payload[:16].hex()}{'…' if len(payload) > 16 else ''}"
    return printable(text)


def message_start(text: str) -> str:
    """A message's text for people: of a long one the start, and how much is not shown.

    Anybody in the group may write 32 KB; JSON output has all of it.
    """
    left_out = len(text) - MESSAGE_CHARACTERS_MAX
    if left_out <= 0:
        return text
    return f"{text[:MESSAGE_CHARACTERS_MAX]}… ({left_out:,} more characters; --json has them)"


def printable(text: str) -> str:
    """A text that others may have a part in, on one line: what steers a terminal is escaped.

    A byte that is no UTF-8 (PEP 383) is escaped as that byte.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in text)


def _escaped(code: int) -> str:
    if _BYTE_FIRST <= code <= _BYTE_LAST:
        code &= 0xFF
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def line(text: str, at_once: bool = True) -> None:
    """One line on standard output for people, whoever wrote what is in it."""
    print(printable(text), flush=at_once)


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2), flush=True)


def complain(text: str) -> None:
    """The one line on standard error that says what was refused and what to do."""
    print(f"drupelet: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)
