"""A remote store in memory, and a wire to it that loses frames."""

import random
import sqlite3

from drupelet_host.remote.content_store import SqliteRemoteStore
from drupelet_host.remote.store_service import StoreService
from opened import opened

KEY = bytes(range(32))
SERVER, CLIENT = b"serv", b"clnt"


def memory(**bounds: int) -> SqliteRemoteStore:
    connection = opened(sqlite3.connect(":memory:", isolation_level=None))
    return SqliteRemoteStore(connection, **bounds)


class Wire:
    """Frames to a service and back, some of which are lost."""

    def __init__(self, service: StoreService, loss: float = 0.0, seed: int = 1) -> None:
        self.service = service
        self.loss = loss
        self.rng = random.Random(seed)
        self.calls = 0

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        self.calls += 1
        found = []
        for frame in frames:
            if self.rng.random() >= self.loss:
                found += self.service.answer(frame)
        return [frame for frame in found if self.rng.random() >= self.loss]
