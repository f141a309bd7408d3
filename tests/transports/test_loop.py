"""The loop carrier, and what wraps any carrier: faults."""

from random import Random

from drupelet.base.errors import E_CAPACITY, OK
from drupelet_transports.common.faulty import FaultyTransport
from drupelet_transports.common.in_process import pair
from drupelet_transports.common.transport import E_CLOSED, Transport


def send(transport: Transport, data: bytes) -> int:
    return transport.send(bytearray(data), len(data))


def receive_all(transport: Transport) -> list[bytes]:
    frame = bytearray(transport.frame_size_max)
    found = []
    for _ in range(1000):
        size = transport.receive_into(frame)
        if size <= 0:
            return found
        found.append(bytes(frame[:size]))
    raise AssertionError("frames without end")


def test_a_loop_carries_whole_frames_both_ways_and_refuses_when_full() -> None:
    here, there = pair(frame_size_max=64, frames_max=3)
    assert [send(here, bytes([i + 1] * 5)) for i in range(4)] == [OK, OK, OK, E_CAPACITY]
    assert send(there, b"back") == OK
    assert receive_all(there) == [b"\x01" * 5, b"\x02" * 5, b"\x03" * 5]
    assert receive_all(here) == [b"back"]
    assert here.last_wire_size == 4


def test_a_closed_loop_gives_what_is_in_it_and_then_says_so() -> None:
    here, there = pair()
    send(here, b"last")
    here.close()
    frame = bytearray(1024)
    assert there.receive_into(frame) == 4
    assert there.receive_into(frame) == E_CLOSED
    assert send(there, b"x") == E_CLOSED
    assert send(here, b"x") == E_CLOSED


def faulty(
    seed: int, count: int = 400, **rates: int
) -> tuple[FaultyTransport, list[bytes], list[bytes]]:
    here, there = pair(frame_size_max=64, frames_max=64)
    wrapped = FaultyTransport(here, Random(seed).randrange, **rates)
    sent, found = [], []
    for i in range(count):
        sent.append(i.to_bytes(2, "big") + b"body")
        assert send(wrapped, sent[-1]) == OK
        found += receive_all(there)
    for _ in range(64):  # what is held back comes out with later calls
        wrapped.receive_into(bytearray(64))
        found += receive_all(there)
    return wrapped, sent, found


def test_without_rates_nothing_is_spoilt() -> None:
    _, sent, found = faulty(1)
    assert found == sent


def test_every_fault_does_what_it_says_and_is_counted() -> None:
    wrapped, sent, found = faulty(2, loss=300)
    assert len(found) == len(sent) - wrapped.lost and 80 < wrapped.lost < 160
    wrapped, sent, found = faulty(3, repeat=300)
    assert len(found) == len(sent) + wrapped.repeated and 80 < wrapped.repeated < 160
    assert set(found) == set(sent)
    wrapped, sent, found = faulty(4, reorder=300)
    assert found != sent and sorted(found) == sent and wrapped.reordered > 80
    wrapped, sent, found = faulty(5, delay=300)
    assert found != sent and sorted(found) == sent and wrapped.delayed > 80
    wrapped, sent, found = faulty(6, flip=300)
    spoilt = [a for a, b in zip(sent, found, strict=True) if a != b]
    assert len(spoilt) == wrapped.flipped > 80
    for a, b in zip(sent, found, strict=True):
        assert sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True)) <= 1


def test_one_seed_replays_a_run() -> None:
    rates = {"loss": 200, "repeat": 100, "reorder": 100, "flip": 50, "delay": 100}
    first, again, other = (faulty(seed, **rates)[2] for seed in (7, 7, 8))
    assert first == again != other


def test_a_flip_leaves_the_callers_frame_alone() -> None:
    here, there = pair()
    wrapped = FaultyTransport(here, Random(9).randrange, flip=1000)
    frame = bytearray(b"mine")
    assert wrapped.send(frame, 4) == OK
    assert frame == b"mine"
    assert receive_all(there) != [b"mine"]
