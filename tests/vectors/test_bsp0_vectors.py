"""Everything that Briar 1.5.19 wrote and read, through the line harness; and streams at random."""

import json
import random
import tracemalloc
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import line_harness
from drupelet.base.errors import PeerError
from drupelet.wire.bsp0 import records as bsp0
from line_harness import PYTHON, Json
from published import VECTORS

LISTS = {"ACK": "acks", "OFFER": "offers", "REQUEST": "requests"}
FUZZ_STREAMS = 100_000
TRACED_STREAMS = 5_000
PIECES = [[], [1], [7, 1, 300], [4], [100_000]]


def ask(requests: list[tuple[str, Json]]) -> list[tuple[str, Json]]:
    return line_harness.ask(
        PYTHON, [(verb, {"profile": "bsp-0", **request}) for verb, request in requests]
    )


@cache
def vectors() -> Json:
    vectors: Json = json.loads((VECTORS / "bsp/bsp_briar_1.5.19.json").read_text("utf-8"))
    return vectors


def readback(reply: Json) -> str:
    """Write what was read as the peer's reader writes it."""
    words = []
    for record in reply["records"]:
        kind = record["type"]
        if kind == "MESSAGE":
            words.append(f"MESSAGE:{record['message_id']}")
        elif kind == "VERSIONS":
            words.append(f"VERSIONS:{record['versions']}")
        elif kind == "PRIORITY":
            words.append(f"PRIORITY:{record['nonce']}")
        else:
            words.append(f"{kind}:{len(record['ids'])}")
    if reply["error"] == "PeerError":
        words.append("ERR:FormatException")
    elif reply["truncated"]:
        words.append("ERR:EOFException")
    return " ".join(words)


def test_group_ids() -> None:
    groups = vectors()["groups"]
    keys = ("client_id", "major_version", "descriptor")
    replies = ask([("group_id", {key: group[key] for key in keys}) for group in groups])
    assert replies == [("ok", {"group_id": group["group_id"]}) for group in groups]


def test_message_ids() -> None:
    messages = vectors()["messages"]
    keys = ("group_id", "timestamp", "body")
    replies = ask([("message_id", {key: m[key] for key in keys}) for m in messages])
    assert replies == [("ok", {"message_id": m["message_id"]}) for m in messages]


def test_messages_as_records() -> None:
    messages = vectors()["messages"]
    keys = ("group_id", "timestamp", "body", "message_id")
    wanted = [{key: m[key] for key in keys} for m in messages]
    replies = ask([("encode", {"messages": [m]}) for m in wanted])
    assert replies == [("ok", {"wire": m["record"]}) for m in messages]
    replies = ask([("decode", {"wire": m["record"]}) for m in messages])
    assert [reply["messages"] for _, reply in replies] == [[m] for m in wanted]


def test_id_lists_as_records() -> None:
    records = [record for record in vectors()["records"] if record["type"] in LISTS]
    assert len(records) > 10
    replies = ask([("encode", {LISTS[r["type"]]: r["ids"]}) for r in records])
    assert replies == [("ok", {"wire": record["record"]}) for record in records]
    replies = ask([("decode", {"wire": record["record"]}) for record in records])
    for record, (status, reply) in zip(records, replies, strict=True):
        assert status == "ok" and reply[LISTS[record["type"]]] == record["ids"]


@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_what_the_peers_reader_reads(pieces: list[int]) -> None:
    cases = vectors()["streams"] + vectors()["negative"]
    cases += [
        {"stream": vector["record"], "readback": vector["readback"]}
        for vector in vectors()["records"] + vectors()["messages"]
    ]
    replies = ask([("feed", {"stream": case["stream"], "pieces": pieces}) for case in cases])
    assert [status for status, _ in replies] == ["ok"] * len(cases)
    assert [readback(reply) for _, reply in replies] == [case["readback"] for case in cases]


def test_long_lists_are_split_where_the_peer_does() -> None:
    ids = [number.to_bytes(32, "big").hex() for number in range(1537)]
    (_, encoded), _ = ask([("encode", {"acks": ids}), ("encode", {})])
    (_, fed), (_, decoded) = ask(
        [("feed", {"stream": encoded["wire"]}), ("decode", {"wire": encoded["wire"]})]
    )
    assert [len(record["ids"]) for record in fed["records"]] == [1536, 1]
    assert decoded["acks"] == ids


