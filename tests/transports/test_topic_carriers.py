"""Carriers that many hear: UDP multicast on the loopback interface, sealed with sender keys; and
sender keys that change hands over sealed links."""

import errno
import random
import select
import socket
from collections.abc import Iterator

import pytest

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import SENDER_KEY_MS, SENDER_KEY_MS_MAX, WAIT_MS_MAX
from drupelet.channel.key_distribution import KIND_SENDER_KEY, RECORD_FRAME_SIZE, KeyDistribution
from drupelet.channel.sender_keys import SenderKeys
from drupelet.seal.record import RECORD_SIZE
from drupelet_host.base.aead import Aead
from drupelet_transports.common.in_process import pair as loop_pair
from drupelet_transports.common.multicast import BoardMulticast, Multicast
from drupelet_transports.common.transport import E_CLOSED, TransportError
from drupelet_transports.common.url import parse_url
from drupelet_transports.seal.key_carrier import KeyCarrier
from drupelet_transports.seal.sealed_topic import SealedTopic
from seal_ends import A_ID, B_ID, Clock
from seal_ends import pair as seal_pair

TOPIC = b"\x01\x02\x03\x04"
GROUP = "239.77.1.9"


class Keys:
    """A key port in RAM."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}

    def load(self, row: int, out: bytearray) -> int:
        if row not in self.records:
            return E_STORAGE
        out[:] = self.records[row]
        return OK

    def save(self, row: int, record: bytearray) -> int:
        self.records[row] = bytes(record)
        return OK

    def drop(self, row: int) -> int:
        self.records.pop(row, None)
        return OK


def sender_keys(id: bytes, seed: int = 0, keys: Keys | None = None) -> SenderKeys:
    draw = random.Random(seed or id[0])
    sender_keys = SenderKeys(Aead(), keys or Keys(), id, lambda: draw.randrange(256), 4)
    if sender_keys.load() != OK:
        assert sender_keys.create() == OK
    return sender_keys


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def trio(port: int) -> Iterator[list[Multicast]]:
    carriers = [Multicast(GROUP, port, "127.0.0.1") for _ in range(3)]
    yield carriers
    for one in carriers:
        one.close()


def arrived(one: Multicast) -> None:
    assert select.select([one.poll_object], [], [], 5.0)[0], "nothing came"


def take(carrier: Multicast | SealedTopic) -> bytes | int:
    frame = bytearray(carrier.frame_size_max)
    size = carrier.receive_into(frame)
    return bytes(frame[:size]) if size > 0 else size


def test_one_datagram_reaches_all_who_listen(trio: list[Multicast]) -> None:
    for text in (b"x", bytes(1024)):
        assert trio[0].send(bytearray(text), len(text)) == OK
        for one in trio:  # the sender, too
            arrived(one)
            assert take(one) == text and one.last_wire_size == len(text) + 28
            assert take(one) == 0
    assert trio[1].duplex and trio[1].frame_size_max == 1024 and not trio[1].pending_size
    trio[1].close()
    trio[1].close()
    assert take(trio[1]) == E_CLOSED and trio[1].send(bytearray(1), 1) == E_CLOSED


def test_datagrams_of_strangers(trio: list[Multicast], port: int) -> None:
    """Empty ones are passed over, long ones cut, whatever their number."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        own = socket.inet_aton("127.0.0.1")
        stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        for text in (b"", b"", bytes(9000), b"ok"):
            stranger.sendto(text, (GROUP, port))
    arrived(trio[0])
    assert take(trio[0]) == bytes(1024)
    assert take(trio[0]) == b"ok" and take(trio[0]) == 0


@pytest.mark.parametrize(
    ("host", "interface", "why"),
    [
        ("10.0.0.1", "", "not a multicast address"),
        ("localhost", "", "not a multicast address"),
        ("239.0.0.1.2", "", "not a multicast address"),
        ("239.0.0.1", "lo", "interface must be an IPv4 address"),
        ("239.0.0.1", "203.0.113.9", "cannot be opened"),
    ],
)
def test_what_names_no_group(host: str, interface: str, why: str) -> None:
    with pytest.raises(TransportError, match=why) as caught:
        Multicast(host, 7447, interface)
    assert "\n" not in str(caught.value)


