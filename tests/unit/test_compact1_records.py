"""The records of `compact-1` alone: round trips, sets, timestamps, and whatever bytes arrive."""

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import COMPACT_COVER_SIZE
from drupelet.wire.compact.codec import (
    ACK,
    ACK_FOLD_AT,
    REQUEST,
    REQUEST_FOLD_AT,
    Compact1,
)
from drupelet.wire.compact.hello import GREETING
from drupelet.wire.compact.numbering import NUMBER_MAX, origin_of
from drupelet.wire.stamps import DELTA_SIZE_MAX, get_stamp, put_stamp
from harness_compact import Feed, Nobody, feed

FUZZ_FRAMES = 100_000
TRACED_FRAMES = 5_000
BASE = "a0001005"
HELLO = "8400100203"
GROUP = "c0" + "11" * 32
MESSAGE = "200480a0abfef962626f6479"
STAMP = "80a0abfef962"
TIMES = st.one_of(st.integers(0, (1 << 63) - 1), st.integers(0, 5000))
NUMBERS = st.lists(st.integers(1, 400), min_size=1, max_size=60, unique=True)


def records(stream: str, pieces: list[int] | None = None) -> list[dict[str, Any]]:
    """What a stream holds; it is whole and well-formed."""
    found = feed({"stream": stream, "pieces": pieces})
    assert found["error"] is None and not found["truncated"], found
    made: list[dict[str, Any]] = found["records"]
    return made


# --- timestamps ---


