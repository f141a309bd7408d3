"""The simulator's own reader of `compact-1`: docs/SPEC.md 3.5, and what breaks its rules."""

import pytest

from drupelet_tools.sim.compact import (
    BrokenRuleError,
    Extended,
    Group,
    Hello,
    IdSet,
    Ledger,
    Message,
    NumberSet,
    Offer,
    records,
)  # fmt: skip
from drupelet_tools.sim.readers import bsp_message_id

GROUP = bytes(range(32))
STAMP = (1_700_000_000_000).to_bytes(8, "big")
ID = bsp_message_id(GROUP, STAMP, b"body")
FOLD = ID[8:12]
BASED = bytes.fromhex("44 a0001005")
ANNOUNCED = BASED + b"\xc0" + GROUP
SENT = ANNOUNCED + bytes.fromhex("2004 80a0abfef962") + b"body"
ALONE = bytes.fromhex("44 31 001006 80a0abfef962") + b"body"
ACK = bytes.fromhex("44 04 001005")


def read(text: str) -> list[object]:
    return list(records(bytes.fromhex(text)))


def test_the_examples_of_the_specification() -> None:
    assert list(records(SENT)) == [Group(16, 0, GROUP), Message(16, 5, 0, STAMP, b"body")]
    assert list(records(ACK + FOLD)) == [NumberSet(0, 16, (5,), FOLD)]
    assert list(records(ALONE)) == [Message(16, 6, 0, STAMP, b"body")]


