"""The state of one engine as a value: taken out of a node, put back, free of absolute time.

The fields are found by walking the objects of a node once. A field that only holds something for
the length of one call is named in SCRATCH; every other one is part of the state, so that a new
field of the engine is not overlooked. Epochs and times are kept as differences to now.
"""

from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from drupelet.base.limits import ASKED_TAGS_MAX, HEARD_EPOCHS_MAX
from drupelet.base.memory import get_u16, put_u16
from drupelet.engine.exchange import _ASKED, _ASKED_TAGS
from drupelet.engine.inbox import _EPOCH as ENTRY_EPOCH
from drupelet.engine.inbox import ENTRY_SIZE, OWED_SIZE, Inbox
from drupelet.engine.outbox import _EPOCH as ROW_EPOCH
from drupelet.engine.outbox import ROW_SIZE, Outbox
from drupelet.engine.pace import _LAST_EPOCH, _NEWEST_EPOCH, ACKS, REPLIES
from drupelet.engine.pending import _EPOCH as PENDING_EPOCH
from drupelet.engine.pending import ROW_SIZE as PENDING_SIZE
from drupelet.engine.pending import Pending
from drupelet.link.link import Link
from drupelet.node import Node
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.compact.hello import (
    _PROBE_EPOCH,
    _ROW_SIZE,
    _SENDS,
    _SENT_EPOCH,
    _WAITS,
    _WAITS_FROM,
    PLAIN,
)
from drupelet.wire.compact.numbering import _ROWS_AT
from drupelet_tools.sim.exhaust_store import LedgerStore

NOW_MS = 1 << 20  # where every node's clock stands when its state is put back
EPOCH = 1 << 10  # likewise: the epoch that it is in
EPOCH_MS = 1000

