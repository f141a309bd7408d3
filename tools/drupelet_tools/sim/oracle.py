"""What must be true, whatever happens: a model of its own that never asks the core.

It is told what clients did and got, and reads every frame that leaves a node. Invariants S1 to
S13, L1 to L3 and W1 stand in docs/simulator.md; the first that does not hold raises Violation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice, pairwise

from drupelet_tools.sim import compact
from drupelet_tools.sim.readers import FrameIds, read

# A peer that was heard at most so many epochs ago is asked every second epoch (docs/SPEC.md 10.1).
HEARD_EPOCHS_MAX = 16
# Acknowledgements since a boot that are looked up after the next one: the newest ones.
HELD_MAX = 256
# What an 8-byte prefix of an id stands for is looked up by it.
PREFIX_SIZE = 8
# A sum is looked at while it cannot be that of anything: its 8 bytes have more bits than these.
SUM_MAX = 48
# A peer that was asked so often whether it reads segments need not get what is too long for it: a
# full log may drop that (docs/SPEC.md 3.4). A question is a SEGMENT of one byte (3.2).
QUESTIONS_MAX = 6
QUESTION_SIZE = 14
# Pace of sends that is remembered per direction; older ones are forgotten, not refused.
PACE_MAX = 512


class Violation(AssertionError):
    """An invariant did not hold: which one, where, and what was seen."""

    def __init__(self, name: str, node: str, text: str) -> None:
        super().__init__(f"{name} at {node}: {text}")
        self.name = name


@dataclass(slots=True)
class Message:
    """A message as its author's client knows it."""

    author: str
    group: bytes
    parents: tuple[bytes, ...]
    at_ms: int
    invalid: bool = False
    promised: bool = False
    needs: set[str] = field(default_factory=set)


@dataclass(slots=True)
class View:
    """What one member was given and promised."""

    given: set[bytes] = field(default_factory=set)
    open: dict[bytes, None] = field(default_factory=dict)  # given, and not confirmed durably
    again: set[bytes] = field(default_factory=set)  # may come again after a cut
    deleted: set[bytes] = field(default_factory=set)
    held: dict[bytes, None] = field(default_factory=dict)  # acknowledged since the last boot
    unpromised: dict[bytes, None] = field(default_factory=dict)
    had: set[bytes] = field(default_factory=set)  # before its store was lost
    claimed: set[bytes] = field(default_factory=set)  # acknowledged or offered to somebody, ever
    stored: set[bytes] = field(default_factory=set)  # found in its log since the last boot
    judges: bool = True


class Pace:
    """When each message went to a peer, to hold S8: ever fewer sends in silence."""

    __slots__ = ("epoch_ms", "mark", "sends")

    def __init__(self) -> None:
        self.mark = 0  # counts what sets the back-off back: hearing the peer, a boot, a mode
        self.epoch_ms = 0  # the shortest of the links
        # id -> when it went last, when it went first since the mark, how often, mark
        self.sends: dict[bytes, tuple[int, int, int, int]] = {}


