"""What left a full log is known by its id: no child waits for it, no copy is delivered again."""

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import FILTER_SIZE, GONE_BATCH, GONE_HANDLE
from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS, INVISIBLE, SHARED
from drupelet.link.link import BATCH, INTERACTIVE
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED, STATE_GONE
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1
from helpers import Draw, Member, Network, kinds_of, stamp
from unit.cut_files import CutFiles
from unit.numbered_messages import SETTLED, SMALL, log_of, message_id, put, reboot, state_of


def pair(profile: int = PROFILE_BSP_1, mode: int = BATCH) -> tuple[Network, Member, Member]:
    """A board with a small log, and a peer that keeps everything."""
    draw = Draw(5)
    board, peer = Member("a", draw, **SMALL), Member("b", draw)
    return Network(draw, [board, peer], [("a", "b")], mode=mode, profile=profile), board, peer


def roll(network: Network, board: Member, peer: Member, id: bytes) -> None:
    """The board's log goes on until it has dropped a message."""
    for number in range(200):
        if id not in board.log():
            break
        assert board.publish(b"%03d" % number + bytes(50), network.now_ms)
        if number % 5 == 0:
            network.run(lambda: not board.node.outstanding(board.numbers["b"]), 40)
            board.node.save(network.now_ms)
    assert id not in board.log() and id in peer.log()
    network.run(lambda: not board.node.outstanding(board.numbers["b"]), 40)


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_a_child_of_what_is_gone_is_delivered(profile: int, mode: int) -> None:
    network, board, peer = pair(profile, mode)
    parent = board.publish(b"parent")
    assert parent is not None
    network.run(lambda: parent in peer.log(), 40)
    roll(network, board, peer, parent)
    body = b"\1" + parent + b"child"
    assert (
        peer.node.publish(peer.group, body, len(body), stamp(network.now_ms), network.now_ms) > 0
    )
    child = peer.log()[-1]
    network.run(lambda: child in board.log(), 40)
    assert board.node.pending_count() == 0
    assert not any(kinds_of(board.node.core.inboxes[0])), "it is not asked for"


def test_a_late_copy_of_what_is_gone_is_acknowledged_and_not_delivered() -> None:
    network, board, peer = pair()
    first = peer.publish(b"first")
    assert first is not None
    line = network.lines["b", "a"]
    plain = line.send
    sent: list[bytes] = []

    def send(frame: bytearray, size: int) -> None:
        sent.append(bytes(frame[:size]))
        plain(frame, size)

    line.send = send
    network.run(lambda: first in board.log(), 80)
    line.send = plain
    (copy,) = [frame for frame in sent if b"first" in frame]
    frame = bytearray(1024)
    roll(network, board, peer, first)
    log, before = board.log(), board.node.duplicates
    frame[: len(copy)] = copy
    board.links["b"].receive(frame, len(copy), network.now_ms)
    assert board.node.duplicates == before + 1 and board.log() == log
    assert board.consume() == [], "it is not given to the client again"
    acknowledged = False
    for _ in range(20):
        network.now_ms += 1000
        size = board.links["b"].poll_into(frame, network.now_ms)
        acknowledged = acknowledged or first in bytes(frame[: max(size, 0)])
    assert acknowledged


class CountingFiles(RamFiles):
    """Counts the flash programs and reads of the ids."""

    programs = reads = 0

    def flush(self, fd: int) -> int:
        self.programs += self._open[fd].endswith(".IDS")
        return RamFiles.flush(self, fd)

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        self.reads += self._open[fd].endswith(".IDS")
        return RamFiles.read_into(self, fd, offset, buf, at, size)


def test_ids_cost_no_more_than_a_program_for_sixteen() -> None:
    """Counted beside the log's own, with small and with the longest records."""
    for size in (40, 900):
        files = CountingFiles(1 << 21)
        store = FlashStore(files, segments_max=16)
        store.open()
        count = 700 if size == 40 else 150
        for number in range(count):
            store.settled_handle = SETTLED
            assert put(store, number, size) > 0
        gone = count - len(log_of(store))
        assert gone > 90 and files.programs <= gone // GONE_BATCH + 1


