"""What becomes of a home's readings that do not stay: exploding and ephemeral ones.

In a group with `client = "exploding"` each message says how long it stays. In family mvds a
message is ephemeral or stays. An ephemeral message is given up after a minute: whoever was there
has it by then, and no log shows it.
"""

from typing import TYPE_CHECKING

from drupelet.engine.members import HEAD_EPHEMERAL
from drupelet_host.base import clock
from drupelet_host.clients.exploding import ExplodingClient, Explosions
from drupelet_host.home.config import FAMILY_MVDS_NAME, Config
from drupelet_host.home.lifetime import EPHEMERAL_LIFETIME, Lifetime
from drupelet_host.member import family

if TYPE_CHECKING:
    from drupelet.engine.body import BodyReader
    from drupelet.node import Node
    from drupelet_host.store.sqlite_store import SqliteStore

# In a store of family mvds the first ephemeral message that was not deleted yet.
_FIRST_EPHEMERAL = (
    "SELECT min(handle) FROM log WHERE member_group = ? AND state IN (1, 5)"
    " AND substr(body, 1, 1) >= ?"
)


class Vanishing:
    """Made before the node's boot; `begin` after it, then `turn` now and then."""

    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self.client = ExplodingClient() if settings.has_lifetimes else None
        self._explosions: Explosions | None = None
        self._head = bytearray(1)
        self._looked_s = self._looked_to = 0
        self._must_scrub = False
        if self.client is not None:
            self.client.time_s = clock.wall_ms() // 1000

    def begin(self, node: "Node", store: "SqliteStore", group: int) -> None:
        """Delete what is due before anything is shown."""
        if self.client is not None:
            store.erase_deleted()
            self._explosions = Explosions(node, group, self.client.end_of)
        elif self._settings.family == FAMILY_MVDS_NAME:
            store.erase_deleted()
            flag = bytes((HEAD_EPHEMERAL,))
            (first,) = store.connection.execute(_FIRST_EPHEMERAL, (group, flag)).fetchone()
            after = first - 1 if first else store.last_handle
            self._explosions = Explosions(node, group, self._end_of_mvds, after=after)
        # An agent before this one may have been killed before it did.
        self._must_scrub = self._explosions is not None
        self.turn(store)

    @property
    def exploded(self) -> int:
        """Messages that were deleted since the start because their time had come."""
        return self._explosions.exploded if self._explosions is not None else 0

    def turn(self, store: "SqliteStore") -> None:
        """Delete what is due, at most once a second unless there are new messages."""
        time_s = clock.wall_ms() // 1000
        is_new = self._looked_to != store.last_handle
        if self._explosions is None or (time_s == self._looked_s and not is_new):
            return
        self._looked_s, self._looked_to = time_s, store.last_handle
        if self.client is not None:
            self.client.time_s = time_s
        self._must_scrub |= self._explosions.turn(time_s) > 0

    def committed(self, store: "SqliteStore") -> None:
        """After a commit: what was deleted is not to be found in the files either."""
        if self._must_scrub:
            self._must_scrub = not store.scrub()

    def _end_of_mvds(self, reader: "BodyReader") -> tuple[Lifetime, int]:
        is_read = reader.read_into(0, self._head, 0, 1) == 1
        if not is_read or not self._head[0] & HEAD_EPHEMERAL:
            return Lifetime(), 0
        sent = family.timestamp_of(self._settings, bytes(reader.timestamp))
        return EPHEMERAL_LIFETIME, EPHEMERAL_LIFETIME.end_s(int.from_bytes(sent))
