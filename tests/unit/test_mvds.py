"""MVDS payloads in three profiles: against a plain encoder, cut, mixed up and at random."""

import hashlib
import random
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import E_CAPACITY, E_PEER
from drupelet.base.hashes_mvds import MvdsMessageHash
from drupelet.wire.mvds import payload as mvds
from drupelet.wire.mvds.payload import MVDS_1, MVDS_5001, MVDS_NESTED
from drupelet_tools.flash.build import build
from mvds_payloads import Encoder, timestamp_of

HEAP = Path(__file__).parents[1] / "board/mvds_heap.py"
FUZZ_STREAMS = 100_000
TRACED_STREAMS = 5_000
MODULES = [
    *(
        "drupelet.base.compat",
        "drupelet.base._memory_plain",
        "drupelet.base._memory_viper",
        "drupelet.base.errors",
    ),
    *(
        "drupelet.base.memory",
        "drupelet.wire.protobuf",
        "drupelet.wire.mvds.payload",
        "drupelet.base.hashes_mvds",
    ),
]
PROFILES = {"mvds-1": MVDS_1, "mvds-nested": MVDS_NESTED, "mvds-5001": MVDS_5001}
every = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
IDS = st.lists(st.binary(min_size=32, max_size=32), max_size=6)
LISTS = {mvds.ACK: "acks", mvds.OFFER: "offers", mvds.REQUEST: "requests"}

Payload = dict[str, list]


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1) if value else b""
    return varint(number << 3 | 2) + varint(len(value)) + value


def optional(number: int, value: bytes) -> bytes:
    return field(number, value) if value else b""


