"""bsp-1, BLAKE2s and COBS through the line harness, on all three interpreters.

Beside peers' vectors and published answers stand vectors that this file calculates itself, from
nothing but hashlib and struct.
"""

import hashlib
import json
import random
import struct
from pathlib import Path

import pytest

from line_harness import COMMANDS, Json, ask, lines_of, on_all, printed
from published import COBS_PAIRS, VECTORS, blake2s_answers

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("ACK", "MESSAGE", "OFFER", "REQUEST")


def bsp(verb: str, **fields: object) -> tuple[str, Json]:
    return verb, {"profile": "bsp-1", **fields}


def hash_of(*arguments: bytes) -> bytes:
    """BSP v1 section 1.3."""
    joined = b"".join(struct.pack(">I", len(part)) + part for part in arguments)
    return hashlib.blake2s(joined).digest()


def record(kind: int, payload: bytes, version: int = 1) -> bytes:
    return struct.pack(">BBH", version, kind, len(payload)) + payload


rng = random.Random(2016)
GROUPS = [
    (rng.randbytes(32), rng.randbytes(size))
    for size in (0, 1, 31, 32, 55, 56, 64, 255, 1000, 32768)
]
MESSAGES = [
    (rng.randbytes(32), timestamp, rng.randbytes(size))
    for size, timestamp in [
        (0, 0), (1, 1), (10, 1_700_000_000_123), (64, (1 << 63) - 1), (952, 1 << 30),
        (953, 1 << 31), (5000, 1 << 32), (32768, 1 << 62),
    ]
]  # fmt: skip


def message_json(group: bytes, timestamp: int, body: bytes) -> Json:
    return {"group_id": group.hex(), "timestamp": timestamp, "body": body.hex()}


def message_id(group: bytes, timestamp: int, body: bytes) -> str:
    return hash_of(b"MESSAGE_ID", group, struct.pack(">q", timestamp), body).hex()


def content(group: bytes, timestamp: int, body: bytes) -> bytes:
    return group + struct.pack(">q", timestamp) + body


@on_all
def test_published_hashes(command: list[str]) -> None:
    cases = [(data.hex(), key.hex(), digest.hex()) for data, key, digest in blake2s_answers()]
    assert len(cases) == 256
    plain = [("", "", hashlib.blake2s().hexdigest())]
    requests = [("blake2s", {"data": data, "key": key}) for data, key, _ in cases + plain]
    replies = ask(command, requests)
    assert replies == [("ok", {"digest": digest}) for _, _, digest in cases + plain]


@on_all
def test_a_peers_group_ids(command: list[str]) -> None:
    name = "bsp_briar_hist_2016-11_blake2s_plainlabel.json"
    groups = json.loads((VECTORS / "bsp" / name).read_text("utf-8"))["groups"]
    groups = [group for group in groups if len(group["client_id"]) == 64]
    assert groups
    requests = [
        bsp("group_id", client_id=group["client_id"], descriptor=group["descriptor"])
        for group in groups
    ]
    replies = ask(command, requests)
    assert replies == [("ok", {"group_id": group["group_id"]}) for group in groups]


@on_all
def test_cobs(command: list[str]) -> None:
    pairs = [(data.hex(), wire.hex()) for data, wire in COBS_PAIRS]
    requests = [("cobs_encode", {"data": data}) for data, _ in pairs]
    requests += [("cobs_decode", {"wire": wire}) for _, wire in pairs]
    replies = [("ok", {"wire": wire}) for _, wire in pairs]
    replies += [("ok", {"data": data}) for data, _ in pairs]
    assert ask(command, requests) == replies


@on_all
def test_group_ids(command: list[str]) -> None:
    requests = [
        bsp("group_id", client_id=client.hex(), descriptor=descriptor.hex())
        for client, descriptor in GROUPS
    ]
    ids = [hash_of(b"GROUP_ID", client, descriptor).hex() for client, descriptor in GROUPS]
    assert ask(command, requests) == [("ok", {"group_id": id}) for id in ids]


@on_all
def test_message_ids(command: list[str]) -> None:
    requests = [bsp("message_id", **message_json(*message)) for message in MESSAGES]
    requests += [
        bsp("message_id", **{**message_json(*message), "timestamp": str(message[1])})
        for message in MESSAGES
    ]
    ids = [("ok", {"message_id": message_id(*message)}) for message in MESSAGES]
    assert ask(command, requests) == ids * 2


@on_all
def test_encode_and_decode(command: list[str]) -> None:
    ids = [rng.randbytes(32) for _ in range(5)]
    small = [message for message in MESSAGES if len(message[2]) < 1000]
    payload = {
        "acks": [id.hex() for id in ids[:2]],
        "offers": [id.hex() for id in ids[2:3]],
        "requests": [id.hex() for id in ids[3:]],
        "messages": [message_json(*message) for message in small],
    }
    wire = record(0, ids[0] + ids[1]) + record(2, ids[2]) + record(3, ids[3] + ids[4])
    wire += b"".join(record(1, content(*message)) for message in small)
    found = dict(payload)
    found["messages"] = [
        {**message_json(*message), "message_id": message_id(*message)} for message in small
    ]
    nothing: Json = {"acks": [], "offers": [], "requests": [], "messages": []}
    unknown = record(9, b"skipped") + record(255, b"")
    requests = [
        bsp("encode", **payload), bsp("decode", wire=wire.hex()), bsp("encode"),
        bsp("decode", wire=""), bsp("decode", wire=(unknown + wire + unknown).hex()),
    ]  # fmt: skip
    assert ask(command, requests) == [
        ("ok", {"wire": wire.hex()}), ("ok", found), ("ok", {"wire": ""}), ("ok", nothing),
        ("ok", found),
    ]  # fmt: skip


