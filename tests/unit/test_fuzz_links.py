"""A link with the engine behind it under 100,000 frames of any bytes: codes, and no growth.

First frames that hold no message that anybody could take in: neither the store nor a table may
change its size by a byte. Then frames with sound ones among them: what enters the log is theirs.
Afterwards the node still works.
"""

import random
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import (
    BODY_FILES_MAX,
    BODY_SIZE_MAX,
    FRAME_SIZE_MAX,
    ID_PREFIX_SIZE,
    PART_INCOMING,
    PARTS_MAX,
)
from drupelet.engine import unavailable
from drupelet.engine.core import Core
from drupelet.engine.inbox import OWED_TWICE, REQUESTED
from drupelet.engine.outbox import ROW_SIZE, TAG_SIZE
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from helpers import EPOCH_MS, Draw, Member, Network, check_causal, kinds_of, stamp
from mutations import STREAMS, mutated, no_growth

CODES = (OK, E_PEER, E_CAPACITY)
POOL = 8
POLL_EVERY = 40
FRAMES_MAX = 80
TRACED = 1_000
# Of each profile's frames so many may hold sound messages: a full log is slow to search.
MESSAGES = 4_000
# What a part file has beside the content.
PART_HEAD_MAX = 64
SEGMENT, STATE = 0x50, 0x51
PROFILES = {
    "bsp-1": PROFILE_BSP_1,
    "mvds-1": PROFILE_MVDS_1,
    "mvds-nested": PROFILE_MVDS_NESTED,
    "mvds-5001": PROFILE_MVDS_5001,
    "compact-1": PROFILE_COMPACT_1,
}


def family(profile: int) -> int:
    return FAMILY_MVDS if PROFILE_MVDS_1 <= profile <= PROFILE_MVDS_5001 else FAMILY_BSP


class Target:
    """A member with one peer, its link, and all that must not grow."""

    def __init__(self, profile: int, mode: int = BATCH, pool: int = POOL) -> None:
        self.member = Member("A", Draw(profile), pool=pool, offers=pool, family=family(profile))
        self.member.peers.append("B")
        self.member.add("B")
        self.member.boot()
        self.node = self.member.node
        self.own = [self.member.publish(b"own %d" % n) for n in range(3)]
        self.link = self.node.link(
            self.member.numbers["B"], profile, CARRIER_SERIAL, EPOCH_MS, mode
        )
        self.now_ms = 0
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.codes = dict.fromkeys((*CODES, E_STORAGE), 0)
        self.gone: set[bytes] = set()  # so begin parents that the peer has no more

    def sizes(self) -> dict[str, int]:
        """Lengths of every table that the core and the store have."""
        core = self.node.core
        exchange = self.link.exchange
        owners = (
            core, core.members, core.graph, core.pending, core.outboxes[0], core.inboxes[0],
            self.link, exchange, exchange.pace, core.long, self.member.store,
        )  # fmt: skip
        return {
            f"{type(owner).__name__}.{name}": len(table)
            for owner in owners
            for name, table in vars(owner).items()
            # The graph's are views of what it looks at.
            if isinstance(table, bytearray | list | dict) and name not in ("_body", "_stamp")
        }

    def give(self, frame: bytes) -> int:
        size = min(len(frame), FRAME_SIZE_MAX)
        self.frame[:size] = frame[:size]
        code = self.link.receive(self.frame, size, self.now_ms)
        self.codes[code] += 1
        assert len(self.frame) == FRAME_SIZE_MAX
        return code

    def poll(self) -> None:
        """An epoch: it may answer with so many frames, and it sleeps for a bounded time."""
        self.now_ms = (self.now_ms + EPOCH_MS) & 0x3FFFFFFF
        for _ in range(FRAMES_MAX):
            size = self.link.poll_into(self.frame, self.now_ms)
            assert 0 <= size <= FRAME_SIZE_MAX
            if not size:
                break
        else:
            raise AssertionError("one epoch, one payload")
        self.member.consume()
        assert 0 <= self.node.wake_ms(self.now_ms) <= 1 << 28

    def run(self, frames: Callable[[], bytes], count: int, traced: bool = True) -> None:
        """So many frames; memory is looked at while the last ones come, if it is not the log."""
        for number in range(count - TRACED):
            self.give(frames())
            if number % POLL_EVERY == 0:
                self.poll()
        last = [frames() for _ in range(TRACED)]
        with no_growth() if traced else nullcontext():
            for frame in last:
                self.give(frame)
            self.poll()

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Keep the ids of messages of which the peer says that they are gone."""
        give_up = unavailable.give_up

        def listening(core: Core, peer: int, id: bytearray, at: int) -> None:
            self.gone.add(bytes(id[at : at + ID_PREFIX_SIZE]))
            give_up(core, peer, id, at)

        patch.setattr(unavailable, "give_up", listening)

    def check_tables(self) -> None:
        """Every count is what the table holds, and rows are of the messages that they name."""
        core = self.node.core
        outbox, inbox, pending = core.outboxes[0], core.inboxes[0], core.pending
        assert outbox.count <= outbox.rows_max
        assert outbox.open_count == sum(map(outbox.is_open, range(outbox.count)))
        handles = outbox.handles[: outbox.count]
        assert handles == sorted(set(handles)), "rows are in the order of the log"
        assert pending.count == sum(map(bool, pending.handles))
        for row, handle in enumerate(handles):
            assert core.store.is_id(handle, outbox.rows, ROW_SIZE * row, TAG_SIZE)
        # Reading behind the table raises IndexError.
        assert all(inbox.owed_group(row) <= 2 for row in range(inbox.owed_end))
        assert max(kinds_of(inbox)) <= OWED_TWICE
        assert inbox.kind(inbox.offers_max) in (0, REQUESTED)
        log = self.member.log()
        assert len(set(log)) == len(log) and set(self.own) <= set(log)
        parents = [parent for row in self.member.dependencies().values() for parent in row]
        check_causal(self.member, [id for id in parents if id[:ID_PREFIX_SIZE] in self.gone])


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, value: bytes) -> bytes:
    """A protobuf field with a length."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def sound_frames(profile: int, group: bytes, ids: list[bytes]) -> list[bytes]:
    """Frames of a profile: each record by itself, and all together; none of compact-1."""
    if profile == PROFILE_COMPACT_1:
        return []
    if profile == PROFILE_BSP_1:
        parts = [
            bytes([1, kind]) + (32 * n).to_bytes(2, "big") + b"".join(ids[:n])
            for kind in (0, 2, 3) for n in (1, 4)
        ]  # fmt: skip
        bodies = [b"", b"\x00free", b"\x01" + ids[0] + b"child", b"\x01" + ids[3] + b"waits"]
        for number, body in enumerate(bodies):
            content = group + stamp(number) + body
            parts.append(b"\x01\x01" + len(content).to_bytes(2, "big") + content)
    else:
        first, inner = (5000, 6000) if profile == PROFILE_MVDS_5001 else (0, 0)
        nested = profile == PROFILE_MVDS_NESTED
        parts = []
        for number in (1, 2, 3):
            one = [field(1, id) if nested else field(first + number, id) for id in ids]
            parts.append(field(number, b"".join(one)) if nested else b"".join(one))
        meta = b"" if nested else field(inner + 4, field(1, ids[0]))
        for number, body in enumerate((b"", b"free", b"more" * 9)):
            moment = varint(inner + 2 << 3) + bytes([number + 1])
            message = field(inner + 1, group) + moment + field(inner + 3, body)
            parts.append(field(first + 4, message + meta * (number % 2)))
    kind = bytes([0x40 | profile])
    return [kind + part for part in [*parts, b"".join(parts)]]


