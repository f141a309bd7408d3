"""Two members who exchange bundles over a stick that is carried to and fro."""

from drupelet.link.stick_visit import BundleLink
from drupelet.node import CARRIER_STICK, PROFILE_BSP_1
from helpers import Draw, Member, check_causal


class Bundle:
    """A file on the stick: its number, what its writer had read of the peer's, its frames."""

    def __init__(self, number: int, seen: int, frames: list[bytes]) -> None:
        self.number = number
        self.seen = seen
        self.frames = frames
        self.whole = True


class Stick:
    """Bundles by (receiver, sender), as the stick transport keeps them."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], list[Bundle]] = {}

    def of(self, receiver: str, sender: str) -> list[Bundle]:
        return self.files.setdefault((receiver, sender), [])


def pair(pool: int = 64, offers: int = 64, **store: int) -> tuple[Member, Member]:
    draw = Draw(4)
    a = Member("A", draw, pool=pool, offers=offers, **store)
    b = Member("B", draw, pool=pool, offers=offers, **store)
    for here, there in ((a, "B"), (b, "A")):
        here.peers.append(there)
        here.add(there)
        here.boot()
        connect(here)
    return a, b


def connect(member: Member) -> None:
    for name in member.peers:
        member.links[name] = member.node.link(
            member.numbers[name], PROFILE_BSP_1, CARRIER_STICK, 0, 0
        )


def link_of(member: Member) -> BundleLink:
    (link,) = member.links.values()
    assert isinstance(link, BundleLink)
    return link


def peer_of(member: Member) -> str:
    return member.peers[0]


def read(member: Member, stick: Stick) -> int:
    """Take in what is new on the stick; the frames."""
    link = link_of(member)
    count = 0
    for bundle in stick.of(member.name, peer_of(member)):
        if bundle.number > link.bundle_in:
            link.begin_import()
            for frame in bundle.frames:
                assert link.receive(bytearray(frame), len(frame), 0) == 0
                count += 1
            if bundle.whole:
                link.imported(bundle.number, bundle.seen)
    member.consume()
    return count


def write(member: Member, stick: Stick, cut_after: int = -1, room: int = 1 << 30) -> Bundle | None:
    """Leave what is due; `cut_after` frames the stick is pulled, `room` bytes fit."""
    link = link_of(member)
    own = stick.of(peer_of(member), member.name)
    own[:] = [bundle for bundle in own if bundle.number > link.peer_seen]
    newest = max((bundle.number for bundle in own), default=0)
    link.visit(0, newest < link.bundle_out)
    frames = []
    frame = bytearray(1024)
    for _ in range(2000):
        link.set_room(max(room - sum(map(len, frames)), 0))
        size = link.poll_into(frame, 0)
        if len(frames) == cut_after:
            link.abort(0)
            return None
        if not size:
            break
        frames.append(bytes(frame[:size]))
    if not frames:
        return None
    number = max(link.bundle_out, link.peer_seen, newest) + 1
    bundle = Bundle(number, link.bundle_in, frames)
    own.append(bundle)
    link.commit(0, number)
    assert link.bundle_out == bundle.number
    assert member.node.save(0) == 0
    return bundle


def visit(member: Member, stick: Stick) -> Bundle | None:
    read(member, stick)
    return write(member, stick)


def settle(members: tuple[Member, Member], stick: Stick, visits_max: int = 20) -> int:
    """Carry the stick to and fro until nobody writes; how many visits that took."""
    idle = 0
    for count in range(visits_max):
        idle = 0 if visit(members[count % 2], stick) else idle + 1
        if idle == 2:
            return count
    raise AssertionError("still writing", visits_max)


def same_logs(members: tuple[Member, Member], count: int) -> None:
    for member in members:
        log = member.log()
        assert len(log) == len(set(log)) == count
        check_causal(member)
        assert member.node.outstanding(member.numbers[peer_of(member)]) == 0
        assert member.node.core.outboxes[0].cursor == member.node.core.graph.newest