def test_an_unknown_id_seldom_reads_the_ring() -> None:
    """With as many ids as the usual board's ring has room for."""
    files = CountingFiles(1 << 20)
    store = reboot(files, filter_size=2 * FILTER_SIZE)
    ring = store.departed
    for number in range(8900):
        ring.note(bytearray(message_id(number)), 0, 1, 0)
    assert ring.write_noted() == OK and store.forgotten == 0
    left = bytearray(32)
    for number in range(0, 8900, 1111):
        assert ring.find(message_id(number), 0, left) == GONE_HANDLE + 1
    searches = 0
    for number in range(20_000, 21_000):
        before = files.reads
        assert ring.find(message_id(number), 0, left) == 0
        searches += files.reads != before
    assert searches < 300


def test_ids_that_were_noted_before_a_reboot_are_not_noted_again() -> None:
    """A board that sleeps deeply boots with each message."""
    files = CutFiles()
    options = {"segment_size": 512, "segments_max": 8, "filter_size": 64}
    store = reboot(files, **options)
    for number in range(120):
        store.settled_handle = SETTLED
        assert put(store, number) > 0 and store.barrier() == OK
        files.reset()
        store = reboot(files, **options)
    rows = []
    handle = store.departed.log.step(0)
    while handle:
        count = store.departed.read(handle)
        rows += [bytes(store.departed.log.scratch[at : at + 8]) for at in range(0, 9 * count, 9)]
        handle = store.departed.log.step(handle)
    gone = [n for n in range(120) if state_of(store, n) == STATE_GONE]
    assert len(gone) > 60 and len(rows) == len(set(rows)) >= len(gone)


def test_what_found_no_room_to_enter_enters_once_there_is_some() -> None:
    network, board, peer = pair()
    there, back = network.lines["b", "a"], network.lines["a", "b"]
    plain, answer = there.send, back.send
    held = b"parent"

    def send(frame: bytearray, size: int) -> None:
        if not held or held not in bytes(frame[:size]):
            plain(frame, size)

    there.send = send
    back.send = lambda _frame, _size: None
    assert peer.publish(b"parent")
    for _ in range(3):
        peer.links["a"].hear(network.now_ms)
        network.round()
    child = peer.publish(b"child" + bytes(400))
    network.run(lambda: board.node.pending_count() == 1, 80)
    board.store.own_max = board.store.data_max
    while board.publish(bytes(300), network.now_ms):
        pass  # nothing of it is settled
    held = b""
    network.run(lambda: len(peer.log()) == 2 and peer.log()[0] in board.log(), 80)
    assert board.node.pending_count() == 1 and child not in board.log(), "it is full"
    back.send = answer
    for _ in range(80):
        network.round()
        board.node.save(network.now_ms)
    assert child in board.log() and board.node.pending_count() == 0


def test_a_cut_between_ids_and_removal_leaves_both() -> None:
    files = CutFiles()
    options = {"segment_size": 512, "segments_max": 6, "filter_size": 64}
    store = reboot(files, **options)
    number = 0
    while not store.erases:
        store.settled_handle = SETTLED
        assert put(store, number) > 0
        number += 1
    # The segment is put back as it was before it went.
    held = [n for n in range(number) if state_of(store, n) == STATE_DELIVERED]
    gone = [n for n in range(number) if state_of(store, n) == STATE_GONE]
    assert held and gone and store.find(message_id(gone[0]), 0) >= GONE_HANDLE
    store.barrier()
    files.power_on()
    store = reboot(files, **options)
    assert [n for n in range(number) if state_of(store, n) == STATE_GONE] == gone


def test_a_refused_record_that_is_there_is_not_there_twice() -> None:
    """The write of its last bytes failed, though they reached the flash."""
    for number in range(1, 4):
        files = CutFiles()
        store = reboot(files, segment_size=1024)
        for other in range(100, 104):
            assert put(store, other) > 0
        plain = files.append
        steps = [0]

        def append(fd, buf, at, size, plain=plain, steps=steps):  # type: ignore[no-untyped-def]
            steps[0] += 1
            code = plain(fd, buf, at, size)
            return -2 if size == 4 and steps[0] > 1 else code

        for _ in range(number):
            files.append = append  # type: ignore[method-assign]
            steps[0] = 0
            assert put(store, 7) < 0
            files.append = plain  # type: ignore[method-assign]
        assert put(store, 7) > 0 and put(store, 8) > 0
        held = log_of(store)
        assert store.barrier() == OK
        files.reset()
        store = reboot(files, segment_size=1024)
        assert log_of(store) == held
        assert store.load(store.find(message_id(7), 0)) == OK