@pytest.mark.parametrize(
    ("record", "readable"),
    [
        pytest.param("00010028" + "00" * 40, False, id="empty body"),
        pytest.param("00010027" + "00" * 39, False, id="short message"),
        pytest.param("00010029" + "00" * 32 + "80" + "00" * 8, False, id="timestamp -2^63"),
        pytest.param("00010029" + "00" * 32 + "7f" + "ff" * 7 + "01", True, id="timestamp max"),
        pytest.param("00000000", False, id="no ids"),
        pytest.param("00040000", False, id="no versions"),
        pytest.param("0004000a" + "00" * 10, True, id="10 versions"),
        pytest.param("0004000b" + "00" * 11, False, id="11 versions"),
        pytest.param("0005000f" + "00" * 15, False, id="nonce of 15"),
        pytest.param("00050011" + "00" * 17, False, id="nonce of 17"),
        pytest.param("0002c020", False, id="48 KiB and 32 bytes announced"),
        pytest.param("0009c001", False, id="unknown type, more than 48 KiB"),
        pytest.param("00090000", True, id="unknown type, empty"),
        pytest.param("01090000", False, id="unknown type of another version"),
    ],
)
def test_verdicts_at_the_edges(record: str, readable: bool) -> None:
    good = "00050010" + "ab" * 16
    ((_, reply),) = ask([("feed", {"stream": good + record + good})])
    assert reply["error"] == (None if readable else "PeerError")
    assert (reply["records"][-1]["type"], reply["truncated"]) == ("PRIORITY", False)
    assert len(reply["records"]) == 1 + readable * (1 + (record[2:4] < "06"))


@given(
    st.lists(st.tuples(st.sampled_from([0, 2, 3]), st.integers(1, 5)), max_size=6),
    st.binary(min_size=1, max_size=60),
    st.integers(1, 90),
)
def test_round_trip(lists: list[tuple[int, int]], body: bytes, step: int) -> None:
    sent = [(kind, bytes([count]) * 32 * count) for kind, count in lists]
    sent.append((bsp0.MESSAGE, bytes(40) + body))
    stream = b"".join(bsp0.record(kind, payload) for kind, payload in sent)
    reader = bsp0.Reader()
    got = []
    for at in range(0, len(stream), step):
        reader.push(stream[at : at + step])
        while reader.next():
            got.append((reader.kind, reader.payload))
        assert (
            reader.is_cut
            or at + step >= len(stream)
            or sum(4 + len(payload) for _, payload in got) == at + step
        )
    assert got == sent and not reader.is_cut


def test_any_stream_is_skipped_or_the_peers_error() -> None:
    chance = random.Random("bsp-0")
    good = bsp0.record(bsp0.VERSIONS, b"\0") + bsp0.record(bsp0.ACK, chance.randbytes(64))
    good += b"\x00\x09\x00\x05other" + bsp0.record(bsp0.MESSAGE, bytes(40) + b"body")
    ends = {"read": 0, "cut": 0, "error": 0}
    for turn in range(FUZZ_STREAMS):
        if turn == FUZZ_STREAMS - TRACED_STREAMS:
            tracemalloc.start()
        if turn % 4 == 0:
            stream = b"\0" * (turn & 1) + chance.randbytes(chance.randrange(40))
        else:
            stream = bytearray(good[: chance.randrange(len(good) + 1)])
            for _ in range(min(len(stream), chance.randrange(3))):
                stream[chance.randrange(len(stream))] = chance.choice((0, 255, turn & 255))
        reader = bsp0.Reader()
        step = chance.randrange(1, 60)
        end = "error"
        try:
            for at in range(0, len(stream), step):
                reader.push(stream[at : at + step])
                for _ in range(len(stream) // 4 + 1):
                    if not reader.next():
                        break
                    assert reader.kind <= bsp0.PRIORITY
            end = "cut" if reader.is_cut else "read"
        except PeerError:
            pass
        ends[end] += 1
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert min(ends.values()) > FUZZ_STREAMS // 50
    assert grown < 4096


def test_a_reader_never_holds_more_than_a_record_and_a_piece() -> None:
    reader = bsp0.Reader()
    record = bsp0.record(bsp0.ACK, bytes(bsp0.PAYLOAD_SIZE_MAX))
    tracemalloc.start()
    for _ in range(40):
        for at in range(0, len(record), 1000):
            reader.push(record[at : at + 1000])
            while reader.next():
                assert len(reader.payload) == bsp0.PAYLOAD_SIZE_MAX
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * len(record)