def test_every_record() -> None:
    assert read("44 01 0010 05 02 8102 01020304") == [
        NumberSet(0, 16, (5, 12, 14), bytes((1, 2, 3, 4)))
    ]
    assert read("44 60 0010 05 8002 01020304") == [
        NumberSet(3, 16, tuple(range(5, 261)), bytes((1, 2, 3, 4)))
    ]
    assert read("44 06" + "07" * 32) == [IdSet(0, (bytes((7,)) * 32,))]
    assert read("44 6b" + "07" * 8 + "08" * 8) == [IdSet(3, (bytes((7,)) * 8, bytes((8,)) * 8))]
    assert read("44 a0 0010 05 a3 42" + "07" * 8) == [Offer(16, 8, (bytes((7,)) * 8,))]
    assert read("44 84 0010 0001 87 0010 0020 0001" + "ff" * 8) == [
        Hello(16, -1, 1, b""), Hello(16, 32, 1, bytes((255,)) * 8)
    ]  # fmt: skip
    assert read("44 e0 00 03 001002 e0 02 00 e0 09 01 aa") == [
        Extended(0, bytes((0, 16, 2))), Extended(2, b""), Extended(9, b"\xaa")
    ]  # fmt: skip
    two = list(
        records(ANNOUNCED + bytes.fromhex("2004 04") + b"body" + bytes.fromhex("2103ABCDEF01"))
    )
    assert [(m.number, m.timestamp[-1], m.body) for m in two[1:] if isinstance(m, Message)] == [
        (5, 2, b"body"), (6, 0, bytes.fromhex("abcdef01"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "44 20 00 00", "44 42" + "07" * 8, "44 c0" + "07" * 32, "44 a1",
        "44 a0 0010 00", "44 a0 0010 808002", "44 a0 0010", "44 a0 0010 ffffffff7f",
        "44 a0 0010 05 a0 0011 05", "44 a0 0010 05 84 0011 0000", "44 a0 0010 05 d0" + "07" * 32,
        "44 a0 0010 05 40", "44 a0 0010 05 42 07", "44 a0 0010 ffff01 44" + "07" * 16,
        "44 a0 0010 05 20 01 01 00", "44 a0 0010 05 20 818002 00", "44 a0 0010 05 2e 10 00 00",
        "44 02", "44 07" + "07" * 8, "44 04 0010 00 00000000", "44 00 0010 05 00 00000000",
        "44 00 0010 05 8102 00000000", "44 05 0010 05 01 01 00000000",
        "44 01 0010 05 00 00000000", "44 01 0010 05 21 00000000", "44 04 0010 05 000000",
        "44 80 0000", "44 82 0000" + "00" * 8, "44 8c 0010 0000", "44 e1 00 00",
        "44 e0 00 02 0000", "44 e0 02 01 00", "44 e0 01 05 00", "40 00",
    ],
)  # fmt: skip
def test_what_is_malformed(text: str) -> None:
    with pytest.raises(BrokenRuleError):
        read(text)


def test_what_was_read_before_stands() -> None:
    frame = records(ACK + FOLD + b"\xff")
    assert next(frame) == NumberSet(0, 16, (5,), FOLD)
    with pytest.raises(BrokenRuleError):
        next(frame)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger({ID[:8]: ID}.get)


def test_an_acknowledgement_of_numbers_is_one_of_messages(ledger: Ledger) -> None:
    assert ledger.leaves("a", "b", SENT).messages == [ID]
    assert ledger.arrives("b", "a", SENT).messages == [ID]
    assert ledger.leaves("b", "a", ACK + FOLD).acks == [ID]
    assert ledger.arrives("a", "b", ACK + FOLD).acks == [ID]
    assert ledger.arrives("a", "b", ACK + bytes(4)).acks == []


def test_an_offered_prefix_is_a_message(ledger: Ledger) -> None:
    assert ledger.leaves("a", "b", BASED + b"\x42" + ID[:8]).offers == [ID]
    asked = bytes.fromhex("44 64 001005") + ID[4:8]
    assert ledger.leaves("b", "a", asked).requests == [ID]
    assert ledger.leaves("b", "a", b"\x44\x67" + ID[:8]).requests == [ID]


def test_of_older_numbers_nothing_is_learned(ledger: Ledger) -> None:
    ledger.leaves("a", "b", SENT)
    ledger.leaves("a", "b", bytes.fromhex("44 84 0020 0000"))
    assert ledger.leaves("b", "a", ACK + FOLD).acks == [ID]
    assert ledger.arrives("a", "b", ACK + FOLD).acks == []


def test_an_index_that_is_known_need_not_be_announced_again(ledger: Ledger) -> None:
    ledger.leaves("a", "b", SENT)
    ledger.leaves("b", "a", ACK + FOLD)
    assert ledger.leaves("a", "b", ALONE).messages == [ID]


@pytest.mark.parametrize(
    ("who", "frame"),
    [
        ("a", BASED + b"\x42" + bytes(8)),  # number 5 for another message
        ("a", BASED + b"\xc0" + bytes(32)),  # index 0 for another group
        ("a", ALONE),  # not announced in it, nor acknowledged before
        ("b", ACK + bytes(4)),  # of another fold
        ("b", bytes.fromhex("44 08 001005") + FOLD),  # 6 was never given
        ("b", bytes.fromhex("44 04 001105") + FOLD),  # no such generation
        ("b", bytes.fromhex("44 81 0010 0000")),  # an answer to nothing
        ("b", b"\x44\xff"),
    ],
)
def test_what_must_not_leave(ledger: Ledger, who: str, frame: bytes) -> None:
    ledger.leaves("a", "b", SENT)
    with pytest.raises(BrokenRuleError):
        ledger.leaves(who, "ab".replace(who, ""), frame)


def test_a_generation_comes_back_with_another_store_only(ledger: Ledger) -> None:
    ledger.leaves("a", "b", SENT)
    ledger.leaves("a", "b", bytes.fromhex("44 84 0020 0000"))
    with pytest.raises(BrokenRuleError):
        ledger.leaves("a", "b", SENT)
    ledger.reset("a")
    assert ledger.leaves("a", "b", BASED + b"\x42" + ID[:8]).offers == [ID]
    assert ledger.leaves("b", "a", ACK + FOLD).acks == [ID]


def test_of_a_generation_that_came_back_a_set_is_good_for_all_that_number_the_same(
    ledger: Ledger,
) -> None:
    ledger.leaves("a", "b", SENT)
    ledger.reset("a")
    ledger.leaves("a", "b", SENT)
    ledger.leaves("b", "a", ACK + FOLD)
    assert ledger.leaves("a", "b", ALONE).messages, "the index is known in the present one, too"


def test_a_set_told_of_a_generation_before_it_came_back_is_good_if_it_is_on_its_way(
    ledger: Ledger,
) -> None:
    ledger.leaves("a", "b", SENT)
    ledger.leaves("b", "a", ACK + FOLD)
    ledger.reset("a")
    ledger.leaves("a", "b", SENT)
    with pytest.raises(BrokenRuleError):
        ledger.leaves("a", "b", ALONE)
    assert ledger.arrives("a", "b", ACK + FOLD).acks == [ID]
    assert ledger.leaves("a", "b", ALONE).messages
