"""The state of one engine as a value: taken out of a node, put back, free of absolute time.

The fields are found by walking the objects of a node once. A field that only holds something for
the length of one call is named in SCRATCH; every other one is part of the state, so that a new
field of the engine is not overlooked. Epochs and times are kept as differences to now.
"""

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from drupelet.base.limits import HEARD_EPOCHS_MAX
from drupelet.base.memory import get_u16, put_u16
from drupelet.engine import state_layout
from drupelet.link.link import Link
from drupelet.node import Node
from drupelet.wire.compact import state_layout as contact_layout
from drupelet.wire.compact.codec import Compact1
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
    "Node": "event_handle event_again", **state_layout.SCRATCH, **contact_layout.SCRATCH
}  # fmt: skip
# Scalars that are epochs end so; a list of epochs is a column of a table.
_EPOCH = ("epoch", "_began")
_EPOCHS = "epochs"
_CONSTANT = (FunctionType, MethodType, BuiltinFunctionType, ModuleType, type)

# Scalars, slabs, lists.
Fields = tuple[tuple[Any, ...], bytes, tuple[tuple[Any, ...], ...]]


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
        self._tables: list[state_layout.Table] = []
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
                self._tables += state_layout.tables(owner)
                self._row_epochs += state_layout.row_epochs(owner)

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
        slabs = b"".join(self._slabs) + contact_layout.shifted(
            self._contacts, self._contacts_at, -epoch
        )
        lists = [tuple(values) for values in self._lists]
        lists += [tuple([value - epoch & 0xFFFF for value in each]) for each in self._epoch_lists]
        self._shift_rows(epoch)
        return tuple(scalars), slabs, tuple(lists)

    def _tidy(self, epoch: int) -> None:
        for is_used, rows, columns in self._tables:
            for row in range(rows):
                if not is_used(row):
                    clear(columns, rows, row)
        state_layout.tidy_pending(self.node.core.pending, epoch)
        for link in self.links:
            self._tidy_link(link, epoch)

    def _tidy_link(self, link: Link, epoch: int) -> None:
        exchange = link.exchange
        state_layout.tidy_exchange(exchange, epoch)
        exchange.outbox.changes = 1 if link.has_changes() else 0
        link.seen_changes = 0
        pace = link.exchange.pace
        # When a peer was heard matters against what was sent to it, and for its being there.
        thens = [then for each in self._epoch_lists for then in each]
        thens += [get_u16(rows, at) for rows, at in self._row_epochs]
        oldest = max(HEARD_EPOCHS_MAX, *((epoch - then) & 0xFFFF for then in thens))
        if pace.heard_epoch >= 0 and (epoch - pace.heard_epoch) & 0xFFFF > oldest:
            pace.heard_epoch = (epoch - oldest - 1) & 0xFFFF
        if 0 < (epoch - link.due_epoch) & 0xFFFF < 0x8000 and link.due_epoch >= 0:
            link.due_epoch = epoch
        if isinstance(link.codec, Compact1):
            contact_layout.tidy_contact(link.codec, exchange, self._contacts, epoch)

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
        self._contacts[:] = contact_layout.shifted(slabs[at:], self._contacts_at, EPOCH)
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
            answers = link.exchange.pace.answers
            for at in state_layout.ANSWER_EPOCHS:
                if answers[at] >= 0:  # below 0: none
                    answers[at] = (answers[at] + by) & 0xFFFF


def clear(columns: list[bytearray | list[int]], rows: int, row: int) -> None:
    """Fill a row of a table with zeros."""
    for column in columns:
        size = len(column) // rows
        for at in range(row * size, (row + 1) * size):
            column[at] = 0
