"""A store of a board or a host on a bench: put to work, and opened again after a power cut."""

import random
from collections.abc import Callable

from drupelet.base.errors import OK
from drupelet.store.ports import StorePort
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING
from drupelet_host.store.sqlite_store import SqliteStore

GROUP, PEER = 1, 2
PENDING_MAX = 4


class Bench:
    """A store and the way to open it again as after a reboot."""

    def __init__(self, make: Callable[[], StorePort], cut: Callable[[], None]) -> None:
        self._make = make
        self._cut = cut
        self.store = self.reboot()

    def reboot(self) -> StorePort:
        """Cut the power and open anew: what no barrier covers is lost."""
        old = getattr(self, "store", None)
        if isinstance(old, SqliteStore):
            old.close()
        self._cut()
        self.store = self._make()
        assert self.store.open() == 0
        return self.store

    def durable(self) -> StorePort:
        assert self.store.barrier() == OK
        return self.reboot()

    def put(self, number: int, body: bytes = b"", pending: bool = False) -> int:
        return self.put_as(number, STATE_PENDING if pending else STATE_DELIVERED, body)

    def put_as(
        self, number: int, state: int, body: bytes = b"", group: int = 1, source: int = 3
    ) -> int:
        """Put a message that the store does not know yet; the handle of one that it knows."""
        return self.store.find(message_id(number), 0) or self.store.put(
            group, source, message_id(number), 0, number.to_bytes(8), 0, body, 0, len(body), state
        )

    def bury(self, number: int, handle: int = 0) -> int:
        return self.store.bury(1, 3, message_id(number), 0, number.to_bytes(8), 0, handle)

    def state(self, handle: int) -> int:
        assert self.store.load(handle) == OK
        return self.store.state

    def body(self, handle: int) -> bytes:
        assert self.store.load(handle) == OK
        buf = bytearray(self.store.size)
        assert self.store.read_into(handle, 0, buf, 0, len(buf)) == len(buf)
        return bytes(buf)

    def log(self) -> list[int]:
        handles, handle = [], self.store.next(0)
        while handle:
            handles.append(handle)
            handle = self.store.next(handle)
        return handles

    def pending(self) -> list[int]:
        handles, handle = [], self.store.next_pending(0)
        while handle:
            handles.append(handle)
            handle = self.store.next_pending(handle)
        return handles


def message_id(number: int) -> bytes:
    return random.Random(number).randbytes(32)