def test_what_a_new_sharer_lacks_is_not_settled() -> None:
    network, board, _ = pair()
    first = board.publish(b"first")
    deleted = board.publish(b"deleted")
    assert first is not None and deleted is not None
    network.run(lambda: network.complete(2), 80)
    for number in range(30):
        assert board.publish(b"%03d" % number + bytes(50), network.now_ms)
        network.run(lambda: not board.node.outstanding(board.numbers["b"]), 40)
    board.node.save(network.now_ms)
    assert board.store.settled_handle > board.store.find(first, 0), "all have it"
    kept = board.store.find(deleted, 0)
    assert board.store.entomb(kept, b"\0", 1, 1 << 1) == OK
    other = board.node.add_peer(b"late")
    board.node.share(board.group, other, SHARED)
    assert board.store.next_kept(0) == kept and board.store.load(kept) == OK
    assert board.store.missing == 1 << 1 | 1 << (other & 15)
    refused = 0
    for number in range(200):
        refused += board.publish(b"+%03d" % number + bytes(50), network.now_ms) is None
        board.node.save(network.now_ms)
    assert refused and first in board.log(), "the new one is to get it"


def test_a_timestamp_that_every_peer_refuses_is_refused() -> None:
    _, board, _ = pair()
    for bad in (b"\x80" + bytes(7), b"\xff" * 8):
        with pytest.raises(AssertionError, match="below 2"):
            board.node.publish(board.group, b"\0", 1, bad, 0)
        with pytest.raises(AssertionError, match="below 2"):
            board.node.publish_begin(board.group, bad)
    assert board.node.publish(board.group, b"\0", 1, b"\x7f" + b"\xff" * 7, 0) > 0


# --- who comes late asks for what has gone, and is told ---


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1])
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("how", ["dropped", "let go"])
def test_a_new_host_gets_what_the_board_still_has(profile: int, mode: int, how: str) -> None:
    """Each reading depends on the one before, and the first of them are not there any more."""
    draw = Draw(5)
    family = FAMILY_MVDS if profile == PROFILE_MVDS_1 else FAMILY_BSP
    board = Member("a", draw, family=family, **(SMALL if how == "dropped" else {}))
    old, new = (Member(name, draw, family=family) for name in "bc")
    network = Network(draw, [board, old], [("a", "b")], mode=mode, profile=profile)
    first = board.publish(b"first")
    assert first is not None
    network.run(lambda: first in old.log(), 40)
    if how == "dropped":
        roll(network, board, old, first)
    else:  # as a black box, or the file of a long body
        board.publish(b"second")
        outbox = board.node.core.outboxes[0]
        outbox.drop(outbox.find(first, 0))
        assert board.store.entomb(board.store.find(first, 0), b"", 0) == OK
    after = Network(draw, [board, new], [("a", "c")], mode=mode, profile=profile)
    after.now_ms = network.now_ms
    last = board.publish(b"last", after.now_ms)
    after.run(lambda: last in new.log(), 200)
    assert new.node.pending_count() == 0 and first not in new.log()
    assert [id for id in board.log() if id != first] == new.log()


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_who_is_told_tells_others(profile: int, mode: int) -> None:
    """A gateway was replaced: whoever is behind it gets what it passes on, if it reboots, too."""
    network, board, old = pair(profile, mode)
    first = board.publish(b"first")
    assert first is not None
    network.run(lambda: first in old.log(), 40)
    roll(network, board, old, first)
    gateway, office = (Member(name, board.draw) for name in "gh")
    after = Network(board.draw, [board, gateway], [("a", "g")], mode=mode, profile=profile)
    after.now_ms = network.now_ms
    after.run(lambda: gateway.log() == board.log(), 200)
    gateway.node.save(after.now_ms)
    gateway.start()  # a reboot
    behind = Network(board.draw, [gateway, office], [("g", "h")], mode=mode, profile=profile)
    behind.now_ms = after.now_ms
    behind.run(lambda: office.log() == gateway.log(), 200)
    assert office.node.pending_count() == 0
    parents = {parent for row in office.dependencies().values() for parent in row}
    lost = parents - set(office.log())
    assert lost and all(office.store.noted(id, 0) for id in lost)
    # Who has one after all gives it to the office, too.
    late = Network(board.draw, [old, office], [("b", "h")], mode=mode, profile=profile)
    late.now_ms = behind.now_ms
    late.run(lambda: set(old.log()) <= set(office.log()), 400)


