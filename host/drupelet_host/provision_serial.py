"""Keys for a board at the other end of a cable, before it has any (docs/SPEC.md 8.2).

    host   keys hello                       board  {"event":"keys","step":"hello","id":...}
    host   keys put <peer> <row> <record>   board  {"event":"keys","step":"put","row":...}
    host   keys prove <peer> <row> <nonce>  board  {"event":"keys","step":"proof","proof":...}
    host   keys done                        board  {"event":"keys","step":"done"}

The cable is trusted for this one minute: whoever reads it then has the keys.
"""

import json
import termios
import time
from collections.abc import Mapping
from typing import Any

import serial

from drupelet.errors import E_STORAGE, OK
from drupelet.seal_record import RECORD_SIZE
from drupelet_host.keys import ROWS, ChainState, KeysError
from drupelet_host.output import printable
from drupelet_transports.base import TransportError
from drupelet_transports.serial_host import remedy
from drupelet_transports.url import parse_url

_BAUD = 115200
_READ_S = 0.1
# A board boots, and its console comes up, within this.
_HELLO_S_MAX = 10.0
_HELLO_EVERY_S = 0.5
# A flash sector is erased, written and read back within this.
_ANSWER_S_MAX = 5.0
_LINE_SIZE_MAX = 512
# What a person is shown of a text of the board's: longer ones are not those of our firmware.
_SHOWN_CHARACTERS_MAX = 80


def _shown(value: object) -> str:
    """What the board said, for a message: whoever holds the cable may be no board of ours."""
    return printable(str(value)[:_SHOWN_CHARACTERS_MAX])


class SerialKeys:
    """The board's side; opening it waits for the board to say that it has no keys."""

    steps = tuple(range(row, row + 1) for row in range(ROWS))
    packs = False  # a board reads records

    def __init__(self, text: str, own_id: bytes, peer_id: bytes) -> None:
        url = parse_url(text)
        if url.scheme != "serial":
            raise KeysError(f"{text}: keys go to a folder or over serial:///dev/... only")
        self.own_id = own_id
        self.peer_id = peer_id
        self.failure = ""
        self._text = text
        self._line = bytearray()
        try:
            self._port = serial.Serial(
                url.path, url.option_number("baud", _BAUD), timeout=_READ_S,
                write_timeout=_ANSWER_S_MAX, exclusive=True,
            )  # fmt: skip
        except (OSError, ValueError, serial.SerialException, termios.error) as error:
            raise TransportError(f"{text}: {remedy(url.path, error)}") from None
        try:
            self._greet()
        except (KeysError, TransportError):
            self.close()
            raise

    def _greet(self) -> None:
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < _HELLO_S_MAX:
            self._send("hello")
            answer = self._answer("hello", _HELLO_EVERY_S)
            if answer is not None:
                if answer.get("id") != self.own_id.hex():
                    said = _shown(answer.get("id"))
                    raise KeysError(f"{self._text}: there is {said}, not {self.own_id.hex()}")
                return
        raise KeysError(
            f"{self._text}: no board there waits for keys; one that has some already takes none:"
            " empty its flash, then start it"
        )

    def _send(self, words: str) -> None:
        try:
            self._port.write(f"keys {words}\n".encode())
            self._port.flush()
        except (OSError, serial.SerialException, termios.error):
            raise TransportError(f"{self._text}: the device went away") from None

    def _answer(self, step: str, wait_s: float) -> dict[str, Any] | None:
        """The board's next answer of that step; None when the time is up."""
        end_s = time.monotonic() + wait_s
        while time.monotonic() < end_s:
            try:
                self._line += self._port.read_until(b"\n", _LINE_SIZE_MAX)
            except (OSError, serial.SerialException):
                raise TransportError(f"{self._text}: the device went away") from None
            if len(self._line) < _LINE_SIZE_MAX and not self._line.endswith(b"\n"):
                continue
            line, self._line = bytes(self._line), bytearray()
            try:
                said = json.loads(line)
            except ValueError:
                continue  # noise, an echo, or a line of something else
            if not isinstance(said, dict) or said.get("event") != "keys":
                continue
            if said.get("step") == "no":
                raise KeysError(f"{self._text}: the board says: {_shown(said.get('why'))}")
            if said.get("step") == step:
                return said
        return None

    def save(self, records: Mapping[int, bytes | bytearray]) -> int:
        """Send one record; OK once the board has it on its flash."""
        ((row, record),) = records.items()
        self._send(f"put {self.peer_id.hex()} {row} {bytes(record[:RECORD_SIZE]).hex()}")
        answer = self._answer("put", _ANSWER_S_MAX)
        if answer is None or answer.get("row") != row:
            self.failure = f"{self._text}: the board does not answer; start it again"
            return E_STORAGE
        return OK

    def prove(self, row: int, nonce: bytes) -> bytes:
        """Ask the board to read its flash."""
        self._send(f"prove {self.peer_id.hex()} {row} {nonce.hex()}")
        answer = self._answer("proof", _ANSWER_S_MAX)
        try:
            return bytes.fromhex(answer["proof"]) if answer else b""
        except (KeyError, TypeError, ValueError):
            return b""

    def states(self) -> list[ChainState]:
        """A board that waits for keys has none."""
        return []

    def kids(self) -> set[int]:
        """A board that waits for keys has none."""
        return set()

    def finish(self) -> None:
        """Send the board on."""
        self._send("done")
        if self._answer("done", _ANSWER_S_MAX) is None:
            raise KeysError(f"{self._text}: the board did not say that it goes on; start it again")
        self.close()

    def close(self) -> None:
        """Let go of the line."""
        self._port.close()