@on_all
def test_long_lists_are_split(command: list[str]) -> None:
    ids = [struct.pack(">I", number) * 8 for number in range(2048)]
    wire = record(2, b"".join(ids[:2047])) + record(2, ids[2047])
    (reply,) = ask(command, [bsp("encode", offers=[id.hex() for id in ids])])
    assert reply == ("ok", {"wire": wire.hex()})
    (reply,) = ask(command, [bsp("decode", wire=wire.hex())])
    assert reply[1]["offers"] == [id.hex() for id in ids]


def expected_feed(stream: bytes) -> Json:
    """Section 3 by the letter: whole records one after the other until something is wrong."""
    records: list[Json] = []
    at = 0
    while at + 4 <= len(stream):
        version, kind, size = struct.unpack_from(">BBH", stream, at)
        ids = kind in (0, 2, 3)
        bad = version != 1 or (ids and (not size or size % 32))
        bad = bad or (kind == 1 and not 40 <= size <= 40 + 32768)
        if not bad and at + 4 + size > len(stream):
            return {"records": records, "error": None, "truncated": True}
        payload = stream[at + 4 : at + 4 + size]
        if bad or (kind == 1 and payload[32] & 0x80):
            return {"records": records, "error": "PeerError", "truncated": False}
        if ids:
            lines = [payload[i : i + 32].hex() for i in range(0, size, 32)]
            records.append({"type": TYPES[kind], "ids": lines})
        elif kind == 1:
            group, timestamp, body = payload[:32], payload[32:40], payload[40:]
            number = struct.unpack(">q", timestamp)[0]
            fields = {**message_json(group, number, body)}
            fields["message_id"] = message_id(group, number, body)
            records.append({"type": "MESSAGE", **fields})
        at += 4 + size
    if at < len(stream) and stream[at] != 1:
        return {"records": records, "error": "PeerError", "truncated": False}
    return {"records": records, "error": None, "truncated": at < len(stream)}


def streams() -> list[bytes]:
    """Whole, cut, damaged and random streams."""
    draw = random.Random(7)
    made = [b"", b"\x01", b"\x02", b"\x01\x00\x00"]
    for _ in range(150):
        parts = []
        for _ in range(draw.randrange(1, 4)):
            kind = draw.choice([0, 1, 2, 3, 3, 77])
            size = 40 + draw.randrange(80) if kind == 1 else 32 * draw.randrange(4)
            size += draw.random() < 0.1
            payload = bytearray(draw.randbytes(size))
            if kind == 1:
                payload[32] &= 0xFF if draw.random() < 0.1 else 0x7F
            parts.append(record(kind, bytes(payload), draw.choice([1] * 20 + [0, 2])))
        stream = bytearray(b"".join(parts))
        if draw.random() < 0.3:
            stream[draw.randrange(len(stream))] ^= 1 << draw.randrange(8)
        made.append(bytes(stream[: draw.randrange(len(stream) + 1)]))
        made.append(bytes(stream))
    return made


@on_all
@pytest.mark.parametrize("pieces", [[], [1], [3, 50, 1]], ids=str)
def test_feed(command: list[str], pieces: list[int]) -> None:
    made = streams()
    replies = ask(command, [bsp("feed", stream=s.hex(), pieces=pieces) for s in made])
    assert replies == [("ok", expected_feed(stream)) for stream in made]
    errors = [reply["error"] for _, reply in replies]
    assert errors.count("PeerError") > 30 and errors.count(None) > 100
    assert sum(reply["truncated"] for _, reply in replies) > 50


WRONG = [
    ("PeerError", bsp("decode", wire="0200002000")),
    ("PeerError", bsp("decode", wire="01000000")),
    ("PeerError", bsp("decode", wire="010100280000")),
    ("PeerError", ("cobs_decode", {"wire": "00"})),
    ("PeerError", ("cobs_decode", {"wire": "05"})),
    ("CapacityError", bsp("group_id", client_id="00", descriptor="")),
    ("CapacityError", bsp("message_id", group_id="00" * 32, timestamp=-1, body="")),
    ("CapacityError", bsp("message_id", group_id="00" * 32, timestamp=str(1 << 63), body="")),
    ("CapacityError", bsp("message_id", group_id="00" * 31, timestamp=0, body="")),
    ("CapacityError", bsp("message_id", group_id="00" * 32, timestamp=0, body="00" * 32769)),
    ("ValueError", bsp("decode")),
    ("ValueError", bsp("feed", stream="00", pieces=[0])),
    ("ValueError", ("decode", {"profile": "bsp-7", "wire": ""})),
    ("ValueError", ("unheard_of", {"profile": "bsp-1"})),
]


@on_all
def test_what_is_wrong_has_a_kind(command: list[str]) -> None:
    replies = ask(command, [request for _, request in WRONG])
    assert [status for status, _ in replies] == ["error"] * len(WRONG)
    assert [reply["kind"] for _, reply in replies] == [kind for kind, _ in WRONG]
    assert all(reply["message"] for _, reply in replies)


def test_every_interpreter_prints_the_same_bytes() -> None:
    requests = [bsp("feed", stream=stream.hex()) for stream in streams()]
    requests += [request for _, request in WRONG]
    requests += [bsp("message_id", **message_json(*message)) for message in MESSAGES]
    outputs = {printed(command, lines_of(requests)) for command in COMMANDS.values()}
    assert len(outputs) == 1
