"""Notices: each device says something about itself, and only its newest word counts.

    payload: device id [4], then the content, a protobuf

A group of its own per kind of notice. The newest by timestamp, then by id, is the same at every
member; older ones are deleted everywhere, which leaves their ids and nothing else.
"""

from drupelet.errors import OK, check
from drupelet.limits import BODY_SIZE_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet.node import Node

DEVICE_SIZE = 4
# Devices whose word is kept; of more none is.
DEVICES_MAX = 256
CONTENT_SIZE_MAX = 4096
TIMESTAMP_MAX = (1 << 63) - 1


class Notices:
    """One group of notices; `turn` after events. `latest`: device id -> content."""

    def __init__(self, node: Node, client_id: bytes, descriptor: bytes) -> None:
        self._node = node
        self.group = node.join(client_id, descriptor)
        self.latest: dict[bytes, bytes] = {}
        self.ignored = 0
        self._newest: dict[bytes, tuple[bytes, bytes, int]] = {}  # timestamp, id, handle
        self._looked = 0

    def say(self, device: bytes, content: bytes, timestamp: bytes, now_ms: int) -> None:
        """Publish our newest word, unless it is what we said last. Raises CapacityError."""
        assert len(device) == DEVICE_SIZE and len(content) <= CONTENT_SIZE_MAX
        self.turn()
        if self.latest.get(device) == content:
            return
        held = self._newest.get(device)
        if held is not None and held[0] >= timestamp:  # said by a clock that was ahead
            newer = int.from_bytes(held[0]) + 1
            if newer > TIMESTAMP_MAX:
                return  # somebody said it in our name: no word is newer
            timestamp = newer.to_bytes(TIMESTAMP_SIZE)
        body = b"\x00" + device + content
        check(
            self._node.publish(self.group, body, len(body), timestamp, now_ms),
            "no room for another notice",
        )
        self.turn()

    def turn(self) -> bool:
        """Look at what entered the log since; True when some device says something new."""
        store = self._node.store
        changed = False
        handle = store.next(self._looked)
        while handle:
            self._looked = handle
            if store.load(handle) == OK and store.group == self.group:
                changed |= self._take(handle)
            handle = store.next(handle)
        return changed

    def _take(self, handle: int) -> bool:
        store = self._node.store
        order = (bytes(store.timestamp), bytes(store.id), handle)
        size = store.size
        body = bytearray(min(size, BODY_SIZE_MAX))
        if store.read_into(handle, 0, body, 0, len(body)) != size or not size:
            return False
        at = 1 + body[0] * ID_SIZE
        device, content = bytes(body[at : at + DEVICE_SIZE]), bytes(body[at + DEVICE_SIZE :])
        full = device not in self._newest and len(self._newest) == DEVICES_MAX
        if len(device) != DEVICE_SIZE or len(content) > CONTENT_SIZE_MAX or full:
            self.ignored += 1
            return False
        held = self._newest.get(device)
        if held is not None and held > order:
            self._node.delete(handle)
            return False
        if held is not None:
            self._node.delete(held[2])
        self._newest[device] = order
        self.latest[device] = content
        return True
