"""Two ends of a link that reconcile through SKETCH records: what is acknowledged, and what not."""

import random
from typing import Any

from drupelet.base.limits import SKETCH_ELEMENTS_MAX
from drupelet.wire.sketch.reconcile import Reconciler
from drupelet.wire.sketch.sketch import LIST, SYMBOLS

SALT = b"salt"


class End:
    """One end: its messages, what it has heard as acknowledged, and the link's part of it."""

    def __init__(self, ids: list[bytes]) -> None:
        self.ids = ids
        self.acked: list[bytes] = []
        self.asked: list[bytes] = []
        self.reconciler = Reconciler(lambda _: list(self.ids))
        self.link: Any = self

    def on_ack(self, buf: bytearray, at: int) -> None:
        self.acked.append(bytes(buf[at : at + 32]))

    def on_request(self, buf: bytearray, at: int) -> None:
        self.asked.append(bytes(buf[at : at + 32]))

    def frame(self, size: int = 300) -> bytes:
        buf = bytearray(size + 7)
        end = self.reconciler.put_into(buf, 7, size + 7)
        return bytes(buf[7:end])

    def take(self, record: bytes) -> bool:
        return self.reconciler.take(self.link, bytearray(b"xyz" + record), 3, len(record))


def pair(common: int, lost: int, extra: int, seed: int) -> tuple[End, End, list[bytes]]:
    rng = random.Random(seed)
    ids = [rng.randbytes(32) for _ in range(common + lost + extra)]
    return End(ids[:common] + ids[common + lost :]), End(ids[: common + lost]), ids


def run(loser: End, holder: End, rng: random.Random, loss: float) -> None:
    loser.reconciler.begin(loser.link, SALT)
    for _ in range(200):
        while record := loser.frame():
            if rng.random() >= loss:
                assert holder.take(record)
        while record := holder.frame():
            if rng.random() >= loss:
                assert loser.take(record)
        if not loser.reconciler.is_open():
            return
        loser.reconciler.again()
    raise AssertionError("no end")


def test_both_ends_acknowledge_what_both_hold_and_nothing_else() -> None:
    for seed, loss in enumerate((0.0, 0.0, 0.3, 0.3, 0.3)):
        loser, holder, ids = pair(300, 12, 4, seed)
        run(loser, holder, random.Random(seed), loss)
        assert not loser.reconciler.must_list
        assert sorted(loser.acked) == sorted(holder.acked) == sorted(ids[:300])
        # What the other lacks counts as asked for: nobody offers it first.
        assert sorted(holder.asked) == sorted(ids[300:312])
        assert sorted(loser.asked) == sorted(ids[312:])


def test_what_came_in_meanwhile_is_not_acknowledged() -> None:
    loser, holder, ids = pair(200, 3, 0, 9)
    new = bytes(32)
    loser.reconciler.begin(loser.link, SALT)
    loser.ids.append(new)
    assert holder.take(loser.frame())
    holder.ids.append(new)
    assert loser.take(holder.frame())
    assert sorted(loser.acked) == sorted(holder.acked) == sorted(ids[:200])


def test_a_twin_prefix_ends_in_a_list_without_an_acknowledgement_of_ours() -> None:
    loser, holder, _ = pair(200, 3, 0, 10)
    holder.ids[5] = holder.ids[5][:8] + bytes(24)
    run(loser, holder, random.Random(1), 0.0)
    assert loser.reconciler.must_list and loser.reconciler.must_full and not loser.acked


def test_few_and_too_many_ids_are_listed() -> None:
    few, many = End([bytes(32)]), End([])
    few.reconciler.begin(few.link, SALT)
    assert few.reconciler.must_list and not few.reconciler.must_full and few.frame() == b""
    many.ids = [at.to_bytes(8, "big") * 4 for at in range(SKETCH_ELEMENTS_MAX + 1)]
    many.reconciler.begin(many.link, SALT)
    assert many.reconciler.must_list and many.frame() == b""
    asking, _, _ = pair(200, 0, 0, 11)
    asking.reconciler.begin(asking.link, SALT)
    assert many.take(asking.frame())
    assert many.frame() == bytes((LIST,)) + SALT
    assert asking.take(bytes((LIST,)) + SALT) and asking.reconciler.must_list


def test_a_new_sketch_of_the_peer_replaces_the_old_one() -> None:
    loser, holder, ids = pair(200, 3, 0, 12)
    loser.reconciler.begin(loser.link, SALT)
    first = loser.frame()
    assert holder.take(first)
    loser.reconciler.begin(loser.link, b"next")
    assert loser.take(holder.frame())  # the answer to the first one: skipped
    assert loser.reconciler.is_open() and not loser.acked
    assert holder.take(loser.frame())
    assert loser.take(holder.frame())
    assert sorted(loser.acked) == sorted(ids[:200])


def test_malformed_records_are_told_and_change_nothing() -> None:
    loser, holder, ids = pair(200, 3, 0, 13)
    loser.reconciler.begin(loser.link, SALT)
    good = loser.frame()
    for record in (b"", b"\x00", bytes((SYMBOLS,)) + SALT, good[:-1], b"\x09salt\x00"):
        assert not holder.take(record)
        assert not loser.take(record) or record == good[:-1]
    assert holder.frame() == b""
    assert holder.frame(19) == b""
    assert holder.take(good)
    assert holder.frame(19) == b""  # no room for any answer
    assert loser.take(holder.frame())
    assert sorted(loser.acked) == sorted(ids[:200])
