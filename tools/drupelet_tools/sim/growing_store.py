"""A store of a simulated host whose log only grows, kept in dicts: what many people need."""

import gc

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.ports import Buffer
from drupelet.store.states import STATE_DELIVERED
from drupelet_tools.sim.hoststore import MemoryStore

_PREFIX = 8


def collect_seldom() -> None:
    """Have Python look for circles of garbage at each 20,000th object: worlds leave few."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


class GrowingStore(MemoryStore):
    """A store whose log only grows: nothing is deleted, buried, or waits for a parent."""

    def __init__(self) -> None:
        super().__init__()
        # Handle h is row h - 1: id, timestamp, group, source, body.
        self._log: list[tuple[bytes, bytes, int, int, bytes]] = []
        self._handles: dict[bytes, int] = {}  # by id, and by its first 8 bytes

    def put(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        body: Buffer, at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Add to the log."""
        assert state == STATE_DELIVERED
        name = bytes(id[id_at : id_at + ID_SIZE])
        assert name not in self._handles
        stamp = bytes(timestamp[ts_at : ts_at + TIMESTAMP_SIZE])
        self._log.append((name, stamp, group, source, bytes(body[at : at + size])))
        self._handles[name] = len(self._log)
        self._handles.setdefault(name[:_PREFIX], len(self._log))
        return len(self._log)

    def find(self, id: Buffer, at: int, size: int = ID_SIZE) -> int:
        """By a whole id or its first 8 bytes."""
        return self._handles.get(bytes(id[at : at + size]), 0)

    def is_id(self, handle: int, id: Buffer, at: int, size: int) -> bool:
        """As the port has it."""
        return self._log[handle - 1][0][:size] == id[at : at + size]

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """As the port has it."""
        buf[at : at + ID_SIZE] = self._log[handle - 1][0]
        return True

    def load(self, handle: int) -> int:
        """The attributes of a row."""
        if not 0 < handle <= len(self._log):
            return E_STORAGE
        self.id[:], self.timestamp[:], self.group, self.source, body = self._log[handle - 1]
        self.size = len(body)
        self.state = STATE_DELIVERED
        self.private = False
        self.missing = self.edges_size = 0
        return OK

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Bytes of a body."""
        if not 0 < handle <= len(self._log):
            return E_STORAGE
        part = self._log[handle - 1][4][offset : offset + size]
        buf[at : at + len(part)] = part
        return len(part)

    def next(self, handle: int) -> int:
        """The row after it."""
        return handle + 1 if handle < len(self._log) else 0

    def next_pending(self, handle: int) -> int:  # noqa: ARG002 - as the port has it
        """Nothing waits."""
        return 0

    def next_kept(self, handle: int) -> int:  # noqa: ARG002 - as the port has it
        """Nothing was deleted."""
        return 0

    def barrier(self) -> int:
        """Memory is as durable as it gets."""
        return OK
