"""Members of groups of Briar's family and what Briar wrote, on CPython only."""

import json
from functools import cache
from typing import Any

from drupelet.clients.bsp0 import join
from drupelet.engine.members import FAMILY_BSP_0
from drupelet.node import SHARED
from drupelet.wire.bsp0 import records as bsp0
from helpers import Draw, Member, stamp
from published import VECTORS

CLIENT = "org.example.readings"
KIND = b"\x45"
VERSIONS = bytes.fromhex("0004000100")

Json = dict[str, Any]


class Friend(Member):
    """A member of a group of Briar's family, whose bodies are what its client likes."""

    def __init__(self, name: str, draw: Draw, **sizes: int) -> None:
        super().__init__(name, draw, family=FAMILY_BSP_0, **sizes)

    def start(self) -> None:
        super().start()
        self.group = join(self.node, CLIENT, 1, b"test")
        for name in self.peers:
            self.node.share(self.group, self.numbers[name], SHARED)

    def group_id(self) -> bytes:
        row = self.node.core.members.group_row(self.group)
        return bytes(self.node.core.members.group_ids[32 * row : 32 * row + 32])

    def publish(self, payload: bytes, now_ms: int = 0) -> bytes | None:
        handle = self.node.publish(self.group, payload, len(payload), stamp(now_ms), now_ms)
        if handle < 0:
            return None
        self.store.load(handle)
        return bytes(self.store.id)


def friends(draw: Draw, count: int, **sizes: int) -> list[Friend]:
    return [Friend(name, draw, **sizes) for name in "abc"[:count]]


def records(stream: bytes) -> list[tuple[int, bytes]]:
    """What Briar's reader would read; PeerError where it would not."""
    reader = bsp0.Reader()
    reader.push(stream)
    frames = []
    while reader.next():
        frames.append((reader.kind, reader.payload))
    assert not reader.is_cut
    return frames


@cache
def vectors() -> Json:
    vectors: Json = json.loads((VECTORS / "bsp/bsp_briar_1.5.19.json").read_text("utf-8"))
    return vectors
