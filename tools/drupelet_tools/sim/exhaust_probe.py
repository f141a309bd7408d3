"""The state of one engine as a value: taken out of a node, put back, free of absolute time.

The fields are found by walking the objects of a node once. A field that only holds something for
the length of one call is named in SCRATCH; every other one is part of the state, so that a new
field of the engine is not overlooked. Epochs and times are kept as differences to now.
"""

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from drupelet.base.limits import SEND_COUNT_NONE
from drupelet.engine.graph import _PRIVATE, ONCE
from drupelet.engine.slots import PEER_ROW, MessageSlots
from drupelet.engine.states import HOLD
from drupelet.engine.window import _ROW_CHANGES
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
from drupelet.wire.registry import PROFILE_COMPACT_1
from drupelet_tools.sim.exhaust_store import LedgerStore

NOW_MS = 1 << 20  # where every node's clock stands when its state is put back
EPOCH = 1 << 10  # likewise: the epoch that it is in
EPOCH_MS = 1000
# A peer that was silent for longer counts as asleep (`Dues.begin_epoch`).
_AWAKE_EPOCHS = 4

# Classes without state between two calls.
SCRATCH_CLASSES = {
    "Blake2s", "MessageHash", "MvdsMessageHash", "BodyReader", "DefaultClient", "NoBox",
    "MvdsCodec", "Publisher",
}  # fmt: skip
# Fields without state between two calls; counters that nothing decides by; what never changes.
SCRATCH = {
    "Core": "id delivered duplicates malformed unknown now_ms message_handle "
    "message_slot taken telemetry again firm "
    "scanner scan_from ack_left message_left offer_left owed_at request_at",
    "Graph": "ids slot handle refused",
    "Node": "event_handle event_again",
    "OfferPool": "replaced",
    "Clocks": "epochs",  # kept by itself
    "Link": "long_handle logged policy",
    "Compact1": "ignored peer _contact _row _announced _hint _frame_generation _number _size _end "
    "_base_bytes _lone_at",
}
EPOCHS = {
    "epoch", "heard_epoch", "_began", "_due_epoch", "_probe_epoch", "_newest_epoch",
    "_last_epoch",
}  # fmt: skip
EPOCH_SLABS = {"send_counts", "kinds", "_slab"}
# What of a contact's row is an epoch, as 16-bit numbers, and how many of these it has.
_CONTACT_EPOCHS = (_SENT_EPOCH // 2, _WAITS_FROM // 2, _PROBE_EPOCH // 2)
_CONTACT_NUMBERS = _ROW_SIZE // 2
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


class Probe:
    """Takes the state out of one node and puts it back."""

    def __init__(self, node: Node, links: list[Link]) -> None:
        self.node = node
        self.links = links
        self._scalars: list[tuple[dict[str, Any], str]] = []
        self._epochs: list[tuple[dict[str, Any], str]] = []
        self._slabs: list[bytearray] = []
        self._epoch_slabs: list[bytearray] = []
        self._lists: list[list[Any]] = []
        self._shapes: list[tuple[dict[str, Any], int]] = []
        self.scratch: list[tuple[object, str]] = []
        known: set[int] = set()
        for owner in objects_of(node):
            if type(owner).__name__ not in SCRATCH_CLASSES:
                self._shapes.append((vars(owner), len(vars(owner))))
                self._look_at(owner, known)

    def _look_at(self, owner: object, known: set[int]) -> None:
        scratch = scratch_of(owner)
        for name, value in vars(owner).items():
            if name in scratch:
                self.scratch.append((owner, name))
            elif isinstance(value, bytearray):
                self._add_slab(name, value, known)
            elif isinstance(value, list):
                self._add_list(name, value, known)
            elif name in EPOCHS:
                self._epochs.append((vars(owner), name))
            elif value is None or isinstance(value, int):
                self._scalars.append((vars(owner), name))
            else:
                constant = isinstance(value, (*_CONSTANT, dict, str, bytes, LedgerStore))
                constant = constant or type(value).__module__.startswith("drupelet")
                assert constant, f"{type(owner).__name__}.{name} is a {type(value).__name__}"

    def _add_slab(self, name: str, slab: bytearray, known: set[int]) -> None:
        if id(slab) not in known:
            known.add(id(slab))
            (self._epoch_slabs if name in EPOCH_SLABS else self._slabs).append(slab)

    def _add_list(self, name: str, values: list[Any], known: set[int]) -> None:
        if id(values) in known:
            return
        known.add(id(values))
        if values and isinstance(values[0], bytearray):
            for slab in values:
                self._add_slab(name, slab, known)
        elif all(isinstance(value, int) for value in values):
            self._lists.append(values)

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
        scalars = [fields[name] for fields, name in self._scalars]
        for fields, name in self._epochs:  # below 0: none
            scalars.append((fields[name] - epoch) & 0xFFFF if fields[name] >= 0 else fields[name])
        for peer in range(len(clocks.epochs) // 3):
            scalars.append((clocks.start_ms(peer) - now_ms) & 0x3FFFFFFF)
        slabs = b"".join(self._slabs)
        for slab in self._epoch_slabs:
            slabs += self._shifted(slab, slab, -epoch)
        return tuple(scalars), slabs, tuple([tuple(values) for values in self._lists])

    def _tidy(self, epoch: int) -> None:
        core = self.node.core
        core.graph.todo &= ~(_PRIVATE | ONCE)
        core.scanner = None  # whoever is asked next begins its scans anew
        slots = core.slots
        for slot in range(slots.count):
            if not slots.flags[slot]:
                slots.handles[slot] = 0
                slots.flags[slots.count + slot] = 0
        for cell in range(len(slots.states)):
            free = not slots.flags[cell % slots.count]
            if free:
                slots.states[cell] = 0
            if free or (not is_number(slots, cell) and slots.states[cell] & HOLD):
                slots.send_counts[cell] = 0
            if not slots.send_counts[cell]:
                slots.sent(cell, 0, epoch)
        self._tidy_offers(epoch)
        for link in self.links:
            ahead = not link._is_shown()
            core.window.rows[link.peer * PEER_ROW + _ROW_CHANGES] = 1 if ahead else 0
            link._way &= 0xFF
            self._tidy_heard(link, epoch)
            if 0 < (epoch - link._due_epoch) & 0xFFFF < 0x8000 and link._due_epoch >= 0:
                link._due_epoch = epoch
            if isinstance(link.codec, Compact1):
                self._tidy_contact(link.codec, link, epoch)

    def _tidy_heard(self, link: Link, epoch: int) -> None:
        """When a peer was heard matters against what was sent to it, and for its being awake."""
        core = self.node.core
        oldest = _AWAKE_EPOCHS
        for slot in range(core.slots.count):
            cell = link.peer * core.slots.count + slot
            oldest = max(oldest, (epoch - core.slots.send_epoch(cell)) & 0xFFFF)
        for entry in range(core.offers.count):
            if core.offers.kinds[entry] and core.offers.peer_of(entry) == link.peer:
                oldest = max(oldest, (epoch - core.offers.send_epoch(entry)) & 0xFFFF)
        if link.heard_epoch >= 0 and (epoch - link.heard_epoch) & 0xFFFF > oldest:
            link.heard_epoch = (epoch - oldest - 1) & 0xFFFF

    def _tidy_offers(self, epoch: int) -> None:
        offers = self.node.core.offers
        for entry in range(offers.count):
            kind = offers.kinds[entry]
            if not kind:
                offers.ids[32 * entry : 32 * entry + 32] = bytes(32)
                offers.put(entry, 0, 0, epoch)

    def _tidy_contact(self, codec: Compact1, link: Link, epoch: int) -> None:
        codec.use(link)
        codec._slab[:_ROWS_AT] = bytes(_ROWS_AT)
        if not codec.has(_WAITS):
            codec._put_field(_WAITS_FROM, epoch)
        if not codec._count(_SENDS):
            codec._put_field(_SENT_EPOCH, epoch)
        if codec.spoken(link) != PLAIN:
            codec._put_field(_PROBE_EPOCH, epoch)

    # --- putting back ---

    def put(self, fields: Fields) -> None:
        """Be in this state, at NOW_MS."""
        scalars, slabs, lists = fields
        self.node.core.scanner = None
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
        for slab in self._epoch_slabs:
            slab[:] = self._shifted(slab, slabs[at : at + len(slab)], EPOCH)
            at += len(slab)
        for values, content in zip(self._lists, lists, strict=True):
            values[:] = content

    def _shifted(self, slab: bytearray, content: bytes | bytearray, by: int) -> bytes:
        """What is to stand in a slab when all that is an epoch in it changes by as much."""
        slots = self.node.core.slots
        begin, end = self._epochs_in(slab)
        made = bytearray(content[:begin])
        for at in range((end - begin) // 2):
            number = int.from_bytes(content[begin + 2 * at : begin + 2 * at + 2], "big")
            is_epoch = True
            if slab is slots.send_counts:
                is_epoch = content[at] != SEND_COUNT_NONE
            elif slab is not self.node.core.offers.kinds:
                is_epoch = at % _CONTACT_NUMBERS in _CONTACT_EPOCHS
            made += ((number + by if is_epoch else number) & 0xFFFF).to_bytes(2, "big")
        return bytes(made + content[end:])

    def _epochs_in(self, slab: bytearray) -> tuple[int, int]:
        """From where to where a slab has epochs among its numbers of 16 bits."""
        offers = self.node.core.offers
        if slab is offers.kinds:
            return 3 * offers.count, 5 * offers.count
        if slab is self.node.core.slots.send_counts:
            return len(slab) // 3, len(slab)
        codec = self.node.core.codecs.get(PROFILE_COMPACT_1)
        if isinstance(codec, Compact1) and slab is codec._slab:
            return codec.rows_end(), len(slab)
        return 0, len(slab)


def is_number(slots: MessageSlots, cell: int) -> bool:
    """True when a peer's number stands in the cell's send epoch."""
    return slots.send_counts[cell] == SEND_COUNT_NONE
