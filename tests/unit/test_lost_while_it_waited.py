"""What waits for its parents while the one who sent it loses its store: it is given back."""

from drupelet.node import PROFILE_COMPACT_1
from drupelet.store.files import RamFiles
from helpers import EPOCH_MS, Draw, Member, Network, check_causal, frames, stamp

FILLERS = 20
PARENT = b"parent"
ROUNDS_MAX = 4_000


def wipe(member: Member, salt: int) -> None:
    """Format the flash of a member."""
    member.files = RamFiles(1 << 22)
    member.store_options["salt"] = salt
    member.start()
    member.boot()


def root(member: Member, text: bytes, now_ms: int) -> bytes:
    """Publish what depends on nothing, at the same time for all; its id."""
    body = b"\0" + text
    assert member.node.publish(member.group, body, len(body), stamp(1), now_ms) > 0
    return member.log()[-1]


def with_lost_child() -> tuple[Network, bytes]:
    """B has a child of A, which lost its store; the parent is with C; there is its id."""
    draw = Draw(3)
    members = [Member(name, draw, pool=4, salt=0x1111 * ord(name) | 1) for name in "ABC"]
    a, b, c = members
    net = Network(draw, members, ["AB", "BC"], profile=PROFILE_COMPACT_1)
    for number in range(FILLERS):
        root(b, b"filler %d" % number, net.now_ms)
        net.round()
    net.run(lambda: net.complete(FILLERS), ROUNDS_MAX)
    for _ in range(20):  # all know whose store it is
        net.round()
    a.links["B"].hear(net.now_ms)
    parent = root(a, PARENT, net.now_ms)
    net.lines["A", "B"].never = PARENT
    while not any(PARENT in frame for frame in frames(net, "A", "B")):
        net.now_ms += EPOCH_MS
    net.now_ms += EPOCH_MS  # the child goes in a frame of its own
    child = b"\1" + parent + b"child"
    assert a.node.publish(a.group, child, len(child), stamp(2), net.now_ms) > 0
    id = a.log()[-1]
    net.run(lambda: b.node.pending_count() == 1, ROUNDS_MAX)
    wipe(a, 0x55555555)
    net.connect(a)
    outbox = b.links["A"].exchange.outbox
    net.run(lambda: outbox.lost_until > 0, ROUNDS_MAX)
    for line in (net.lines["A", "B"], net.lines["B", "A"]):
        line.loss = 1000
    assert root(c, PARENT, net.now_ms) == parent
    return net, id


def test_a_sender_that_lost_its_store_is_given_what_waited_meanwhile() -> None:
    """It enters the log in another place, behind all that the sender is known to have lost."""
    net, id = with_lost_child()
    a, b, c = (net.members[name] for name in "ABC")
    net.run(lambda: id in b.log() and id in c.log(), ROUNDS_MAX)
    for number in range(8):  # none depends on it
        root(c, b"later %d" % number, net.now_ms)
        net.run(lambda: len(b.log()) == len(c.log()), ROUNDS_MAX)
    assert b.links["A"].exchange.outbox.find(id, 0) < 0  # it waits on flash
    for line in net.lines.values():
        line.loss = 0
    net.run(lambda: sorted(a.log()) == sorted(c.log()), ROUNDS_MAX)
    assert id in a.log()
    check_causal(a)
