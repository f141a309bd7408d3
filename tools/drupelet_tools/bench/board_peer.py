"""The other end of a board's serial line: a node on CPython that answers, always the same."""

import json
import time
from collections.abc import Callable
from types import TracebackType

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.engine.members import SHARED
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_tools.bench.errors import BenchError
from drupelet_transports.common.transport import Transport

GROUP = b"bench"
HOST = bytes.fromhex("40000000")
BOARD = bytes.fromhex("a0000001")
EPOCH_MS = 500
BODY_SIZE = 100
MESSAGES = 8  # that each sends
FRAME_SIZE_MICRO = 251  # drupelet.micro.serial_line
_FILES_SIZE = 1 << 22
PAUSE_S = 0.002
# How long a board has nothing to do at the end of an exchange one by one.
_QUIET_MS = 8 * EPOCH_MS
# Timestamps count from here, so that two runs publish the same messages.
_MOMENT_MS = 1_700_000_000_000


def configuration(readings: int, url: str) -> bytes:
    """Of a board with readings of BODY_SIZE bytes; tables of 4 peers, 16 offers, 32 messages."""
    shell = len('{"board":"","n":0,"temp_c":null,"supply_mv":null}')
    return json.dumps({
        "name": "M" * (BODY_SIZE - shell), "id": BOARD.hex(), "flash": "/log",
        "group": GROUP.decode(), "epoch_ms": EPOCH_MS, "readings_max": readings,
        "heap_limit": 0, "telemetry_to": [], "peers_max": 4, "messages_max": 32,
        "offers_max": 16, "filter_size": 2048,
        "peers": [{"id": HOST.hex(), "url": url, "mode": "batch"}],
    }).encode()  # fmt: skip


def monotonic_ms() -> int:
    """This machine's clock, as nodes take it."""
    return int(time.monotonic() * 1000) & 0x3FFFFFFF


class BoardPeer:
    """A member of the group, on an open line, which it closes."""

    def __init__(
        self, line: Transport, frame_size: int = FRAME_SIZE_MAX,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:  # fmt: skip
        self._now_ms = now_ms
        store = FlashStore(RamFiles(_FILES_SIZE))
        store.open()
        self._node = Node(store, lambda: 7, peers_max=2, groups_max=2)
        self._store = store
        self._group = self._node.join(READINGS_CLIENT_ID, GROUP)
        self._board = self._node.add_peer(BOARD)
        self._node.share(self._group, self._board, SHARED)
        self._node.boot(0)
        self._author = Author(self._node, self._group)
        self._link = self._node.link(
            self._board, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH, now_ms()
        )
        self._line = line
        self._frame = bytearray(frame_size)
        self.published = 0

    def __enter__(self) -> "BoardPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._line.close()

    @property
    def heard(self) -> int:
        """Messages of the board in the log."""
        return self._messages() - self.published

    def exchange(
        self, count: int, timeout_s: float, wait: Callable[[], bytes], one_by_one: bool
    ) -> None:
        """Until `count` messages went each way and are acknowledged. Raises BenchError.

        wait: lets the board run for a while; returns the board's last output if it has ended,
        else b"".
        one_by_one: publish only after all of the board's messages have arrived, and each message
        after the previous one is acknowledged, so that a frame holds one record. Afterwards both
        sides idle for some epochs.
        """
        end = time.monotonic() + timeout_s
        while self.heard < count or self.published < count or self._outstanding():
            words = wait()
            if time.monotonic() > end or words:
                counts = f"{self.heard} of {count} messages came, {self.published} went: {words!r}"
                raise BenchError(f"the board stopped answering: {counts}")
            due = not one_by_one or (self.heard == count and not self._outstanding())
            if due and self.published < min(count, self.heard):
                self._publish()
            self._turn()
        since_ms = self._now_ms()
        while one_by_one and elapsed_ms(self._now_ms(), since_ms) < _QUIET_MS:
            wait()
            self._turn()

    def _outstanding(self) -> int:
        return self._node.outstanding(self._board)

    def _publish(self) -> None:
        head = self._author.head()
        text = b"%0*d" % (BODY_SIZE, self.published)
        body = bytes(self._author.body[:head]) + text
        moment = (_MOMENT_MS + self.published * 1000).to_bytes(8)
        handle = self._node.publish(self._group, body, len(body), moment, self._now_ms())
        if handle < 0:
            raise BenchError(f"the host's own store refused a message: {handle}")
        self._author.published(handle)
        self.published += 1

    def _turn(self) -> None:
        frame, line, link = self._frame, self._line, self._link
        while (size := line.receive_into(frame)) > 0:
            link.receive(frame, size, self._now_ms())
        while not line.pending_size and (size := link.poll_into(frame, self._now_ms())):
            line.send(frame, size)
        while self._node.next_event():
            self._node.done(self._node.event_handle)

    def _messages(self) -> int:
        count = handle = 0
        while (handle := self._store.next(handle)) > 0:
            count += 1
        return count