class Stranger(Member):
    """A member of another group than everybody else."""

    def start(self) -> None:
        super().start()
        self.group = self.node.join_id(b"\xee" * 32, self.family)


def captured(profile: int, kind: type[Member]) -> list[bytes]:
    """What two members say to each other over a bad line, in both modes."""
    frames: list[bytes] = []
    for mode in (BATCH, INTERACTIVE):
        draw = Draw(mode + 70)
        members = [kind(name, draw, family=family(profile)) for name in "AB"]
        net = Network(draw, members, ["AB"], mode, profile=profile, loss=200)
        for line in net.lines.values():
            send = line.send

            def watch(frame: bytearray, size: int, send: Callable = send) -> None:
                frames.append(bytes(frame[:size]))
                send(frame, size)

            line.send = watch
        for number in range(12):
            members[number % 2].publish(b"%d" % number * number)
            net.round()
        net.run(lambda net=net: net.complete(12), 2_000)
    return frames


def segment(id: bytes, content: bytes, offset: int, size: int) -> bytes:
    head = id[:8] + len(content).to_bytes(2, "big") + offset.to_bytes(2, "big")
    return bytes([SEGMENT]) + head + content[offset : offset + size]


def segments(ids: list[bytes], contents: list[bytes]) -> list[bytes]:
    """Pieces of some contents, and states."""
    found = [bytes([STATE]) + id[:8] + n.to_bytes(2, "big") for id in ids for n in (0, 7, 40_000)]
    for id, content in zip(ids, contents, strict=False):
        found += [segment(id, content, at, 500) for at in range(0, len(content), 500)]
    return found


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_frames_without_a_message_for_us_change_nothing(profile: int) -> None:
    target = Target(profile, INTERACTIVE)
    ids = [bytes([n]) * 32 for n in range(1, 9)] + target.own
    frames = sound_frames(profile, b"\xee" * 32, ids)
    frames += segments(ids, [b"\xee" * 2000]) + captured(profile, Stranger)
    rng = random.Random(f"nothing {profile}")
    files = target.member.files
    sizes, used, log = target.sizes(), files.used, target.member.log()
    target.run(lambda: bytes(mutated(rng, frames, FRAME_SIZE_MAX)), STREAMS - MESSAGES)
    assert target.sizes() == sizes
    parts = [
        target.member.store.spool.part_size(PART_INCOMING + part) for part in range(PARTS_MAX)
    ]
    assert max(parts) < 32, "a beginning too short to show its group"
    assert files.used <= used + sum(parts) + PARTS_MAX * PART_HEAD_MAX
    assert target.member.log() == log and not target.node.pending_count()
    assert min(target.codes[OK], target.codes[E_PEER]) > STREAMS // 50
    target.check_tables()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_frames_with_messages_among_them(profile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(profile)
    target.listen(monkeypatch)
    group = bytes(target.node.core.members.group_ids[:32])
    ids = [bytes([n]) * 32 for n in range(1, 5)] + target.own
    frames = sound_frames(profile, group, ids)
    long = group + stamp(7) + b"\x00" + bytes(range(256)) * 7
    frames += segments([b"wrongkey" + bytes(24), *ids], [long, long])
    frames += captured(profile, Member)
    rng = random.Random(f"messages {profile}")
    sizes = target.sizes()
    target.run(lambda: bytes(mutated(rng, frames, FRAME_SIZE_MAX)), MESSAGES, traced=False)
    assert target.sizes() == sizes
    # 64 segments of the log, its files of long bodies, and the parts (limits.py).
    long_max = BODY_SIZE_MAX + 100
    assert target.member.files.used <= 64 * 4096 + (BODY_FILES_MAX + PARTS_MAX + 2) * long_max
    assert target.node.delivered > 20, "many a message was sound"
    target.check_tables()


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_segments(mode: int) -> None:
    target = Target(PROFILE_BSP_1, mode)
    group = bytes(target.node.core.members.group_ids[:32])
    writer = Member("W", Draw(1))
    writer.boot()
    contents, ids = [], []
    for number, size in enumerate((953, 3000, 12_000)):
        body = b"\x00" + bytes([number]) * (size - 1)
        assert writer.node.publish(writer.group, body, size, stamp(number), 0) > 0
        contents.append(group + stamp(number) + body)
        ids.append(writer.log()[-1])
    long = b"\x00" + bytes(20_000)
    assert target.node.publish(target.member.group, long, len(long), stamp(9), 0) > 0
    target.own.append(target.member.log()[-1])
    sound = segments([*ids, target.own[-1], b"noonehas" + bytes(24)], contents)
    rng = random.Random(f"segments {mode}")
    at = 0

    def frame() -> bytes:
        # In order, so that contents get far; and in any order.
        nonlocal at
        at = (at + 1) % len(sound)
        return sound[at] if rng.randrange(3) else bytes(mutated(rng, sound, FRAME_SIZE_MAX))

    sizes = target.sizes()
    target.run(frame, STREAMS // 2)
    assert target.sizes() == sizes
    found = set(target.member.log()) - set(target.own)
    assert found == set(ids), "the three that are sound, and none that is not"
    store = target.member.store
    assert all(
        store.spool.part_size(PART_INCOMING + n) <= BODY_SIZE_MAX + 40 for n in range(PARTS_MAX)
    )
    assert target.codes[E_PEER] > STREAMS // 50 and not target.codes[E_STORAGE]
    target.check_tables()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_after_the_noise_the_line_works(profile: int) -> None:
    draw = Draw(profile + 5)
    members = [Member(name, draw, pool=POOL, offers=POOL, family=family(profile)) for name in "AB"]
    net = Network(draw, members, ["AB"], INTERACTIVE, profile=profile)
    group = bytes(members[0].node.core.members.group_ids[:32])
    assert group != b"\xee" * 32
    ids = [bytes([n]) * 32 for n in range(1, 9)]
    assert members[0].publish(b"before")
    frames = sound_frames(profile, b"\xee" * 32, ids) + segments(ids, [b"\xee" * 2000])
    frames += captured(profile, Stranger)
    rng = random.Random(f"after {profile}")
    for number in range(2_000):
        noise = mutated(rng, frames, FRAME_SIZE_MAX)
        buf = bytearray(FRAME_SIZE_MAX)
        buf[: len(noise)] = noise
        for here, there in ("AB", "BA"):
            code = net.members[here].links[there].receive(buf, len(noise), net.now_ms)
            assert code in CODES
        if number % 100 == 0:
            net.round()
            members[number // 100 % 2].publish(b"%d" % number)
    for name in "AB":
        net.members[name].publish(b"after")
    wanted = {id for member in members for id in member.log()}
    net.run(lambda: all(set(member.log()) == wanted for member in members), 3_000)