def plain_message(profile: tuple[int, ...], message: tuple) -> bytes:
    group, timestamp, body, flags, parents = message
    _, _, _, _, number, _, group_id, moment, content, metadata, _ = profile
    data = optional(group_id, group) + field(moment, timestamp) + optional(content, body)
    if flags:
        inside = b"".join(field(1, parent) for parent in parents)
        data += field(metadata, inside + field(2, flags // 2))
    return field(number, data)


def plain(profile: tuple[int, ...], payload: Payload) -> bytes:
    """Encode a payload the slow way."""
    parts = []
    for what, name in LISTS.items():
        ids = payload[name]
        if profile[-1]:
            parts.append(optional(profile[what], b"".join(field(1, i) for i in ids)))
        else:
            parts += [field(profile[what], i) for i in ids]
    parts += [plain_message(profile, message) for message in payload["messages"]]
    for group, ids in payload["group_offers"]:
        inside = optional(1, group) + b"".join(field(2, i) for i in ids)
        parts.append(field(profile[mvds.GROUP], inside))
    return b"".join(parts)


def put_message(encoder: Encoder, buf: bytearray, message: tuple) -> int:
    group, timestamp, body, flags, parents = message
    moment = timestamp.to_bytes(8, "little", signed=True)
    ids = b"".join(parents)
    at = encoder.put_message(
        b"?" + group, 1, len(group), b"?" + moment, 1, len(body), ids, len(parents), flags
    )
    if at >= 0:
        buf[at : at + len(body)] = body
    return at


def encode(profile: tuple[int, ...], payload: Payload, at: int = 0) -> bytes:
    buf = bytearray(b"\xee" * 8192)
    encoder = Encoder(profile)
    encoder.open(buf, at, len(buf))
    for what, name in LISTS.items():
        for ident in payload[name]:
            assert encoder.put_id(what, b"?" + ident, 1) == encoder.at
    for message in payload["messages"]:
        assert put_message(encoder, buf, message) > 0
    for group, ids in payload["group_offers"]:
        assert encoder.put_group(b"?" + group, 1, len(group)) == encoder.at
        for ident in ids:
            assert encoder.put_group_offer(b"?" + ident, 1) == encoder.at
    assert buf[:at] == b"\xee" * at and not buf[encoder.at :].strip(b"\xee")
    return bytes(buf[at : encoder.at])


def decode(profile: tuple[int, ...], wire: bytes, at: int = 0) -> tuple[Payload, int, int]:
    """Return the payload, how it ended and how many ids were skipped."""
    buf = bytes(at) + wire + b"\x0a"
    found: Payload = {n: [] for n in (*LISTS.values(), "messages", "group_offers")}
    decoder = mvds.Payload(profile)
    decoder.open(buf, at, at + len(wire))
    while (what := decoder.next()) > 0:
        ident = buf[decoder.at : decoder.at + 32]
        group = buf[decoder.group_at : decoder.group_at + decoder.group_size]
        if what in LISTS:
            found[LISTS[what]].append(ident)
        elif what == mvds.GROUP:
            found["group_offers"].append((group, []))
        elif what == mvds.GROUP_OFFER:
            found["group_offers"][-1][1].append(ident)
        else:
            assert what == mvds.MESSAGE
            moment = int.from_bytes(timestamp_of(decoder), "little", signed=True)
            body = buf[decoder.body_at : decoder.body_at + decoder.body_size]
            parents = []
            while (parent := decoder.next_parent()) >= 0:
                parents.append(buf[parent : parent + 32])
            found["messages"].append((group, moment, body, decoder.flags, parents))
    assert decoder.next() == what
    return found, what, decoder.skipped


def messages(profile: tuple[int, ...]) -> st.SearchStrategy:
    flags = st.sampled_from([0, mvds.METADATA, mvds.METADATA | mvds.EPHEMERAL])
    return st.tuples(
        st.binary(max_size=40),
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300),
        st.binary(max_size=300),
        flags if profile[9] else st.just(0),
        IDS,
    ).map(lambda m: (*m[:4], m[4] if m[3] else []))


def payloads(profile: tuple[int, ...]) -> st.SearchStrategy:
    groups = st.lists(st.tuples(st.binary(max_size=40), IDS), max_size=3)
    return st.fixed_dictionaries(
        {
            **dict.fromkeys(LISTS.values(), IDS),
            "messages": st.lists(messages(profile), max_size=3),
            "group_offers": groups if profile[mvds.GROUP] else st.just([]),
        }
    )


# The bytes of each field, from the texts' numbers: (number << 3 | wire type) as a varint.
TAGS = {
    "mvds-1": ("0a", "12", "1a", "22", "0a", "10", "1a", "22"),
    "mvds-nested": ("0a", "12", "1a", "22", "0a", "10", "1a", ""),
    "mvds-5001": (
        *("cab802", "d2b802", "dab802", "e2b802"),  # 5001 to 5004
        *("8af702", "90f702", "9af702", "a2f702"),  # 6001 to 6004
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_bytes_of_every_field(name: str) -> None:
    """Nothing here comes from the profile's table: a number that changes there fails."""
    profile = PROFILES[name]
    ack, offer, request, message, group_id, timestamp, body, metadata = TAGS[name]
    ids = [number * 32 for number in ("a1", "b2", "c3", "d4", "e5", "f6")]
    lists = {"acks": (ack, ids[0]), "offers": (offer, ids[1]), "requests": (request, ids[2])}
    payload: Payload = {name: [bytes.fromhex(id)] for name, (_, id) in lists.items()}
    wire = "".join(
        tag + ("22" + "0a" if name == "mvds-nested" else "") + "20" + id
        for tag, id in lists.values()
    )
    inside = group_id + "20" + ids[3] + timestamp + "ac02" + body + "03" + "626f64"
    flags, parents = 0, []
    if metadata:
        inside += metadata + "46" + "0a" + "20" + ids[4] + "0a" + "20" + ids[5] + "1001"
        flags = mvds.METADATA | mvds.EPHEMERAL
        parents = [bytes.fromhex(id) for id in ids[4:]]
    size = len(inside) // 2
    length = f"{size:02x}" if size < 128 else f"{size & 127 | 128:02x}{size >> 7:02x}"
    wire += message + length + inside
    payload["messages"] = [(bytes.fromhex(ids[3]), 300, b"bod", flags, parents)]
    payload["group_offers"] = []
    if name == "mvds-5001":
        group_offer = "0a" + "20" + ids[3] + "12" + "20" + ids[0] + "12" + "20" + ids[1]
        wire += "eab802" + "66" + group_offer  # 5005
        payload["group_offers"] = [
            (bytes.fromhex(ids[3]), [bytes.fromhex(ids[0]), bytes.fromhex(ids[1])])
        ]
    assert encode(profile, payload).hex() == wire
    assert decode(profile, bytes.fromhex(wire)) == (payload, mvds.END, 0)
    # proto3: what is empty or zero is not there, and a negative int64 takes ten bytes.
    bare: Payload = {key: [] for key in (*LISTS.values(), "group_offers")}
    zeros = bare | {"messages": [(b"", 0, b"", 0, [])]}
    assert encode(profile, zeros).hex() == message + "00"
    below = bare | {"messages": [(b"", -1, b"", 0, [])]}
    assert encode(profile, below).hex().endswith(timestamp + "ff" * 9 + "01")
    assert decode(profile, encode(profile, below))[0] == below


@every
@given(data=st.data())
def test_round_trip(profile: tuple[int, ...], data: st.DataObject) -> None:
    payload = data.draw(payloads(profile))
    wire = plain(profile, payload)
    assert encode(profile, payload, data.draw(st.integers(0, 2))) == wire
    assert decode(profile, wire, data.draw(st.integers(0, 2))) == (payload, mvds.END, 0)


@every
@given(data=st.data())
def test_a_full_buffer_keeps_a_whole_payload(
    profile: tuple[int, ...], data: st.DataObject
) -> None:
    payload = data.draw(payloads(profile))
    size = len(plain(profile, payload))
    limit = data.draw(st.integers(0, size))
    buf = bytearray(b"\xee" * (size + 9))
    encoder = Encoder(profile)
    encoder.open(buf, 0, limit)
    fitted: Payload = {n: [] for n in payload}
    for what, name in LISTS.items():
        for ident in payload[name]:
            if encoder.put_id(what, ident, 0) >= 0:
                fitted[name].append(ident)
    for message in payload["messages"]:
        if put_message(encoder, buf, message) >= 0:
            fitted["messages"].append(message)
    for group, ids in payload["group_offers"]:
        if encoder.put_group(group, 0, len(group)) >= 0:
            taken = [i for i in ids if encoder.put_group_offer(i, 0) >= 0]
            fitted["group_offers"].append((group, taken))
    assert encoder.at <= limit and buf[encoder.at :] == b"\xee" * (size + 9 - encoder.at)
    assert bytes(buf[: encoder.at]) == plain(profile, fitted)
    assert (fitted == payload) == (limit == size)


@pytest.mark.parametrize("room", [35, 36, 69, 70, 137, 138, 139])
def test_a_nested_list_grows_by_its_length_too(room: int) -> None:
    encoder = Encoder(MVDS_NESTED)
    encoder.open(bytearray(200), 0, room)
    count = 0
    while encoder.put_id(mvds.ACK, bytes(32), 0) != E_CAPACITY:
        count += 1
    assert count == {35: 0, 36: 1, 69: 1, 70: 2, 137: 3, 138: 3, 139: 4}[room]


def message_with(profile: tuple[int, ...], *parts: bytes) -> bytes:
    return field(profile[mvds.MESSAGE], b"".join(parts))


@every
def test_ids_of_another_size_and_unknown_fields_are_skipped(profile: tuple[int, ...]) -> None:
    good = [bytes([n]) * 32 for n in range(4)]
    ack = profile[mvds.ACK]
    odd = field(777, b"new") + field(778, 5) + varint(779 << 3 | 5) + bytes(4) + field(ack, 9)
    entries = [good[0], b"", bytes(31), good[1], bytes(33), good[2]]
    if profile[-1]:
        wire = odd + b"".join(field(ack, odd + field(1, entry)) for entry in entries)
    else:
        wire = b"".join(odd + field(ack, entry) for entry in entries)
    found, end, skipped = decode(profile, wire + odd)
    assert (found["acks"], end, skipped) == (good[:3], mvds.END, 3)
    assert not found["messages"] and not found["offers"]


@every
def test_the_last_of_a_field_counts_in_any_order(profile: tuple[int, ...]) -> None:
    _, _, _, _, _, _, group, moment, body, metadata, _ = profile
    parts = [field(body, b"old"), field(moment, 7), field(group, b"g" * 9), field(999, b"?")]
    parts += [field(body, b"body"), field(moment, -2), field(group, b"G"), field(group, 3)]
    flags, parents = 0, []
    if metadata:
        parents = [b"p" * 32, b"q" * 32]
        first = field(2, 1) + field(1, parents[0]) + field(1, b"short")
        parts.insert(0, field(metadata, first))
        parts.append(field(metadata, field(1, parents[1]) + varint(2 << 3) + b"\x00"))
        flags = mvds.METADATA
    found, end, skipped = decode(profile, message_with(profile, *parts))
    assert found["messages"] == [(b"G", -2, b"body", flags, parents)]
    assert (end, skipped) == (mvds.END, len(parents) // 2)


def test_parents_left_unread_are_not_the_next_messages() -> None:
    first = (b"g", 1, b"a", mvds.METADATA, [b"p" * 32, b"q" * 32])
    payload: Payload = {name: [] for name in (*LISTS.values(), "group_offers")}
    wire = encode(MVDS_1, payload | {"messages": [first, (b"g", 1, b"b", 0, []), first]})
    decoder = mvds.Payload(MVDS_1)
    decoder.open(wire, 0, len(wire))
    assert decoder.next() == mvds.MESSAGE and decoder.next_parent() > 0
    assert decoder.next() == mvds.MESSAGE and decoder.next_parent() == -1
    assert decoder.next() == mvds.MESSAGE and decoder.next_parent() > 0
    decoder.open(wire, 0, 0)
    assert decoder.next_parent() == -1 and decoder.next() == mvds.END


def test_a_group_may_stand_behind_its_ids() -> None:
    ids = [bytes([n]) * 32 for n in range(3)]
    inside = field(2, ids[0]) + field(1, b"no") + field(2, ids[1]) + field(1, b"yes")
    found, end, _ = decode(MVDS_5001, field(5005, inside) + field(5002, ids[2]))
    assert found["group_offers"] == [(b"yes", ids[:2])]
    assert (found["offers"], end) == ([ids[2]], mvds.END)


@every
def test_what_stands_before_an_error_counts(profile: tuple[int, ...]) -> None:
    payload: Payload = {n: [b"i" * 32] for n in LISTS.values()}
    payload |= {"messages": [(b"g" * 32, 5, b"body", 0, [])], "group_offers": []}
    wire = plain(profile, payload)
    moment = varint(profile[7] << 3)
    malformed = [b"\x00", b"\x0b", message_with(profile, moment), message_with(profile, b"\x0a")]
    if profile[9]:
        malformed.append(message_with(profile, field(profile[9], b"\x0a\x05")))
    if profile[mvds.GROUP]:
        malformed.append(field(profile[mvds.GROUP], b"\x12\x21"))
    for tail in malformed:
        assert decode(profile, wire + tail + wire) == (payload, E_PEER, 0)


@every
def test_any_bytes_are_skipped_or_the_peers_error(profile: tuple[int, ...]) -> None:
    chance = random.Random(f"mvds {profile}")
    ids = [chance.randbytes(32) for _ in range(3)]
    flags = mvds.METADATA | mvds.EPHEMERAL if profile[9] else 0
    parents = ids[:2] if flags else []
    payload: Payload = dict.fromkeys(LISTS.values(), ids[:2])
    payload["messages"] = [(ids[0], -5, b"body", flags, parents), (b"", 0, b"", 0, [])]
    payload["group_offers"] = [(ids[1], ids)] if profile[mvds.GROUP] else []
    wire = plain(profile, payload)
    decoder = mvds.Payload(profile)
    ends = {mvds.END: 0, E_PEER: 0}
    for turn in range(FUZZ_STREAMS):
        if turn == FUZZ_STREAMS - TRACED_STREAMS:
            tracemalloc.start()  # ten times slower from here on
        if turn % 4 == 0:
            stream = chance.randbytes(chance.randrange(48))
        else:
            stream = bytearray(wire[: chance.randrange(len(wire) + 1)])
            for _ in range(min(len(stream), chance.randrange(4))):
                stream[chance.randrange(len(stream))] = chance.choice((0, 255, 10, turn & 255))
        decoder.open(stream, 0, len(stream))
        # Every event but the end takes two bytes at least.
        for _ in range(len(stream) // 2 + 1):
            what = decoder.next()
            if what <= 0:
                break
            if what in LISTS or what == mvds.GROUP_OFFER:
                assert 0 < decoder.at <= len(stream) - 32
            while what == mvds.MESSAGE and (parent := decoder.next_parent()) >= 0:
                assert parent + 32 <= len(stream)
        ends[what] += 1
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert min(ends.values()) > FUZZ_STREAMS // 50
    assert grown < 2048


@given(
    st.binary(max_size=40),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.lists(st.binary(max_size=150), max_size=4),
)
def test_message_id(group: bytes, timestamp: int, pieces: list[bytes]) -> None:
    moment = timestamp.to_bytes(8, "little", signed=True)
    made = MvdsMessageHash()
    made.start_sized(b"an old one", 0, 5, moment, 0)
    made.start_sized(b"?" + group, 1, len(group), b"?" + moment, 1)
    for piece in pieces:
        made.update(b"<" + piece + b">", 1, len(piece))
    out = bytearray(34)
    made.digest_into(out, 1)
    joined = b"MESSAGE_ID" + group + moment + b"".join(pieces)
    assert out == b"\0" + hashlib.sha256(joined).digest() + b"\0"


def test_a_board_allocates_nothing_but_the_hash(
    micropython: list[str], arch: str, tmp_path: Path
) -> None:
    build(tmp_path, arch, modules=MODULES)
    done = subprocess.run(
        [*micropython, str(HEAP), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    lines = dict(line.split(": ") for line in done.stdout.splitlines())
    assert lines["allocating"] == "none"
    assert int(lines["records"]) >= 1000
    assert int(lines["hash bytes"]) <= (192 if arch == "x86" else 384)
    assert lines["ids"] == "right"
