"""Every MVDS vector of the Go peers through the line harness, on all three interpreters."""

import json
from collections.abc import Iterator
from functools import cache

import pytest

from line_harness import COMMANDS, Json, ask, on_all, printed
from published import VECTORS

FILES = {
    "mvds_go_head": "mvds-1",
    "mvds_go_v0.0.17": "mvds-1",
    "mvds_go_v0.0.15": "mvds-nested",
    "mvds_go_v0.0.23": "mvds-5001",
    "mvds_go_status-im": "mvds-5001",
}
TRACES = {"mvds_go_head_traces": "mvds-1", "mvds_go_status-im_traces": "mvds-5001"}
LISTS = ("acks", "offers", "requests", "messages")


@cache
def load(name: str) -> Json:
    vectors: Json = json.loads((VECTORS / "mvds" / f"{name}.json").read_text("utf-8"))
    return vectors


def message_of(vector: Json) -> Json:
    """Return a vector's message as the harness gives it."""
    message = {k: vector[k] for k in ("group_id", "timestamp", "body", "message_id")}
    if vector["has_metadata"]:
        message["parents"] = vector.get("parents") or []
        message["ephemeral"] = vector.get("ephemeral", False)
    return message


def payload_of(vector: Json, profile: str) -> Json:
    payload = {name: vector[name] for name in LISTS[:3]}
    payload["messages"] = [message_of(message) for message in vector["messages"]]
    if profile == "mvds-5001":
        payload["group_offers"] = vector.get("group_offers") or []
    return payload


def alone(message: Json, profile: str) -> Json:
    payload: Json = {name: [] for name in LISTS}
    return payload_of(payload | {"messages": [message]}, profile)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def wire_alone(message: Json, profile: str) -> str:
    """Return the payload of one message whose own bytes the peer gave."""
    inside = bytes.fromhex(message["message_wire"])
    tag = varint((5004 if profile == "mvds-5001" else 4) << 3 | 2)
    return (tag + varint(len(inside)) + inside).hex()


def cases(name: str, profile: str) -> Iterator[tuple[Json, str]]:
    """Yield each payload of a file with its wire, messages as payloads of their own."""
    vectors = load(name)
    for payload in vectors["payloads"]:
        yield payload_of(payload, profile), payload["payload_wire"]
    for message in vectors["messages"]:
        yield alone(message, profile), wire_alone(message, profile)


@on_all
@pytest.mark.parametrize("name", FILES)
def test_payloads_and_messages(command: list[str], name: str) -> None:
    profile = FILES[name]
    pairs = list(cases(name, profile))
    assert len(pairs) > 50
    encodes = [("encode", {"profile": profile, **payload}) for payload, _ in pairs]
    decodes = [("decode", {"profile": profile, "wire": wire}) for _, wire in pairs]
    replies = ask(command, encodes + decodes)
    assert replies[: len(pairs)] == [("ok", {"wire": wire}) for _, wire in pairs]
    assert replies[len(pairs) :] == [("ok", payload) for payload, _ in pairs]


@on_all
@pytest.mark.parametrize("name", FILES)
def test_message_ids(command: list[str], name: str) -> None:
    messages = load(name)["messages"]
    requests = [
        ("message_id", {"profile": FILES[name], **{k: m[k] for k in ("group_id", "body")},
                        "timestamp": str(m["timestamp"])})
        for m in messages
    ]  # fmt: skip
    expected = [("ok", {"message_id": m["message_id"]}) for m in messages]
    assert ask(command, requests) == expected


@on_all
@pytest.mark.parametrize("name", TRACES)
def test_payloads_of_whole_runs(command: list[str], name: str) -> None:
    profile = TRACES[name]
    events = [event for trace in load(name)["traces"] for event in trace["events"]]
    assert len(events) > 500
    decoded = ask(
        command, [("decode", {"profile": profile, "wire": e["payload"]}) for e in events]
    )
    for event, (status, payload) in zip(events, decoded, strict=True):
        assert status == "ok"
        assert [len(payload[k]) for k in LISTS] == [event[k] for k in LISTS]
    again = ask(command, [("encode", {"profile": profile, **p}) for _, p in decoded])
    assert again == [("ok", {"wire": e["payload"]}) for e in events]


@on_all
def test_message_ids_of_whole_runs(command: list[str]) -> None:
    trace = load("mvds_go_head_traces")["traces"][0]
    wires = [event["payload"] for event in trace["events"]]
    decoded = ask(command, [("decode", {"profile": "mvds-1", "wire": wire}) for wire in wires])
    sent = {m["message_id"] for _, payload in decoded for m in payload["messages"]}
    assert sent == set(trace["message_ids"])


def test_all_interpreters_print_the_same_bytes() -> None:
    name = "mvds_go_head"
    decodes = [{"profile": "mvds-1", "wire": wire} for _, wire in cases(name, "mvds-1")]
    wires = ("0", "0a 0", "0x", "00", "0a20", "22010a", "", "aa0100")
    decodes += [{"profile": "mvds-1", "wire": wire} for wire in wires]
    text = "".join(f"decode {json.dumps(request)}\n" for request in decodes)
    message = {"group_id": "00", "timestamp": "-1", "body": "", "parents": []}
    for bad in (
        {"profile": "mvds-nested", "messages": [message]},
        {"profile": "mvds-1", "messages": [message | {"timestamp": 1 << 63}]},
        {"profile": "mvds-1", "messages": [message | {"parents": ["00"]}]},
        {"profile": "mvds-1", "group_offers": [message]},
        {"profile": "mvds-1", "messages": [{"body": ""}]},
        {"profile": "mvds-2"},
        {},
    ):
        text += f"encode {json.dumps(bad)}\n"
    text += "decode nonsense\nremember {}\n"
    outputs = {printed(command, text) for command in COMMANDS.values()}
    assert len(outputs) == 1
    replies = [line.split(" ")[0] for line in outputs.pop().splitlines()]
    assert replies == ["ok"] * (len(decodes) - 8) + ["error"] * 6 + ["ok"] * 2 + ["error"] * 9


@on_all
@pytest.mark.parametrize("profile", sorted(set(FILES.values())))
def test_malformed_payloads_are_the_peers_error(command: list[str], profile: str) -> None:
    number = 5004 if profile == "mvds-5001" else 4
    message = (varint(number << 3 | 2) + b"\x01\x0a").hex()
    wires = ["00", "0a20", "0b", message, "08" + "ff" * 10]
    replies = ask(command, [("decode", {"profile": profile, "wire": w}) for w in wires])
    assert [(s, r.get("kind")) for s, r in replies] == [("error", "PeerError")] * len(wires)