def test_a_parent_that_somebody_else_has_comes_after() -> None:
    network, board, peer = pair()
    first = board.publish(b"first")
    assert first is not None
    network.run(lambda: first in peer.log(), 40)
    roll(network, board, peer, first)
    new = Member("c", board.draw)
    there = Network(board.draw, [board, new], [("a", "c")])
    there.now_ms = network.now_ms
    there.run(lambda: bool(new.log()), 200)
    assert first not in new.log()
    both = Network(board.draw, [peer, new], [("b", "c")])
    both.now_ms = there.now_ms
    both.run(lambda: set(peer.log()) == set(new.log()), 400)
    assert len(new.log()) == len(set(new.log())), "each once"


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1])
def test_what_went_after_it_was_offered_is_asked_for_no_more(profile: int) -> None:
    """It was offered, then hidden, dropped by a full log unseen, and shown again."""
    draw = Draw(5)
    family = FAMILY_MVDS if profile == PROFILE_MVDS_1 else FAMILY_BSP
    board = Member("a", draw, family=family, **SMALL)
    peer = Member("b", draw, family=family)
    network = Network(draw, [board, peer], [("a", "b")], mode=INTERACTIVE, profile=profile)
    first = board.publish(b"first")
    assert first is not None
    there = network.lines["b", "a"]
    plain = there.send
    there.send = lambda _frame, _size: None
    inbox = peer.node.core.inboxes[0]
    network.run(lambda: any(kinds_of(inbox)), 40)
    board.node.share(board.group, board.numbers["b"], INVISIBLE)
    for number in range(200):
        board.publish(b"%03d" % number + bytes(50), network.now_ms)
        board.consume()
        board.node.save(network.now_ms)
    assert first not in board.log()
    there.send = plain
    board.node.share(board.group, board.numbers["b"], SHARED)
    network.run(lambda: board.log() == peer.log(), 400)
    network.run(lambda: not any(kinds_of(inbox)), 40)


def test_what_is_not_wanted_may_be_acknowledged_by_whoever_likes() -> None:
    network, board, peer = pair()
    id = message_id(7)
    exchange = peer.links["a"].exchange
    exchange.on_ack(bytearray(id), 0)
    exchange.on_request(bytearray(id), 0)
    inbox = peer.node.core.inboxes[0]
    assert not inbox.owes() and not any(kinds_of(inbox)), "nothing is said of what nobody knows"
    child = b"\1" + id + b"child"
    assert board.node.publish(board.group, child, len(child), stamp(0), 0) < 0
    del network


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_an_offer_by_prefix_of_what_has_gone_is_acknowledged_whole(mode: int) -> None:
    """A board that is shown everything again holds what it dropped, and knows 8 bytes of it."""
    network, board, peer = pair(PROFILE_COMPACT_1, mode)
    first = peer.publish(b"first")
    assert first is not None
    network.run(lambda: first in board.log(), 80)
    roll(network, board, peer, first)
    peer.node.share(peer.group, peer.numbers["a"], INVISIBLE)
    outbox = peer.node.core.outboxes[0]
    while outbox.count:
        outbox.drop(0)
    peer.node.core.restart(0, False)  # who holds what is forgotten, as after a loss
    peer.node.share(peer.group, peer.numbers["a"], SHARED)
    peer.node.core.refill(0)
    assert peer.node.outstanding(peer.numbers["a"]) == 1
    codec = peer.links["a"].codec
    network.run(lambda: not peer.node.outstanding(peer.numbers["a"]), 400)
    assert not codec.ignored and first not in board.log()