# Classes without state between two calls.
SCRATCH_CLASSES = {
    "Blake2s", "MessageHash", "MvdsMessageHash", "BodyReader", "DefaultClient", "NoBox",
    "MvdsCodec", "Publisher",
}  # fmt: skip
# Fields without state between two calls; counters that nothing decides by; what never changes.
SCRATCH = {
    "Core": "id delivered duplicates malformed unknown refused now_ms",
    "Graph": "ids handle is_ephemeral _depends_on_private _depends_on_gone",
    "Node": "event_handle event_again",
    "Pending": "marks",
    "Clocks": "epochs",  # kept by itself
    "Exchange": "message_handle message_row link_number again is_telemetry needs_barrier",
    "Compact1": "ignored _contact _row _announced _hint _frame_generation _number _size _end "
    "_base_bytes _lone_at",
}
# Scalars that are epochs end so; a list of epochs is a column of a table.
_EPOCH = ("epoch", "_began")
_EPOCHS = "epochs"
# What of a contact's row is an epoch, as 16-bit numbers, and how many of these it has.
_CONTACT_EPOCHS = (_SENT_EPOCH // 2, _WAITS_FROM // 2, _PROBE_EPOCH // 2)
_CONTACT_NUMBERS = _ROW_SIZE // 2
# What of the answers on a link is an epoch.
_ANSWER_EPOCHS = tuple(
    kind + at for kind in (ACKS, REPLIES) for at in (_NEWEST_EPOCH, _LAST_EPOCH)
)
_CONSTANT = (FunctionType, MethodType, BuiltinFunctionType, ModuleType, type)

# Scalars, slabs, lists.
Fields = tuple[tuple[Any, ...], bytes, tuple[tuple[Any, ...], ...]]
# Which rows of a table are used; its rows; its columns.
Table = tuple[Callable[[int], bool], int, list[bytearray | list[int]]]


def scratch_of(owner: object) -> set[str]:
    """The names of an object's fields that are no state."""
    return set(SCRATCH.get(type(owner).__name__, "").split())


def objects_of(node: Node) -> Iterator[object]:
    """A node and every object of the engine that it reaches, in an order that is always the same.

    Stores and clients are somebody else's.
    """
    seen: set[int] = set()
    waiting: list[object] = [node]
    while waiting:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        if isinstance(owner, dict):
            waiting += reversed(list(owner.values()))
        elif isinstance(owner, list):
            waiting += reversed(owner)
        elif type(owner).__module__.startswith("drupelet.") and hasattr(owner, "__dict__"):
            yield owner
            waiting += reversed(list(vars(owner).values()))


def set_defaults(owner: object) -> None:
    """Give an object the fields that it gets only once they differ from those of its class."""
    for name, value in vars(type(owner)).items():
        if isinstance(value, int) and not name.startswith("__"):
            vars(owner).setdefault(name, value)


def row_epochs_of(owner: object) -> list[tuple[bytearray, int]]:
    """The tables of an object whose rows have several columns, and where in them epochs stand."""
    if isinstance(owner, Outbox):
        rows = owner.rows
        return [(rows, at + ROW_EPOCH) for at in range(0, len(rows), ROW_SIZE)]
    if isinstance(owner, Pending):
        rows = owner.rows
        return [(rows, at + PENDING_EPOCH) for at in range(0, len(rows), PENDING_SIZE)]
    if isinstance(owner, Inbox):
        rows = owner.entries
        return [(rows, at + ENTRY_EPOCH) for at in range(0, len(rows), ENTRY_SIZE)]
    return []


def tables_of(owner: object) -> Iterator[Table]:
    """The tables of an object: what no row is used of is noise."""
    columns = {
        name: column
        for name, column in vars(owner).items()
        if isinstance(column, bytearray | list) and name not in scratch_of(owner)
    }
    if isinstance(owner, Outbox):
        yield (lambda row: row < owner.count), owner.rows_max, list(columns.values())
    elif isinstance(owner, Pending):
        yield (lambda row: owner.handles[row] != 0), owner.rows_max, list(columns.values())
    elif isinstance(owner, Inbox):
        owed: list[bytearray | list[int]] = [owner._owed_rows]
        is_owed = lambda row: row < owner.owed_end and owner.owed(row) != 0  # noqa: E731
        yield is_owed, len(owner._owed_rows) // OWED_SIZE, owed
        yield (lambda entry: owner.kind(entry) != 0), owner.offers_max + 1, [owner.entries]


class Probe:
    """Takes the state out of one node and puts it back."""

    def __init__(self, node: Node, links: list[Link]) -> None:
        self.node = node
        self.links = links
        self._scalars: list[tuple[dict[str, Any], str]] = []
        self._epochs: list[tuple[dict[str, Any], str]] = []
        self._slabs: list[bytearray] = []
        self._lists: list[list[Any]] = []
        self._epoch_lists: list[list[int]] = []
        self._tables: list[Table] = []
        # Where in tables of several columns an epoch stands.
        self._row_epochs: list[tuple[bytearray, int]] = []
        self._contacts = bytearray(0)  # of `compact-1`
        self._contacts_at = 0
        self._shapes: list[tuple[dict[str, Any], int]] = []
        self.scratch: list[tuple[object, str]] = []
        for owner in objects_of(node):
            if type(owner).__name__ not in SCRATCH_CLASSES:
                set_defaults(owner)
                self._shapes.append((vars(owner), len(vars(owner))))
                self._look_at(owner)
                self._tables += tables_of(owner)
                self._row_epochs += row_epochs_of(owner)

    def _look_at(self, owner: object) -> None:
        scratch = scratch_of(owner)
        for name, value in vars(owner).items():
            if name in scratch:
                self.scratch.append((owner, name))
            elif isinstance(value, bytearray) and isinstance(owner, Compact1):
                self._contacts = value
                self._contacts_at = owner.rows_end()
            elif isinstance(value, bytearray):
                self._slabs.append(value)
            elif isinstance(value, list) and all(isinstance(each, int) for each in value):
                (self._epoch_lists if name == _EPOCHS else self._lists).append(value)
            elif name.endswith(_EPOCH):
                self._epochs.append((vars(owner), name))
            elif value is None or isinstance(value, int):
                self._scalars.append((vars(owner), name))
            else:
                constant = isinstance(value, (*_CONSTANT, dict, list, str, bytes, LedgerStore))
                constant = constant or type(value).__module__.startswith("drupelet")
                assert constant, f"{type(owner).__name__}.{name} is a {type(value).__name__}"

    def check_shape(self) -> None:
        """Fail if an object has got fields that were not there when it was looked at."""
        for fields, count in self._shapes:
            assert len(fields) == count, f"new fields: {list(fields)}"

    # --- taking out ---

    def take(self, now_ms: int) -> Fields:
        """The state now. The node is tidied first: what nothing will read becomes zero."""
        clocks = self.node.core.clocks
        for link in self.links:
            epoch = clocks.advance(link.peer, now_ms)
        self._tidy(epoch)
        self._shift_rows(-epoch)
        scalars = [fields[name] for fields, name in self._scalars]
        for fields, name in self._epochs:  # below 0: none
            scalars.append((fields[name] - epoch) & 0xFFFF if fields[name] >= 0 else fields[name])
        for peer in range(len(clocks.epochs) // 3):
            scalars.append((clocks.start_ms(peer) - now_ms) & 0x3FFFFFFF)
        slabs = b"".join(self._slabs) + self._shifted(self._contacts, -epoch)
        lists = [tuple(values) for values in self._lists]
        lists += [tuple([value - epoch & 0xFFFF for value in each]) for each in self._epoch_lists]
        self._shift_rows(epoch)
        return tuple(scalars), slabs, tuple(lists)

    def _tidy(self, epoch: int) -> None:
        for is_used, rows, columns in self._tables:
            for row in range(rows):
                if not is_used(row):
                    clear(columns, rows, row)
        pending = self.node.core.pending
        for row in range(pending.rows_max):
            if not pending.sends(row):
                put_u16(pending.rows, row * PENDING_SIZE + PENDING_EPOCH, epoch)
        for link in self.links:
            self._tidy_link(link, epoch)

    def _tidy_link(self, link: Link, epoch: int) -> None:
        exchange = link.exchange
        pace = exchange.pace
        outbox = exchange.outbox
        for row in range(outbox.rows_max):
            if row >= outbox.count or not outbox.is_open(row):
                outbox.make_due(row)
            if not outbox.sends(row):
                outbox.note_sent(row, 0, epoch)
        inbox = exchange.inbox
        for entry in range(inbox.offers_max + 1):
            if not inbox.kind(entry):
                put_u16(inbox.entries, entry * ENTRY_SIZE + ENTRY_EPOCH, epoch)
        outbox.changes = 1 if link.has_changes() else 0
        link._seen_changes = 0
        if not exchange._scan[_ASKED]:
            exchange._scan[_ASKED_TAGS:] = [0] * ASKED_TAGS_MAX
        if not pace.probes:
            pace._probe_epoch = epoch
        # When a peer was heard matters against what was sent to it, and for its being there.
        thens = [then for each in self._epoch_lists for then in each]
        thens += [get_u16(rows, at) for rows, at in self._row_epochs]
        oldest = max(HEARD_EPOCHS_MAX, *((epoch - then) & 0xFFFF for then in thens))
        if pace.heard_epoch >= 0 and (epoch - pace.heard_epoch) & 0xFFFF > oldest:
            pace.heard_epoch = (epoch - oldest - 1) & 0xFFFF
        if 0 < (epoch - link._due_epoch) & 0xFFFF < 0x8000 and link._due_epoch >= 0:
            link._due_epoch = epoch
        if isinstance(link.codec, Compact1):
            self._tidy_contact(link.codec, link, epoch)

    def _tidy_contact(self, codec: Compact1, link: Link, epoch: int) -> None:
        codec.use(link.exchange)
        self._contacts[:_ROWS_AT] = bytes(_ROWS_AT)
        if not codec.has(_WAITS):
            codec._put_field(_WAITS_FROM, epoch)
        if not codec._count(_SENDS):
            codec._put_field(_SENT_EPOCH, epoch)
        if codec.spoken(link.exchange) != PLAIN:
            codec._put_field(_PROBE_EPOCH, epoch)

    # --- putting back ---

    def put(self, fields: Fields) -> None:
        """Be in this state, at NOW_MS."""
        scalars, slabs, lists = fields
        at = 0
        for owner, name in self._scalars:
            owner[name] = scalars[at]
            at += 1
        for owner, name in self._epochs:
            owner[name] = (scalars[at] + EPOCH) & 0xFFFF if scalars[at] >= 0 else scalars[at]
            at += 1
        clocks = self.node.core.clocks
        for peer in range(len(clocks.epochs) // 3):
            clocks.set_start(peer, (scalars[at] + NOW_MS) & 0x3FFFFFFF)
            clocks.epochs[peer] = EPOCH
            at += 1
        at = 0
        for slab in self._slabs:
            slab[:] = slabs[at : at + len(slab)]
            at += len(slab)
        self._contacts[:] = self._shifted(slabs[at:], EPOCH)
        for number, values in enumerate(self._lists):
            values[:] = lists[number]
        for number, values in enumerate(self._epoch_lists, len(self._lists)):
            values[:] = [value + EPOCH & 0xFFFF for value in lists[number]]
        self._shift_rows(EPOCH)

    def _shift_rows(self, by: int) -> None:
        """Change every epoch in tables of several columns by as much."""
        for rows, at in self._row_epochs:
            put_u16(rows, at, (get_u16(rows, at) + by) & 0xFFFF)
        for link in self.links:
            answers = link.pace.answers
            for at in _ANSWER_EPOCHS:
                if answers[at] >= 0:  # below 0: none
                    answers[at] = (answers[at] + by) & 0xFFFF

    def _shifted(self, contacts: bytes | bytearray, by: int) -> bytes:
        """The rows of contacts when all that is an epoch in them changes by as much."""
        shifted = bytearray(contacts)
        for number in range((len(contacts) - self._contacts_at) // 2):
            if number % _CONTACT_NUMBERS in _CONTACT_EPOCHS:
                at = self._contacts_at + 2 * number
                value = int.from_bytes(contacts[at : at + 2], "big") + by
                shifted[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")
        return bytes(shifted)


def clear(columns: list[bytearray | list[int]], rows: int, row: int) -> None:
    """Fill a row of a table with zeros."""
    for column in columns:
        size = len(column) // rows
        for at in range(row * size, (row + 1) * size):
            column[at] = 0