@given(st.lists(TIMES, min_size=1, max_size=10))
def test_timestamps_come_back(times: list[int]) -> None:
    out, back = bytearray(16), bytearray(16)
    before = 0
    for time in times:
        buf = bytearray(DELTA_SIZE_MAX)
        stamp = time.to_bytes(8, "big")
        end = put_stamp(buf, 0, out, 8, stamp)
        out[8:] = stamp
        zigzag = 2 * (time - before) if time >= before else 2 * (before - time) - 1
        assert end == max(1, (zigzag.bit_length() + 6) // 7)
        assert get_stamp(buf, 0, end, back, 8) == end and bytes(back[8:]) == stamp
        assert get_stamp(buf, 0, end - 1, bytearray(16), 8) == E_PEER, "cut off"
        before = time


@pytest.mark.parametrize(
    "delta",
    [
        "01",  # -1
        "ff" * 9 + "01",  # -2^63
        "fe" + "ff" * 8 + "01",  # 2^63 - 1, behind a timestamp of 1
        "80" * 10 + "00",  # eleven bytes
        "ff" * 9 + "02",  # 65 bits
    ],
)
def test_a_timestamp_out_of_range_is_malformed(delta: str) -> None:
    last = bytearray(16)
    if delta.startswith("fe"):
        last[15] = 1
    assert get_stamp(bytes.fromhex(delta), 0, len(delta) // 2, last, 8) == E_PEER


# --- sets of numbers ---


def fold(ids: list[bytes], at: int) -> str:
    made = 0
    for id in ids:
        made ^= int.from_bytes(id[at : at + 4], "big")
    return made.to_bytes(4, "big").hex()


class Giver(Nobody):
    """A link that has ids to acknowledge and to ask for."""

    def __init__(self, acks: list[tuple[int, bytes]], requests: list[tuple[int, bytes]]) -> None:
        Nobody.__init__(self)
        self.due = {ACK: list(acks), REQUEST: list(requests)}

    def take(self, kind: int, buf: bytearray, at: int) -> int:
        if not self.due[kind]:
            return 0
        number, id = self.due[kind].pop(0)
        buf[at : at + 32] = id
        return 1 + number

    def take_ack(self, buf: bytearray, at: int) -> int:
        return self.take(ACK, buf, at)

    def next_message(self) -> bool:
        return False

    def take_offer(self, buf: bytearray, at: int) -> bool:  # noqa: ARG002
        return False

    def take_request(self, buf: bytearray, at: int, prefixes: bool = False) -> int:  # noqa: ARG002
        return self.take(REQUEST, buf, at)


def sets(link: Giver, limit: int) -> list[dict[str, Any]]:
    """Every set in as many frames as it takes; each frame keeps to its limit."""
    engine = Compact1(link)  # type: ignore[arg-type]
    engine.begin(link)  # type: ignore[arg-type]
    engine.hear(7)
    engine.mark(GREETING, False)
    made = []
    for _ in range(400):
        frame = bytearray(limit)
        end = engine.fill_records(link, frame, 1, limit)  # type: ignore[arg-type]
        if end == 1:
            return made
        made += records(frame[1:end].hex())
    raise AssertionError("no end")


@given(NUMBERS, NUMBERS, st.sampled_from([64, 100, 256, 1024]), st.booleans(), st.randoms())
def test_sets_name_each_number_once_with_the_fold_of_their_ids(
    acks: list[int], requests: list[int], limit: int, sort: bool, order: random.Random
) -> None:
    if sort:
        acks.sort()
        requests.sort(reverse=True)
    id_of = {number: order.randbytes(32) for number in acks + requests}
    link = Giver([(n, id_of[n]) for n in acks], [(n, id_of[n]) for n in requests])
    named: dict[str, list[int]] = {"ACK": [], "REQUEST": []}
    for record in sets(link, limit):
        assert record["generation"] == 7
        named[record["type"]] += record["numbers"]
        at = ACK_FOLD_AT if record["type"] == "ACK" else REQUEST_FOLD_AT
        assert record["fold"] == fold([id_of[n] for n in record["numbers"]], at)
    assert sorted(named["ACK"]) == sorted(acks)
    assert sorted(named["REQUEST"]) == sorted(requests)


def test_ids_without_a_number_are_whole_and_prefixes_only_asked_for() -> None:
    ids = [bytes([number]) * 32 for number in range(1, 11)]
    prefix = b"prefix__" + bytes(24)
    link = Giver([(0, id) for id in ids], [(0, ids[0]), (0, prefix), (3, ids[3]), (0, ids[4])])
    made = sets(link, 1024)
    assert [record.get("ids") for record in made] == [
        [id.hex() for id in ids[:7]],
        [id.hex() for id in ids[7:]],
        [ids[0].hex()],
        [prefix[:8].hex()],
        None,
        [ids[4].hex()],
    ]
    assert made[4]["numbers"] == [3]


def test_a_run_of_numbers_is_a_range_whatever_their_order() -> None:
    for numbers in (list(range(5, 105)), list(range(104, 4, -1))):
        link = Giver([(number, bytes(32)) for number in numbers], [])
        (record,) = sets(link, 1024)
        assert record["numbers"] == list(range(5, 105))


@pytest.mark.parametrize("first", [1, 5, 127, 128])
def test_a_range_names_no_number_more_than_is_acknowledged(first: int) -> None:
    """The length stands in the type byte up to 7, and in a varint above."""
    for count in range(1, 12):
        numbers = list(range(first, first + count))
        (record,) = sets(Giver([(number, bytes(32)) for number in numbers], []), 1024)
        assert (record["type"], record["numbers"]) == ("ACK", numbers)
        link = Giver([(number, bytes(32)) for number in numbers], [])
        engine = Compact1(link)  # type: ignore[arg-type]
        engine.begin(link)  # type: ignore[arg-type]
        engine.hear(7)
        engine.mark(GREETING, False)
        frame = bytearray(64)
        end = engine.fill_records(link, frame, 0, 64)  # type: ignore[arg-type]
        # Type, generation, first number, length if above 7, fold; no bits.
        assert frame[0] == ACK << 5 | (count << 2 if count <= 7 else 0)
        assert end == 3 + (1 if first < 128 else 2) + (count > 7) + 4


def test_a_set_spans_what_its_bits_can_hold() -> None:
    assert origin_of(500, COMPACT_COVER_SIZE) == 372 and origin_of(1, COMPACT_COVER_SIZE) == 1
    for number, wide in ((627, 1), (628, 2), (371, 2)):
        made = sets(Giver([(500, bytes(32)), (number, bytes(32))], []), 1024)
        assert len(made) == wide, number


# --- records as they are written down ---


@pytest.mark.parametrize("pieces", [None, [1], [3, 7]])
def test_the_example_of_the_specification(pieces: list[int] | None) -> None:
    base, group, message, ack = records(BASE + GROUP + MESSAGE + "0400100501020304", pieces)
    assert base == {"type": "BASE", "generation": 16, "number": 5}
    assert group == {"type": "GROUP", "index": 0, "group_id": "11" * 32}
    assert (message["number"], message["timestamp"]) == (5, 1_700_000_000_000)
    assert bytes.fromhex(message["body"]) == b"body" and len(message["message_id"]) == 64
    assert ack["numbers"] == [5] and ack["fold"] == "01020304"


def test_flags_leave_out_what_was_said() -> None:
    made = records(BASE + MESSAGE + "a3" + "2102" + b"BODY".hex() + "2e0a0500" + "61" * 5)
    assert [record["type"] for record in made] == ["BASE", "MESSAGE", "BASE", *["MESSAGE"] * 2]
    assert [record["number"] for record in made] == [5, 5, 9, 9, 10]
    assert made[3]["timestamp"] == 1_700_000_000_001 and made[3]["body"] == b"BODY".hex()
    assert made[4]["timestamp"] == 1_700_000_000_001, "a delta of 0"


@pytest.mark.parametrize("pieces", [None, [1], [5, 2]])
def test_a_message_that_goes_to_the_end_has_no_size(pieces: list[int] | None) -> None:
    """It may have its own number, and a group index in a byte of its own."""
    body = b"body".hex()
    (alone,) = records("31001005" + STAMP + body, pieces)
    assert (alone["generation"], alone["number"], alone["body"]) == (16, 5, body)
    assert alone["timestamp"] == 1_700_000_000_000
    made = records(BASE + GROUP + MESSAGE + "30" + "00" + body * 40, pieces)
    assert (made[3]["number"], made[3]["timestamp"]) == (6, 1_700_000_000_000)
    assert made[3]["body"] == body * 40 and made[3]["group_id"] == "11" * 32
    group = "cf" + "22" * 32
    (_, _, last) = records(BASE + group + "3f00108101" + "0f" + STAMP, pieces)
    assert (last["number"], last["body"], last["group_id"]) == (129, "", "22" * 32)


@pytest.mark.parametrize(
    ("stream", "record"),
    [
        ("8400100203", {"generation": 16, "answered": None, "sum": None, "store_gen": 0x203}),
        ("8100110203", {"type": "HELLO", "generation": None, "answered": 17, "store_gen": 0x203}),
        ("87001000110203" + "ab" * 8, {"generation": 16, "answered": 17, "sum": "ab" * 8}),
        ("e00003001007", {"type": "UNKNOWN", "generation": 16, "index": 7}),
        ("e00102abcd", {"type": "SKETCH", "content": "abcd"}),
        ("e001820061" + "62", {"type": "SKETCH", "content": "6162"}),
        ("e00200", {"type": "FULL"}),
        ("e06301ff", {"type": "EXTENDED", "kind": 99, "content": "ff"}),
        ("01001003020581" + "00000001", {"type": "ACK", "numbers": [3, 5, 11, 18]}),
        ("600010efff011100000001", {"numbers": list(range(NUMBER_MAX - 16, NUMBER_MAX + 1))}),
        ("67" + "ab" * 8, {"type": "REQUEST", "ids": ["ab" * 8]}),
    ],
)
def test_single_records(stream: str, record: dict[str, Any]) -> None:
    (found,) = records(stream)
    assert found.items() >= record.items()


BAD = {
    "a number of 0": "a0001000",
    "a number above 32,767": "a00010808002",
    "two generations in a frame": BASE + "a0001101",
    "a generation beside that of a HELLO": BASE + "8400110203",
    "a skip before a BASE": "a1",
    "a MESSAGE before a BASE": MESSAGE,
    "a GROUP before a BASE": GROUP,
    "an OFFER before a BASE": "42" + "00" * 8,
    "a skip behind a HELLO alone": HELLO + "a1",
    "a MESSAGE behind a HELLO alone": HELLO + MESSAGE,
    "a GROUP behind a HELLO alone": HELLO + GROUP,
    "an OFFER behind a HELLO alone": HELLO + "42" + "00" * 8,
    "an OFFER of nothing": BASE + "40",
    "a MESSAGE to the end before a BASE": "30" + STAMP + "62",
    "its own number, of another generation": BASE + "31001105" + STAMP,
    "its own number, 0": "31001000" + STAMP,
    "its own number, cut off": "3100",
    "a MESSAGE to the end of index 16": "3f00100510" + STAMP,
    "a MESSAGE to the end with a bad timestamp": "31001005" + "ff" * 11,
    "a body above 32,768 to the end": "31001005" + STAMP + "62" * 32769,
    "a MESSAGE of index 16": BASE + "2e10" + MESSAGE[2:],
    "a body above 32,768": BASE + "20818002",
    "a GROUP of index 16": BASE + "d0" + "11" * 32,
    "HELLO flags": "8c00100203",
    "a HELLO that says nothing": "800203",
    "EXTENDED flags": "e1000000",
    "an UNKNOWN of another size": "e000020010",
    "an UNKNOWN of index 16": "e00003001010",
    "an ACK by prefix": "07" + "ab" * 8,
    "no ids": "02",
    "a range beyond 32,767": "600010ffff010200000001",
    "257 numbers": "000010018102" + "00" * 4,
    "no bits": "0100100100" + "00" * 4,
    "33 bytes of bits": "0100100121" + "00" * 37,
    "bits with a count": "05001001010100000000",
    "an endless varint": BASE + "20" + "ff" * 11,
}


@pytest.mark.parametrize("stream", BAD.values(), ids=BAD)
def test_what_no_correct_peer_writes(stream: str) -> None:
    found = feed({"stream": stream, "pieces": [1]})
    assert found["error"] == "PeerError" and not found["truncated"]
    link = Nobody()
    codec = Compact1(link)  # type: ignore[arg-type]
    codec.begin(link)  # type: ignore[arg-type]
    frame = bytearray(b"\x44" + bytes.fromhex(stream))
    code = codec.parse(link, frame, 1, len(frame))  # type: ignore[arg-type]
    assert code == E_PEER


def test_a_record_that_is_cut_off_is_truncated_in_a_stream_and_malformed_in_a_frame() -> None:
    whole = bytes.fromhex(
        BASE + GROUP + MESSAGE + "0100100502ff0101020304" + "e000030010078400100203"
    )
    ends = {0, 4, 37, 49, 60, 66, 71}
    for cut in range(len(whole) + 1):
        found = feed({"stream": whole[:cut].hex()})
        assert found["error"] is None and found["truncated"] == (cut not in ends), cut
        link = Nobody()
        codec = Compact1(link)  # type: ignore[arg-type]
        codec.begin(link)  # type: ignore[arg-type]
        frame = bytearray(b"\x44" + whole[:cut])
        code = codec.parse(link, frame, 1, len(frame))  # type: ignore[arg-type]
        assert code == (OK if cut in ends else E_PEER), cut


def fuzzed(draw: random.Random, made: list[bytes]) -> bytes:
    """Random bytes, or a good frame with some changed, put together, or cut."""
    if draw.random() < 0.3:
        return draw.randbytes(draw.randrange(1, 80))
    frame = bytearray(draw.choice(made) + draw.choice(made))
    for _ in range(draw.randrange(4)):
        frame[draw.randrange(len(frame))] = draw.randrange(256)
    return bytes(frame[: draw.randrange(1, len(frame) + 1)])


def test_whatever_arrives_is_taken_or_refused() -> None:
    draw = random.Random(5)
    made = [
        bytes.fromhex(stream)
        for stream in (
            *(
                BASE + GROUP + MESSAGE,
                BASE + MESSAGE + "a22102" + "00" * 4,
                "8600100203" + "ab" * 8,
            ),
            *("0400100501020304", "0100100302058100000001", "67" + "ab" * 8, "66" + "ab" * 32),
            *(BASE + "46" + "cd" * 24, BASE + "43" + "cd" * 32, "e00003001007", "e00102abcd"),
        )
    ]
    link = Nobody()
    codec = Compact1(link)  # type: ignore[arg-type]
    codec.begin(link)  # type: ignore[arg-type]
    codes = {OK: 0, E_PEER: 0}
    for count in range(FUZZ_FRAMES):
        if count == FUZZ_FRAMES - TRACED_FRAMES:
            tracemalloc.start()
        if count == FUZZ_FRAMES - TRACED_FRAMES // 2:
            before = tracemalloc.get_traced_memory()[0]
        frame = bytearray(b"\x44" + fuzzed(draw, made))
        codes[codec.parse(link, frame, 1, len(frame))] += 1  # type: ignore[arg-type]
    del frame
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000
    assert min(codes.values()) > FUZZ_FRAMES // 20


def test_the_judge_agrees_with_the_codec_on_fuzzed_streams() -> None:
    draw = random.Random(6)
    made = [bytes.fromhex(BASE + GROUP + MESSAGE), bytes.fromhex("0400100501020304")]
    for _ in range(300):
        stream = fuzzed(draw, made)
        found = feed({"stream": stream.hex(), "pieces": [draw.randrange(1, 40)]})
        link = Nobody()
        codec = Compact1(link)  # type: ignore[arg-type]
        codec.begin(link)  # type: ignore[arg-type]
        frame = bytearray(b"\x44" + stream)
        code = codec.parse(link, frame, 1, len(frame))  # type: ignore[arg-type]
        assert (code == OK) == (found["error"] is None and not found["truncated"])


def test_a_feed_keeps_nothing_of_a_refused_record() -> None:
    reading = Feed()
    assert reading.take(bytearray.fromhex(BASE)) == 4
    assert reading.take(bytearray.fromhex("20ffffff7f")) == E_PEER
    assert reading.take(bytearray.fromhex(MESSAGE)) == 12
    assert reading.records[-1]["number"] == 5
