"""A board's prompt: programs of ours run there, and answer with a line of JSON.

`mpremote` moves the bytes (raw REPL, raw paste). What goes wrong on the way is one line here.
"""

import contextlib
import io
import json
import re
import struct
import termios
import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import serial
from mpremote.transport import TransportError
from mpremote.transport_serial import SerialTransport

from drupelet_host.base.output import printable
from drupelet_tools.flash.errors import BoardError, CableError, FlashError
from drupelet_tools.flash.target import check_device, why_closed

# A board answers within this, erasing a block of flash or hashing a file included.
ANSWER_S_MAX = 20.0
# A board boots, up to its prompt, within this.
BOOT_S_MAX = 20.0
# So often a port is opened that is taken, and a prompt that still has something to say is asked.
_TRIES = 5
# A node that is told to leave its cable writes its state first.
_LEAVE_S = 0.5
# Who has shown a prompt and says nothing for so long waits for us; so often it is looked at.
_SILENT_S, _LOOK_S = 0.1, 0.01
# Ends a node whose console carries frames (firmware/boards/console_line.py).
_ESCAPE = b"\x00\x03\x03\x00"
_CTRL_B, _CTRL_D = b"\r\x02", b"\x04"
_CTRL_C_B, _ENTER, _PROMPT = b"\x03\x02", b"\r", b">>> "
# Of a board's own words so much is shown.
_SHOWN_CHARACTERS_MAX = 160
_OS_ERROR = re.compile(r"OSError: (?:\[Errno )?([0-9]+)")
_WENT = (OSError, serial.SerialException, termios.error, struct.error, IndexError)


class BoardRepl:
    """The prompt of the board on `device`; close it, or use it as a context."""

    def __init__(self, device: str) -> None:
        self.device = device
        check_device(device)
        self._transport: Any = self._opened()
        self._loaded: set[str] = set()

    def _opened(self) -> Any:  # noqa: ANN401 - of a library without types
        """A port that a program has just let go of may take a moment; raises FlashError."""
        for left in reversed(range(_TRIES)):
            try:
                return SerialTransport(self.device, timeout=ANSWER_S_MAX)
            except (TransportError, ValueError, termios.error):
                if not left:
                    break
                time.sleep(_LEAVE_S)
        raise FlashError(f"{self.device}: {why_closed(self.device)}")

    def __enter__(self) -> "BoardRepl":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the port; what runs on the board goes on."""
        with contextlib.suppress(*_WENT):
            self._transport.close()

    @property
    def port(self) -> Any:  # noqa: ANN401 - pyserial's, of several classes
        """The open port, for what is spoken to a board that runs its own program."""
        return self._transport.serial

    def enter(self) -> None:
        """Stop what runs, start the interpreter anew without main.py, and come to its prompt."""
        self._loaded.clear()
        try:
            self._come_to_prompt()
            # It prints what it read where that is not what it waited for.
            with contextlib.redirect_stdout(io.StringIO()):
                self._transport.enter_raw_repl(soft_reset=True, timeout_overall=BOOT_S_MAX)
                self._agree()
        except TransportError:
            raise FlashError(
                f"{self.device}: no MicroPython answers there; press the board's reset button,"
                " or put MicroPython on it first, then repeat"
            ) from None
        except _WENT:
            raise CableError(self._gone()) from None

    def _come_to_prompt(self) -> None:
        """Stop what runs. One that boots does not hear it, so it is told until there is a prompt.

        Without one it may still be a board, one whose prompt is another.
        """
        end_s = time.monotonic() + BOOT_S_MAX
        while time.monotonic() < end_s:
            self.port.write(_ESCAPE + _CTRL_C_B + _ENTER)
            if self._is_at_prompt(end_s):
                return

    def _is_at_prompt(self, end_s: float) -> bool:
        """Take what the board says until it waits at its prompt; False: not within _LEAVE_S."""
        last = b""
        heard_s = time.monotonic()
        leave_s = heard_s + _LEAVE_S
        while (now_s := time.monotonic()) < end_s:
            if waiting := self.port.in_waiting:
                last = (last + self.port.read(waiting))[-len(_PROMPT) :]
                heard_s = now_s
            elif now_s >= (heard_s + _SILENT_S if last == _PROMPT else leave_s):
                break
            else:
                time.sleep(_LOOK_S)
        return last == _PROMPT

    def _agree(self) -> None:
        """Have the board's answers belong to our questions: what it said before may come late."""
        for number in range(_TRIES):
            with contextlib.suppress(BoardError):
                if self._run(f"print('agreed', {number})", None)[-1:] == [f"agreed {number}"]:
                    return
            time.sleep(_LEAVE_S)
            self._transport.enter_raw_repl(soft_reset=False, timeout_overall=BOOT_S_MAX)
        raise TransportError("answers do not belong to questions")

    def start(self) -> None:
        """Start the interpreter anew, main.py included; the prompt is left."""
        try:
            self.port.write(_CTRL_B)
            self._is_at_prompt(time.monotonic() + _LEAVE_S)
            self.port.reset_input_buffer()
            self.port.write(_CTRL_D)
            self.port.flush()
        except _WENT:
            raise CableError(self._gone()) from None

    def _gone(self) -> str:
        return (
            f"{self.device}: the board stopped to answer (cable pulled, power lost?); plug it in"
            " and repeat: only what is missing is sent"
        )

    def call(self, program: str, call: str, line: Callable[[str], None] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Run `call` after the program `on_board/<program>.py`; what it printed last, from JSON.

        line: gets each line that it prints before.
        """
        if program not in self._loaded:
            folder = resources.files("drupelet_tools.flash.on_board")
            self._run((folder / f"{program}.py").read_text("utf-8"), None)
            self._loaded.add(program)
        lines = self._run(f"print(json.dumps({call}))", line)
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            raise CableError(self._gone()) from None

    def _run(self, source: str, line: Callable[[str], None] | None) -> list[str]:
        pending = bytearray()
        lines: list[str] = []

        def take(data: bytes) -> None:
            pending.extend(data.replace(b"\x04", b""))
            while b"\n" in pending:
                text, _, rest = bytes(pending).partition(b"\n")
                pending[:] = rest
                if lines and line is not None:
                    line(lines[-1])
                lines.append(text.strip().decode("utf-8", "replace"))

        try:
            _, error = self._transport.exec_raw(source, ANSWER_S_MAX, data_consumer=take)
        except (TransportError, *_WENT):
            raise CableError(self._gone()) from None
        if error:
            raise self._failed(error.decode("utf-8", "replace"))
        return lines

    def _failed(self, traceback: str) -> BoardError:
        last = (traceback.strip().splitlines() or ["nothing said"])[-1]
        text = printable(last[:_SHOWN_CHARACTERS_MAX])
        match = _OS_ERROR.search(last)
        return BoardError(f"{self.device}: the board says: {text}", int(match[1]) if match else 0)
