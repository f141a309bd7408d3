"""The owner's program: `app.py` on the board's drive, with `sample(now)` and `delivered(message)`.

docs/app.md tells an owner what both may do. An error of the program is printed on the console,
logged in the black box and counted, and the board continues to carry the messages of others.
"""

import gc
import io
import json
import sys

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.events import CODE_ERROR
from drupelet.base.limits import APP_PAYLOAD_SIZE_MAX, ID_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from boards.ports import DevicePort, Port
    from drupelet.node import Node
    from drupelet.telemetry.black_box import BlackBox

_E_APP = const(5)  # the error of an event in the black box (docs/SPEC.md 6.1), and its context:
_SAMPLING = const(1)
_DELIVERING = const(4)
_LOADING = const(5)
# How long a program that hung is not called: longer than the minute in which an image counts a
# reset as a failed start (boards/rp2/image/main.py), which stops the board after three of them.
_REST_MS = const(120000)
_WORDS = ("", "sample", "", "", "delivered", "import")
# The exceptions of Python itself, except SystemExit and KeyboardInterrupt. The owner's own classes
# are added when the program is loaded.
_BUILT_IN_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError,
    MemoryError, NameError, OSError, RuntimeError, StopIteration, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip


def describe(error: BaseException) -> str:
    """Return one line for the program's author: exception class, text, file and line."""
    text = "%s: %s" % (type(error).__name__, error)
    if not isinstance(error, MemoryError) and hasattr(sys, "print_exception"):
        out = io.StringIO()
        sys.print_exception(error, out)
        location = ""
        for line in out.getvalue().split("\n"):
            if line.startswith("  File ") and "boards/app." not in line:
                location = " (" + line[7:] + ")"
        text += location
    return text


class Message:
    """The argument of `delivered`.

    group: the group's name. sender: id, 8 hex digits, of the peer that sent us the message, which
    need not be its author. payload: bytes, None if it is longer than APP_PAYLOAD_SIZE_MAX; size:
    its length. timestamp: ms since the Unix epoch by its author's clock. id: 32 bytes. again: the
    message was given before, but a power cut may have undone what the program did with it.
    """

    def __init__(
        self, group: str, sender: str, payload: "bytes | None", size: int, timestamp: int,
        id: bytes, again: bool,
    ) -> None:  # fmt: skip
        self.group = group
        self.sender = sender
        self.payload = payload
        self.size = size
        self.timestamp = timestamp
        self.id = id
        self.again = again


class App:
    """Takes readings from the owner's program (`take`) and hands messages to it."""

    def __init__(self, path: str, port: "Port", box: "BlackBox") -> None:
        self.errors = 0
        self._port = port
        self._box = box
        self._stamp = bytearray(8)
        self._errors = _BUILT_IN_ERRORS
        self._sample: "Any" = None
        self._delivered: "Any" = None
        self._once = False
        self._ask(_LOADING, self._load, path)

    def _ask(self, where: int, ask: "Callable", argument: object) -> "Any":  # noqa: ANN401 - the owner's
        """Call the program and return its result; None if it fails: print, log and count that."""
        try:
            return ask(argument)
        except self._errors as error:
            if isinstance(error, MemoryError):
                gc.collect()
            self.errors += 1
            now_ms = self._port.now_ms()
            count = self.errors
            self._box.log(now_ms, CODE_ERROR, _E_APP, where, count >> 16 & 0xFFFF, count & 0xFFFF)
            line = {"event": "app", "in": _WORDS[where], "error": describe(error), "errors": count}
            self._port.console.say(json.dumps(line))
            return None

    def _load(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        folder = folder or ("/" if path.startswith("/") else "")
        # After the firmware's own folders, and permanently: the program may import more later.
        if folder not in sys.path:
            sys.path.append(folder)
        program = __import__(name.rsplit(".", 1)[0])
        for name in dir(program):
            value = getattr(program, name)
            if isinstance(value, type) and issubclass(value, Exception):
                self._errors += (value,)
        self._sample = getattr(program, "sample", None)
        self._delivered = getattr(program, "delivered", None)
        self._once = getattr(program, "ONCE", False)
        if self._sample is None and self._delivered is None:
            raise ValueError("it has neither sample(now) nor delivered(message)")

    # --- readings ---

    def take(self, number: int) -> "bytes | bytearray | memoryview | None":  # noqa: ARG002
        """Return the program's next reading; None: it has none, or failed."""
        if self._sample is None:
            return None
        self._port.timestamp_into(self._stamp)
        return self._ask(_SAMPLING, self._reading, int.from_bytes(self._stamp, "big"))

    def _reading(self, now_ms: int) -> "bytes | bytearray | memoryview | None":
        payload = self._sample(now_ms)
        if payload is None:
            return None
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            kind = type(payload).__name__
            raise TypeError("sample() returned %s: return bytes, or None" % kind)
        size = len(payload)
        if size > APP_PAYLOAD_SIZE_MAX:
            raise ValueError(
                "sample() returned %d bytes: at most %d" % (size, APP_PAYLOAD_SIZE_MAX)
            )
        return payload

    # --- messages ---

    def attach(self, device: "DevicePort", name: str, peers: "dict[int, str]", hung: bool) -> None:
        """Subscribe to the device's events; `name`: of the readings' group, `peers`: id by number.

        hung: the watchdog has reset the board, and the program may hang again. So the board
        carries messages for a while before it calls the program.
        """
        self._node: "Node" = device.node
        self._group = device.author.group
        self._name = name
        self._peers = peers
        rest_ms = max(device.epoch_ms, _REST_MS) if hung else 0
        if hung:
            device.due_ms = (self._port.now_ms() + rest_ms) & 0x3FFFFFFF
        if self._delivered is not None:
            device.acts[self._group] = self._deliver
            device.hold(rest_ms)

    def _deliver(self, handle: int) -> int:
        """Hand a message of another member to the program; OK, or a code: try again later.

        The message counts as done after the program has had it; if the program sets ONCE, before
        that, and it is handed over only when that is durable.
        """
        message = self._ask(_DELIVERING, self._message, handle)
        if message is None:
            return OK
        code = OK
        if self._once:
            self._node.done(handle)
            code = self._keep()
        if code == OK:
            self._ask(_DELIVERING, self._delivered, message)
        return code

    def _keep(self) -> int:
        """Save the wake state, in which the message counts as done; OK or a code."""
        return self._node.save(self._port.now_ms())

    def _message(self, handle: int) -> "Message | None":
        """Return the message of an event; None if it is our own or cannot be read."""
        node = self._node
        store = node.store
        if store.load(handle) != OK or not store.source:
            return None
        size = store.size
        head = bytearray(1)
        if not size or store.read_into(handle, 0, head, 0, 1) != 1:
            return None
        at = 1 + head[0] * ID_SIZE
        size -= at
        payload = None
        if 0 <= size <= APP_PAYLOAD_SIZE_MAX:
            payload = bytearray(size)
            if store.read_into(handle, at, payload, 0, size) != size:
                return None
        return Message(
            self._name, self._peers.get(store.source, ""),
            None if payload is None else bytes(payload), size,
            int.from_bytes(store.timestamp, "big"), bytes(store.id), node.event_again,
        )  # fmt: skip