class Oracle:
    """Judges one world. `now` is the world's time in ms; `count` counts the checks."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.messages: dict[bytes, Message] = {}
        self.members: dict[bytes, tuple[str, ...]] = {}
        self.views: dict[str, View] = {}
        self.paces: dict[tuple[str, str], Pace] = {}
        self.checks = 0
        self.deliveries = 0
        self.duplicated = 0
        self.missing = 0  # deliveries that are still to come
        self.withdrawn = 0
        self.reads_frames = True  # else deliveries and reboots alone are judged
        self.resets: set[str] = set()  # whose store was lost or set back
        self.gone: set[bytes] = set()  # dropped by full logs before all had it: not owed
        # Who was shown all again, in `compact-1` by prefixes: what is gone is asked for its id.
        self.shown: set[str] = set()
        self.sent: dict[tuple[str, str], set[bytes]] = {}  # messages, by who to whom
        self.questions: dict[tuple[str, str], int] = {}  # whether it reads segments, by the same
        self.latencies_ms: list[int] | None = None
        self._prefixes: dict[bytes, bytes] = {}  # of all messages that there ever were
        self._ledger = compact.Ledger(self._prefixes.get)

    def add_member(self, name: str, judges: bool = True) -> None:
        """Know a node."""
        self.views[name] = View(judges=judges)

    def add_group(self, group: bytes, members: Iterable[str]) -> None:
        """Know a group; members that may judge its messages."""
        self.members[group] = tuple(members)

    # --- what clients do ---

    def published(
        self, node: str, group: bytes, id: bytes, parents: tuple[bytes, ...], invalid: bool
    ) -> None:
        """A node accepted a message of its own client."""
        assert id not in self.messages, "the simulator makes every body once"
        self._prefixes[id[:PREFIX_SIZE]] = id
        invalid = invalid or any(
            parent in self.messages and self.messages[parent].invalid for parent in parents
        )
        needs = {
            name
            for name in self.members[group]
            if name != node and not (invalid and self.views[name].judges)
        }
        self.messages[id] = Message(node, group, parents, self.now_ms, invalid, False, needs)
        self.missing += len(needs)
        self.views[node].unpromised[id] = None

    def refused(self, node: str, id: bytes) -> None:
        """The node did not take what its client wanted to publish."""
        self.missing -= len(self.messages.pop(id).needs)
        self.views[node].unpromised.pop(id, None)

    def flushed(self, node: str, volatile: Callable[[bytes], bool]) -> None:
        """The store said that everything so far is durable."""
        view = self.views[node]
        for id in view.unpromised:
            self._check("S3", node, not volatile(id), id, "a barrier left it unflushed")
            self.messages[id].promised = True
        view.unpromised.clear()

    def given(self, node: str, id: bytes, again: bool) -> None:
        """The client got a message of the log."""
        message = self.messages.get(id)
        view = self.views[node]
        self.checks += 3
        if message is None:
            raise Violation("S1", node, f"{id.hex()[:12]} was never published")
        if id in view.given:
            if id not in view.again:
                self.duplicated += 1
                raise Violation("S2", node, f"{id.hex()[:12]} delivered twice")
            self._check("S2", node, again, id, "given again and not flagged so")
            view.again.discard(id)
        else:
            view.given.add(id)
            if node in message.needs:
                message.needs.discard(node)
                self.missing -= 1
                self.deliveries += 1
                if self.latencies_ms is not None:
                    self.latencies_ms.append(self.now_ms - message.at_ms)
        view.open[id] = None
        self._check("S5", node, id not in view.deleted, id, "deleted, and delivered again")
        for parent in message.parents:
            if parent not in view.given and parent not in view.deleted | self.gone:
                raise Violation("S1", node, f"{id.hex()[:12]} before its dependency")
        if self._is_known_invalid(message) and view.judges and message.author != node:
            raise Violation("S12", node, f"{id.hex()[:12]} is invalid and was delivered")

    def _is_known_invalid(self, message: Message) -> bool:
        """True unless a message depends on invalid ones which are gone: nobody can judge it."""
        return message.invalid and not any(parent in self.gone for parent in message.parents)

    def content(self, node: str, id: bytes, computed_id: bytes) -> None:
        """S3: the id computed from a message's content in a store equals the id of its record."""
        self._check("S3", node, id == computed_id, id, "its content is another")

    def confirmed(self, node: str) -> None:
        """Everything given since the boot is confirmed, and that is durable. What a cut took the
        confirmation of may still come again: a node may save before its client looks."""
        self.views[node].open.clear()

    def deleted(self, node: str, id: bytes) -> None:
        """The client deleted a message of its log."""
        self.views[node].deleted.add(id)

    def deletable(self, node: str, any_foreign: bool) -> list[bytes]:
        """What this client may delete without taking it from others: what all have, for good."""
        view = self.views[node]
        return [
            id
            for id in reversed(self.messages)
            if id in view.given
            and id not in view.deleted
            and not self.messages[id].invalid
            and (not self.messages[id].needs or (any_foreign and self.messages[id].author != node))
            and not self._may_go(node, id)
        ][:32]

    def _may_go(self, node: str, id: bytes) -> bool:
        """Whether a power cut may take the message from another one that was given it."""
        others = (view for name, view in self.views.items() if name != node)
        return any(id in view.open and id not in view.held for view in others)

    # --- reboots ---

    def rebooted(
        self, node: str, finds: Callable[[bytes], bool], settled: Callable[[bytes], bool],
        waits: Callable[[bytes], bool],
    ) -> None:  # fmt: skip
        """A node came back from its store. `settled`: a log may drop it, all its peers hold it.

        `waits`: it is pending again, so a cut took its delivery, and a parent with it.
        """
        view = self.views[node]
        for id in view.held:
            self.checks += 1
            if id in self.messages and not finds(id) and not settled(id):
                raise Violation("S3", node, f"{id.hex()[:12]} was acknowledged and is gone")
        acked = dict(view.held)
        view.held.clear()
        view.stored.clear()
        for id in list(view.unpromised):
            if not finds(id):
                self._withdraw(node, id)
        view.unpromised = {id: None for id in view.unpromised if id in self.messages}
        for id in view.open:
            if waits(id):
                self._anew(node, id)
            elif finds(id):
                view.again.add(id)
            elif id in self.messages:
                self._forget(node, id, acked, settled)
        view.open.clear()
        for (here, _), pace in self.paces.items():
            if here == node:
                pace.mark += 1

    def _forget(
        self, node: str, id: bytes, acked: dict[bytes, None], settled: Callable[[bytes], bool]
    ) -> None:  # fmt: skip
        """What was given but never durable comes anew."""
        message = self.messages[id]
        view = self.views[node]
        # To a node that lost its store, what it once said comes as anything else does.
        if message.author == node and id not in view.had:
            good = not message.promised or settled(id)
            self._check("S3", node, good, id, "own, promised, gone")
            if not message.promised:
                self._withdraw(node, id)
            return
        # A log may have dropped what it acknowledged; what it did not, nobody counts on.
        if id not in acked or not settled(id):
            self._anew(node, id)

    def _anew(self, node: str, id: bytes) -> None:
        """That it was given is forgotten: it comes as for the first time."""
        self.views[node].given.discard(id)
        self.messages[id].needs.add(node)
        self.missing += 1
        self.deliveries -= 1

    def _withdraw(self, node: str, id: bytes) -> None:
        """The power went before its author's store had it: as if never published."""
        message = self.messages.pop(id)
        others = set(self.members[message.group]) - {node} - message.needs
        others = {name for name in others if id in self.views[name].given}
        self._check("S3", node, not others, id, "others have it, and its author lost it")
        self.missing -= len(message.needs)
        self.withdrawn += 1
        self.views[node].given.discard(id)
        self.views[node].unpromised.pop(id, None)

    def reset(self, node: str, holds: Callable[[bytes], bool]) -> None:
        """A node came back with another store: emptied, or as it was once.

        Its client is as old as its store. What it had and has no more is to come again, if
        anybody else has it (`owed`); what only it had is gone with it.
        """
        view = self.views[node]
        self._ledger.reset(node)
        self.resets.add(node)
        view.had |= view.given | view.claimed
        view.given = {id for id in self.messages if holds(id)}
        view.again = set(view.given)
        for past in (view.open, view.held, view.unpromised):
            past.clear()
        view.deleted.clear()
        for id, message in self.messages.items():
            if node not in self.members[message.group]:
                continue
            if id in view.given or (message.invalid and view.judges):
                message.needs.discard(node)
            else:
                message.needs.add(node)
        self.missing = sum(len(message.needs) for message in self.messages.values())
        for (here, there), pace in self.paces.items():
            if node in (here, there):
                pace.mark += 1

    def dropped(
        self, node: str, peer: str, group: bytes, holds: Callable[[bytes], bool]
    ) -> None:  # fmt: skip
        """A group is shared with a peer again: what its log has dropped, nobody is owed."""
        self.shown.update((node, peer))
        view = self.views[node]
        # What the peer acknowledged may be pending there.
        has = self.views[peer].given | self.views[peer].claimed - self.views[peer].had
        for id, message in self.messages.items():
            had = message.group == group and (message.author == node or id in view.given)
            if had and id not in has and not holds(id):
                self.missing -= len(message.needs)
                message.needs.clear()
                self.gone.add(id)

    def owed(self) -> int:
        """Deliveries that are to come: those of messages that some member still has."""
        if not self.resets:
            return self.missing
        return len(self.lost())

    def _somebody_has(self, id: bytes, message: Message) -> bool:
        return any(
            id in self.views[name].given and id not in self.views[name].deleted
            for name in self.members[message.group]
        )

    # --- frames ---

    def left(
        self, node: str, peer: str, frame: bytes, visible: set[bytes], accepts: set[bytes],
        volatile: Callable[[bytes], bool], finds: Callable[[bytes], bool],
        epoch_ms: int,
    ) -> None:  # fmt: skip
        """A frame leaves a node for a peer, over a carrier whose epochs are so long (0: stick).

        `accepts`: groups of which it may acknowledge what it takes, and not more.
        """
        frame_ids = self.read_leaving(node, peer, frame) if self.reads_frames else None
        if frame_ids is None:
            return
        view = self.views[node]
        self._isolation(node, peer, (*frame_ids.offers, *frame_ids.messages), visible)
        self._isolation(node, peer, frame_ids.acks, visible | accepts)
        view.claimed.update(frame_ids.acks, frame_ids.offers)
        self._note_gone(node, peer, frame, frame_ids)
        for id in frame_ids.acks:
            self.checks += 1
            if volatile(id):
                raise Violation("S3", node, f"{id.hex()[:12]} acknowledged before it is durable")
            ours = id in view.given or id in view.had
            if id in self.messages and not ours and id not in self.gone:
                self._check("S3", node, finds(id), id, "acknowledged, and never came")
            view.held[id] = None
            if len(view.held) > HELD_MAX:
                del view.held[next(iter(view.held))]
        for total in frame_ids.sums:
            self._outstanding(node, peer, total, visible, finds)
        for id in frame_ids.requests:
            message = self.messages.get(id)
            # Toward a peer that does not see its group, a message is as if it did not exist.
            is_hidden = message is not None and message.group not in visible | accepts
            good = id not in view.deleted or node in self.shown or is_hidden
            self._check("S5", node, good, id, "deleted, and asked for again")
        self.sent.setdefault((node, peer), set()).update(frame_ids.messages)
        for id in frame_ids.messages:
            message = self.messages.get(id)
            if message is None:
                raise Violation("S6", node, f"{id.hex()[:12]} was never published")
            if message.author == node and not message.promised:
                self._check("S3", node, not volatile(id), id, "sent before it is durable")
                message.promised = True
                view.unpromised.pop(id, None)
            self._check("S5", node, id not in view.deleted, id, "deleted, and sent")
            if epoch_ms:
                self._paced(node, peer, id, epoch_ms)

    def _note_gone(self, node: str, peer: str, frame: bytes, frame_ids: FrameIds) -> None:
        """An id that is acknowledged twice in a row is gone there, which is allowed after so many
        questions: what depends on it may come without it."""
        ends = node, peer
        if frame_ids.segments and len(frame) == QUESTION_SIZE:
            self.questions[ends] = self.questions.get(ends, 0) + 1
        if self.questions.get(ends, 0) >= QUESTIONS_MAX:
            self.gone.update(id for id, again in pairwise(frame_ids.acks) if id == again)

    def read_leaving(self, node: str, peer: str, frame: bytes) -> FrameIds | None:
        """W1: what leaves in `compact-1` is as the specification has it."""
        if frame[0] != compact.KIND:
            return read(frame)
        self.checks += 1
        try:
            return self._ledger.leaves(node, peer, frame)
        except compact.BrokenRuleError as broken:
            raise Violation("W1", node, f"to {peer}: {broken}, in {frame.hex()}") from broken

    def arrives(self, node: str, peer: str, frame: bytes) -> FrameIds | None:
        """What a node may take from a frame of a peer's."""
        if frame[0] == compact.KIND:
            return self._ledger.arrives(node, peer, frame)
        return read(frame)

    def learned(self, node: str, peer: str, frame: bytes, ids: Iterable[bytes]) -> None:
        """S4: since this frame came, a node counts these as held by the peer."""
        frame_ids = self.arrives(node, peer, frame) or FrameIds()
        # A message that the peer sent before may have waited outside the slots for its parents.
        claimed = {*frame_ids.acks, *frame_ids.offers, *self.sent.get((peer, node), ())}
        for id in ids:
            good = id in claimed or id[:PREFIX_SIZE] in frame_ids.segments
            self._check("S4", node, good, id, f"counts as held by {peer}, which did not say so")

    def _isolation(self, node: str, peer: str, ids: Iterable[bytes], visible: set[bytes]) -> None:
        for id in ids:
            message = self.messages.get(id)
            self.checks += 1
            if message is not None and message.group not in visible:
                raise Violation("S6", node, f"{id.hex()[:12]} of a group that {peer} has not")

    def _outstanding(
        self, node: str, peer: str, total: bytes, visible: set[bytes],
        finds: Callable[[bytes], bool],
    ) -> None:  # fmt: skip
        """W1: a greeting sums up messages that its sender has; none only if the peer has all.

        What the peer has acknowledged or offered may wait there still. Of a peer that lost its
        store its sender may not know yet.
        """
        view, there = self.views[node], self.views[peer]
        self.checks += 1
        if not total:
            for id in view.given if peer not in self.resets else ():
                message = self.messages.get(id)
                if message is None or message.group not in visible or message.invalid:
                    continue
                known = id in there.given or id in there.claimed or id in self.gone
                if not known and id not in view.deleted:
                    raise Violation("W1", node, f"{id.hex()[:12]} is outstanding at {peer}")
            return
        # A message found once since this boot is not searched again: a search of a log is slow.
        has = (
            id for id, each in self.messages.items()
            if each.group in visible and (id in view.stored or finds(id))
        )  # fmt: skip
        among = list(islice(has, SUM_MAX + 1))
        view.stored.update(among)
        if len(among) > SUM_MAX:
            return
        left = int.from_bytes(total, "big")
        basis: list[int] = []
        for id in among:
            value = int.from_bytes(id[:PREFIX_SIZE], "big")
            for each in basis:
                value = min(value, value ^ each)
            if value:
                basis.append(value)
        for each in basis:
            left = min(left, left ^ each)
        if left:
            raise Violation("W1", node, f"{total.hex()} to {peer} is the sum of no messages")

    def _paced(self, node: str, peer: str, id: bytes, epoch_ms: int) -> None:
        pace = self.paces.get((node, peer))
        if pace is None:
            pace = self.paces[node, peer] = Pace()
        last = pace.sends.pop(id, None)
        pace.epoch_ms = min(pace.epoch_ms or epoch_ms, epoch_ms)
        first_ms = self.now_ms
        count = 1
        self.checks += 1
        if last is not None and last[3] == pace.mark:
            first_ms = last[1]
            count = last[2] + 1
            pause_ms = self.now_ms - last[0]
            # Half an epoch: two payloads lie in two epochs, and drift is far less.
            if 2 * pause_ms < epoch_ms:
                raise Violation("S8", node, f"{id.hex()[:12]} to {peer} again after {pause_ms} ms")
            # Over each of two links every second epoch at first, six doublings, and MVDS climbs
            # from 8 to 64 epochs in four steps.
            epochs = (self.now_ms - first_ms) // pace.epoch_ms
            most = 2 * (HEARD_EPOCHS_MAX // 2 + 6 + epochs // 30 + 2)
            if count > most:
                raise Violation(
                    "S8", node,
                    f"{id.hex()[:12]} to {peer}: {count} sends in {epochs} epochs of silence",
                )  # fmt: skip
        pace.sends[id] = (self.now_ms, first_ms, count, pace.mark)
        if len(pace.sends) > PACE_MAX:
            del pace.sends[next(iter(pace.sends))]

    def heard(self, node: str, peer: str) -> None:
        """Something of the peer came in: its pauses begin anew."""
        pace = self.paces.get((node, peer))
        if pace is not None:
            pace.mark += 1

    # --- at the end ---

    def lost(self) -> list[tuple[bytes, str]]:
        """What has not come, and to whom."""
        return [
            (id, name)
            for id, m in self.messages.items()
            if m.needs and (not self.resets or self._somebody_has(id, m))
            for name in sorted(m.needs)
        ]

    def log_is_causal(self, node: str, log: list[bytes]) -> None:
        """The log of a node: each message once, after what it depends on."""
        seen: set[bytes] = set()
        present = set(log)
        for id in log:
            self.checks += 1
            if id in seen:
                self.duplicated += 1
                raise Violation("S2", node, f"{id.hex()[:12]} is twice in the log")
            message = self.messages.get(id)
            for parent in message.parents if message else ():
                if parent in present and parent not in seen:
                    raise Violation(
                        "S1", node, f"{id.hex()[:12]} before its dependency in the log"
                    )
            seen.add(id)

    def invalid(self, groups: Iterable[bytes]) -> int:
        """How many messages of these groups no judge is given; they are kept all the same."""
        among = set(groups)
        return sum(1 for each in self.messages.values() if each.invalid and each.group in among)

    def bounded(self, node: str, what: str, value: int, limit: int) -> None:
        """S7, and S13: a figure that must stay below its constant."""
        self.checks += 1
        if value > limit:
            raise Violation(
                "S13" if what == "programs" else "S7", node, f"{what}: {value} > {limit}"
            )

    def _check(self, name: str, node: str, good: bool, id: bytes, text: str) -> None:
        self.checks += 1
        if not good:
            raise Violation(name, node, f"{id.hex()[:12]} {text}")
