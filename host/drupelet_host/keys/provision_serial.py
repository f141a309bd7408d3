"""Keys for a board at the other end of a cable, before it has any (docs/SPEC.md 8.2).

    host   keys hello                       board  {"event":"keys","step":"hello","id":...}
                                            or     {"event":"keys","step":"blank"}
    host   keys configure <drupelet.json>   board  {"event":"keys","step":"configured"}
    host   keys put <peer> <row> <record>   board  {"event":"keys","step":"put","row":...}
    host   keys prove <peer> <row> <nonce>  board  {"event":"keys","step":"proof","proof":...}
    host   keys done                        board  {"event":"keys","step":"done"}

The cable is trusted for this one minute: whoever reads it then has the keys.
"""

import json
import termios
import time
from collections.abc import Callable, Container, Mapping
from typing import Any

import serial

from drupelet.base.errors import E_STORAGE, OK
from drupelet.seal.record import RECORD_SIZE
from drupelet_host.base.output import printable
from drupelet_host.keys.key_folder import ROWS, ChainState, KeysError
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import parse_url
from drupelet_transports.host.serial_line import remedy

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


def _open(text: str) -> serial.SerialBase:
    url = parse_url(text)
    if url.scheme != "serial" or url.host:
        raise KeysError(f"{text}: keys go to a folder or over serial:///dev/... only")
    try:
        return serial.Serial(url.path, url.option_number("baud", _BAUD), exclusive=True)
    except (OSError, ValueError, serial.SerialException, termios.error) as error:
        raise TransportError(f"{text}: {remedy(url.path, error)}") from None


class SerialKeys:
    """The board's side; opening it waits for the board to say that it has no keys."""

    steps = tuple(range(row, row + 1) for row in range(ROWS))
    packs = False  # a board reads records

    def __init__(
        self, text: str, own_id: bytes, peer_id: bytes, port: serial.SerialBase | None = None,
        boot_s: float = _HELLO_S_MAX, configure: Callable[[], bytes] | None = None,
    ) -> None:  # fmt: skip
        """text: the URL of the line; port: it, where it is open. It is closed in the end.

        configure: makes the configuration of a board that has none, one line of JSON.
        """
        self._configure = configure
        self.own_id = own_id
        self.peer_id = peer_id
        self.failure = ""
        self._text = text
        self._line = bytearray()
        self._other = ""  # what the board said last that is no answer
        self._boot_s = boot_s
        self._port = _open(text) if port is None else port
        self._port.timeout = _READ_S
        self._port.write_timeout = _ANSWER_S_MAX
        try:
            self._greet()
        except (KeysError, TransportError):
            self.close()
            raise

    def _greet(self) -> None:
        started_s = time.monotonic()
        self._write(b"\n")  # ends what another command left unfinished
        while time.monotonic() - started_s < self._boot_s:
            self._send("hello")
            answer = self._answer(("hello", "blank"), _HELLO_EVERY_S)
            if answer is not None and answer["step"] == "blank":
                self._send_configuration()
                started_s = time.monotonic()
            elif answer is not None:
                if answer.get("id") != self.own_id.hex():
                    board_id = _shown(answer.get("id"))
                    raise KeysError(f"{self._text}: there is {board_id}, not {self.own_id.hex()}")
                return
        raise KeysError(
            f"{self._text}: no board there waits for keys; one that has some already takes none:"
            " empty its flash, then start it"
            + (f" (it says: {_shown(self._other)})" if self._other else "")
        )

    def _send_configuration(self) -> None:
        """Give its drupelet.json to a board that has none; it then starts."""
        if self._configure is None:
            raise KeysError(f"{self._text}: there is no drupelet.json on the board: send it first")
        self._send("configure " + self._configure().decode())
        if self._answer(("configured",), _ANSWER_S_MAX) is None:
            raise KeysError(f"{self._text}: the board did not take drupelet.json; start it again")

    def _send(self, words: str) -> None:
        self._write(f"keys {words}\n".encode())

    def _write(self, data: bytes) -> None:
        try:
            self._port.write(data)
            self._port.flush()
        except (OSError, serial.SerialException, termios.error):
            raise TransportError(f"{self._text}: the device went away") from None

    def _answer(self, steps: Container[str], wait_s: float) -> dict[str, Any] | None:
        """The board's next answer of one of these steps; None when the time is up."""
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
                answer = json.loads(line)
            except ValueError:  # noise, an echo, or a line of something else
                self._other = line.decode("utf-8", "replace").strip() or self._other
                continue
            if not isinstance(answer, dict) or answer.get("event") != "keys":
                continue
            if answer.get("step") == "no":
                raise KeysError(f"{self._text}: the board says: {_shown(answer.get('why'))}")
            if answer.get("step") in steps:
                return answer
        return None

    def save(self, records: Mapping[int, bytes | bytearray]) -> int:
        """Send one record; OK once the board has it on its flash."""
        ((row, record),) = records.items()
        self._send(f"put {self.peer_id.hex()} {row} {bytes(record[:RECORD_SIZE]).hex()}")
        answer = self._answer(("put",), _ANSWER_S_MAX)
        if answer is None or answer.get("row") != row:
            self.failure = f"{self._text}: the board does not answer; start it again"
            return E_STORAGE
        return OK

    def prove(self, row: int, nonce: bytes) -> bytes:
        """Ask the board to read its flash."""
        self._send(f"prove {self.peer_id.hex()} {row} {nonce.hex()}")
        answer = self._answer(("proof",), _ANSWER_S_MAX)
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
        if self._answer(("done",), _ANSWER_S_MAX) is None:
            raise KeysError(f"{self._text}: the board did not say that it goes on; start it again")
        self.close()

    def close(self) -> None:
        """Let go of the line."""
        self._port.close()
