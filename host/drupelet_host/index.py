"""The host's id index: a dict where a board scans its slots."""

from drupelet.limits import ID_SIZE
from drupelet.ports import Buffer


class DictIndex:
    """Message id to slot number; as large as the slot table that it serves."""

    def __init__(self) -> None:
        self._slots: dict[bytes, int] = {}
        self._ids: dict[int, bytes] = {}

    def find(self, id: Buffer, at: int) -> int:
        """The slot, or -1."""
        return self._slots.get(bytes(id[at : at + ID_SIZE]), -1)

    def put(self, id: Buffer, at: int, slot: int) -> None:
        """Note a taken slot."""
        self._ids[slot] = bytes(id[at : at + ID_SIZE])
        self._slots[self._ids[slot]] = slot

    def drop(self, slot: int) -> None:
        """Forget a freed slot."""
        self._slots.pop(self._ids.pop(slot, b""), None)