def test_a_board_opens_it_when_its_network_is_up(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []

    class Absent(socket.socket):
        """A network that has not got the address yet."""

        def setsockopt(self, *option: object) -> None:  # noqa: ARG002
            raise OSError(errno.ENODEV, "No such device")

    class Noted(socket.socket):
        def __init__(self, *kind: int) -> None:
            super().__init__(*kind)
            opened.append(self)

    monkeypatch.setattr(socket, "socket", Absent)
    board = BoardMulticast(GROUP, port, "127.0.0.1")
    try:
        for now_ms in (100, 5000):
            board.maintain(now_ms)
            assert not board.up and board.poll_object is None
            assert board.send(bytearray(1), 1) == E_CLOSED == take(board)
        assert board.wait_ms(5000) == 100  # it was tried at 100
        monkeypatch.setattr(socket, "socket", Noted)
        board.maintain(5099)
        assert not board.up
        for now_ms in (5100, 5101):
            board.maintain(now_ms)
            assert board.up and board.wait_ms(now_ms) == WAIT_MS_MAX
            assert board.send(bytearray(b"x"), 1) == OK
            arrived(board)
            assert take(board) == b"x"
        for one in opened:
            one.close()  # as a send sees a network that went away
        assert board.send(bytearray(1), 1) == E_CLOSED and not board.up
        board.maintain(5102 + 5000)
        assert board.up and board.send(bytearray(b"y"), 1) == OK
    finally:
        board.close()
    with pytest.raises(TransportError, match="not a multicast address"):
        BoardMulticast("10.0.0.1", port)


@pytest.mark.parametrize("left", [0, 1])
def test_a_board_without_sockets_goes_on(
    port: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opened = socket.socket, []

    def few(*args: int) -> socket.socket:
        if len(opened) == left:
            raise OSError(24, "Too many open files")
        opened.append(real(*args))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", few)
        board = BoardMulticast(GROUP, port, "127.0.0.1")
        assert not board.up and board.poll_object is None
        assert [one.fileno() for one in opened] == [-1] * left
    board.maintain(99_000)
    assert board.up
    board.close()


def test_the_url_of_a_group() -> None:
    url = parse_url("udp://239.0.0.1:7447?interface=192.168.1.5")
    assert (url.host, url.port, url.options) == ("239.0.0.1", 7447, {"interface": "192.168.1.5"})
    for text in ("udp://239.0.0.1", "udp://239.0.0.1:7447?baud=9", "udp://:7447"):
        with pytest.raises(TransportError):
            parse_url(text)


def test_nothing_leaves_plain_and_strangers_are_not_heard(trio: list[Multicast]) -> None:
    ids = [b"aaaa", b"bbbb", b"cccc"]
    keys = [sender_keys(id) for id in ids]
    topics = [
        SealedTopic(carrier, key, lambda: 0, bytearray(1024))
        for carrier, key in zip(trio[:2], keys, strict=False)
    ]
    record = bytearray(52)
    keys[0].record_into(record, 0)
    assert keys[1].admit(record, 0) == OK
    text = bytes(range(200))
    assert topics[0].send(bytearray(text), len(text)) == OK
    for one in trio:
        arrived(one)
    seen = take(trio[2])
    assert isinstance(seen, bytes) and text[:16] not in seen and len(seen) == len(text) + 25
    assert take(topics[1]) == text
    assert take(topics[0]) == 0 and keys[0].unknown == 0  # its own came back
    # The third has no key of the first one's: it neither reads nor is it heard.
    third = SealedTopic(trio[2], keys[2], lambda: 0, bytearray(1024))
    third.send(bytearray(b"let me in"), 9)
    trio[2].send(bytearray(seen), len(seen))  # again
    arrived(trio[1])
    for _ in range(3):
        assert take(topics[1]) == 0
    assert keys[1].unknown == 1 and keys[1].replayed == 1


def chain_of(keys: SenderKeys) -> bytes:
    """How the chain of somebody's own record begins."""
    record = bytearray(RECORD_SIZE)
    assert keys.record_into(record, 0)
    return bytes(record[4:8])


class Pair:
    """Two members with a sealed link, and sender keys for one topic."""

    def __init__(self) -> None:
        self.clock = Clock()
        ends = seal_pair(Aead())
        ids = (A_ID, B_ID)
        self.ports = [Keys(), Keys()]
        self.distributions = [
            KeyDistribution(sender_keys(mine, keys=port), mine, TOPIC, other)
            for mine, other, port in zip(ids, ids[::-1], self.ports, strict=True)
        ]
        buf = bytearray(1024)
        self.ends = []
        for carrier, end, distribution in zip(
            loop_pair(1024, 8), ends, self.distributions, strict=True
        ):
            key_carrier = KeyCarrier(carrier, end.seal, self.clock, buf)
            key_carrier.distributions.append((distribution, 0))
            self.ends.append(key_carrier)

    def turn(self) -> int:
        """Both look what came; how many frames were for the links."""
        frame = bytearray(1024)
        return sum(end.receive_into(frame) > 0 for end in self.ends)

    def settle(self) -> None:
        for _ in range(6):
            assert self.turn() == 0
            self.clock.ms += 100

    def reads(self, here: int) -> bool:
        out = bytearray(200)
        size = self.distributions[1 - here].keys.seal_into(out, b"hello", 5)
        return self.distributions[here].keys.open(out, size, self.clock.ms) == 5


def test_keys_change_hands_and_the_link_sees_nothing_of_it() -> None:
    both = Pair()
    both.settle()
    assert all(distribution.is_confirmed(0) for distribution in both.distributions)
    assert both.reads(0) and both.reads(1)
    # What is confirmed is not told again.
    both.ends[0].send = None  # type: ignore[assignment, method-assign]
    both.clock.ms += SENDER_KEY_MS_MAX
    assert both.turn() == 0
    frame = bytearray(b"for the link")
    assert both.ends[1].send(frame, len(frame)) == OK and both.turn() == 1


def test_a_key_is_told_again_until_it_is_confirmed() -> None:
    both = Pair()
    one = both.distributions[0]
    frame = bytearray(1024)
    sent = [now_ms for now_ms in range(0, 10**6, 1000) if one.is_due(0, now_ms)]
    assert sent[:3] == [0, SENDER_KEY_MS, 3 * SENDER_KEY_MS] and 8 < len(sent) < 14
    one.on_heard(0)
    assert one.is_due(0, 10**6 + SENDER_KEY_MS)
    # Nonsense, another topic's, and another device's record change nothing.
    other = both.distributions[1]
    assert one.record_into(frame, 0) == RECORD_FRAME_SIZE and frame[0] == KIND_SENDER_KEY
    for at in (1, 20):
        bad = bytearray(frame[:RECORD_FRAME_SIZE])
        bad[at] ^= 1
        assert other.receive(bad, len(bad), 0) == 0
    for size in (1, 13, 57):
        assert other.receive(bytearray(frame[:size]), size, 0) == 0
    assert not both.reads(1)


def test_who_is_shut_out_reads_nothing_that_comes() -> None:
    both = Pair()
    both.settle()
    assert both.distributions[0].revoke(0) == OK and both.distributions[0].is_excluded(0)
    both.settle()
    assert not both.reads(1), "a new chain, and it was not handed over"
    assert not both.reads(0), "nor is it heard any more"


def test_keys_that_were_put_back_are_not_used_again() -> None:
    """A restored key file would seal with nonces that were used: the peer's answer shows it."""
    both = Pair()
    both.settle()
    port = both.ports[0]
    old = dict(port.records)
    chain = old[0][4:8]
    for seed in range(3):  # each restart opens an epoch
        both.distributions[0] = KeyDistribution(sender_keys(A_ID, seed, port), A_ID, TOPIC, B_ID)
        assert both.reads(1)
    port.records = old
    again = sender_keys(A_ID, 99, port)
    both.distributions[0] = renewed = KeyDistribution(again, A_ID, TOPIC, B_ID)
    both.ends[0].distributions[0] = (renewed, 0)
    both.settle()
    both.clock.ms += SENDER_KEY_MS
    both.settle()
    assert port.records[0][4:8] != chain and renewed.is_confirmed(0) and both.reads(1)


def test_a_peer_that_lost_our_key_gets_it_again_when_it_asks() -> None:
    both = Pair()
    both.settle()
    here, there = both.distributions
    before = chain_of(here.keys)
    assert there.keys.remove(A_ID, 0) == OK and not both.reads(1)
    # It starts anew and hands its own key over: whoever does that is told ours again.
    fresh = KeyDistribution(there.keys, B_ID, TOPIC, A_ID)
    both.ends[1].distributions[0] = (fresh, 0)
    both.settle()
    both.clock.ms += SENDER_KEY_MS
    both.settle()
    assert both.reads(1) and chain_of(here.keys) == before
