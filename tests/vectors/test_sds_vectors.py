"""Every SDS vector of the JavaScript and Nim peers through the line harness.

Dialect `sds` on all three interpreters, `sds-nim` on CPython.
"""

import json
from collections.abc import Iterator
from functools import cache

import pytest

from line_harness import COMMANDS, PYTHON, Json, Request, ask, on_all, printed
from published import VECTORS

FIELDS = (
    "sender_id", "message_id", "channel_id", "lamport_timestamp", "causal_history",
    "bloom_filter", "repair_request", "content",
)  # fmt: skip
OPTIONAL = ("lamport_timestamp", "bloom_filter", "content")

hashes = pytest.mark.parametrize("name", ["farm", "murmur"])


@cache
def load(name: str) -> Json:
    vectors: Json = json.loads((VECTORS / "sds" / f"{name}.json").read_text("utf-8"))
    return vectors


def js() -> Json:
    return load("sds_js_0.0.8")


def entry_of(entry: Json) -> Json:
    return {key: entry.get(key) for key in ("message_id", "retrieval_hint", "sender_id")}


def message_of(vector: Json) -> Json:
    """Return a vector's message as the harness gives it."""
    message = {key: vector[key] for key in FIELDS}
    for key in ("causal_history", "repair_request"):
        message[key] = [entry_of(entry) for entry in vector[key]]
    return message


@on_all
def test_messages(command: list[str]) -> None:
    messages = [(message_of(vector), vector["wire"]) for vector in js()["messages"]]
    assert len(messages) > 30
    requests: list[Request] = [("encode", {"profile": "sds", **m}) for m, _ in messages]
    requests += [("decode", {"profile": "sds", "wire": wire}) for _, wire in messages]
    expected = [("ok", {"wire": wire}) for _, wire in messages]
    assert ask(command, requests) == expected + [("ok", m) for m, _ in messages]


@on_all
def test_what_is_absent_may_be_left_out(command: list[str]) -> None:
    messages = [(message_of(vector), vector["wire"]) for vector in js()["messages"]]
    for message, _ in messages:
        for key in OPTIONAL:
            if message[key] is None:
                del message[key]
    requests = [("encode", {"profile": "sds", **message}) for message, _ in messages]
    assert ask(command, requests) == [("ok", {"wire": wire}) for _, wire in messages]


@on_all
def test_hash_positions(command: list[str]) -> None:
    vectors = js()["hashn"]
    assert len(vectors) > 100
    keys = ("item", "n", "max")
    requests = [("hashn", {"dialect": "sds", **{key: v[key] for key in keys}}) for v in vectors]
    assert ask(command, requests) == [("ok", {"value": v["value"]}) for v in vectors]


def bloom_cases() -> Iterator[tuple[Json, Json]]:
    for vector in [*js()["blooms"], js()["default_bloom"]]:
        options = vector["options"]
        request = {"dialect": "sds", "items": vector["items"], **options}
        request["bits_per_element"] = request.pop("force")
        request["probes"] = [item for item, _ in vector["probes"]]
        reply = {key: vector[key] for key in ("bytes", "k_hashes", "m_bits")}
        yield request, reply | {"contains": [there for _, there in vector["probes"]]}


@on_all
def test_filters(command: list[str]) -> None:
    cases = list(bloom_cases())
    assert len(cases) == 30 and len(bytes.fromhex(cases[-1][1]["bytes"])) == 18752
    assert ask(command, [("bloom", request) for request, _ in cases]) == [
        ("ok", reply) for _, reply in cases
    ]


def repair_cases(vectors: list[Json], **more: str) -> tuple[list[Request], list[tuple[str, Json]]]:
    requests: list[Request] = []
    replies = []
    for vector in vectors:
        keys = ("participant_id", "message_id", "t_max", "t_min")
        asked = {key: vector[key] for key in keys} | more
        requests.append(("treq", asked))
        replies.append(("ok", {"offset_ms": vector["t_req_offset"]}))
        asked = asked | {key: vector[key] for key in ("sender_id", "num_response_groups")}
        requests.append(("tresp", asked))
        offset = vector["t_resp_offset"]
        replies.append(("ok", {"offset_ms": offset, "in_group": vector["in_group"]}))
    return requests, replies


@on_all
def test_repair_times_and_groups(command: list[str]) -> None:
    requests, replies = repair_cases(js()["repair"], dialect="sds")
    assert len(requests) > 50
    assert ask(command, requests) == replies


@on_all
def test_messages_of_whole_runs(command: list[str]) -> None:
    ops = [op for trace in load("sds_js_0.0.8_traces")["traces"] for op in trace["ops"]]
    wires = [op["wire_without_bloom"] for op in ops]
    decoded = ask(command, [("decode", {"profile": "sds", "wire": wire}) for wire in wires])
    for op, (status, message) in zip(ops, decoded, strict=True):
        assert status == "ok" and message["message_id"] == op["message_id"]
        assert message["lamport_timestamp"] == op["lamport"]
        assert [entry["message_id"] for entry in message["causal_history"]] == op["causal"]
        assert (message["content"] is None) == (op["kind"] == "sync")
    again = ask(command, [("encode", {"profile": "sds", **message}) for _, message in decoded])
    assert again == [("ok", {"wire": wire}) for wire in wires]


def nim(name: str) -> Json:
    return load(f"sds_nim_{name}")


def nim_message(vector: Json, absent: str | None) -> Json:
    """A message of the Nim peer; its file has empty strings for what is absent."""
    message = message_of(vector)
    for entry in message["causal_history"] + message["repair_request"]:
        for key in ("retrieval_hint", "sender_id"):
            entry[key] = entry[key] or absent
    message["bloom_filter"] = message["bloom_filter"] or absent
    message["sender_id"] = message["sender_id"] or ""
    return message


@hashes
def test_nim_messages(name: str) -> None:
    vectors = nim(name)["messages"]
    assert len(vectors) > 30
    requests: list[Request] = [
        ("encode", {"profile": "sds-nim", **nim_message(v, None)}) for v in vectors
    ]
    requests += [("decode", {"profile": "sds-nim", "wire": v["wire"]}) for v in vectors]
    replies = ask(PYTHON, requests)
    assert replies[: len(vectors)] == [("ok", {"wire": v["wire"]}) for v in vectors]
    for vector, (status, message) in zip(vectors, replies[len(vectors) :], strict=True):
        assert status == "ok" and vector["decodes"]
        assert nim_message(message, None) == nim_message(vector, None)


@hashes
def test_nim_filters(name: str) -> None:
    vectors = nim(name)["blooms"]
    assert len(vectors) > 20
    keys = ("capacity", "error_rate", "items")
    requests = [
        (
            "bloom",
            {
                "dialect": "sds-nim", "hash": name, **{key: v[key] for key in keys},
                "probes": [item for item, _ in v["probes"]],
            },
        )
        for v in vectors
    ]  # fmt: skip
    expected = [
        (
            "ok",
            {
                "bytes": v["serialized"], "k_hashes": v["k_hashes"], "m_bits": v["m_bits"],
                "contains": [there for _, there in v["probes"]],
            },
        )
        for v in vectors
    ]  # fmt: skip
    assert ask(PYTHON, requests) == expected


@hashes
def test_nim_string_hashes(name: str) -> None:
    vectors = nim(name)["string_hashes"]
    assert len(vectors) > 25
    top = 1 << 63
    requests, expected = [], []
    for vector in vectors:
        for n in (0, 1):
            asked = {"dialect": "sds-nim", "hash": name, "item": vector["item"], "n": n}
            requests.append(("hashn", asked | {"max": str(top)}))
            value = abs(int(vector["hash"])) + n * abs(int(vector["hash_b"]))
            expected.append(("ok", {"value": value % top}))
    assert ask(PYTHON, requests) == expected


@hashes
def test_nim_repair_times_and_groups(name: str) -> None:
    requests, replies = repair_cases(nim(name)["repair"], dialect="sds-nim", hash=name)
    assert ask(PYTHON, requests) == replies


@on_all
def test_malformed_messages_are_the_peers_error(command: list[str]) -> None:
    entry = "5a03" + "0a05" + "61"
    wires = ["0a", "0aff", "0a02c3", "0a01ff", entry, "50" + "ff" * 10, "5a030a01ff", "0b", "00"]
    wires += ["0a03eda080", "0a02c080", "0a04f4908080", "0a03e08080"]
    replies = ask(command, [("decode", {"profile": "sds", "wire": wire}) for wire in wires])
    assert [(s, r.get("kind")) for s, r in replies] == [("error", "PeerError")] * len(wires)


def test_malformed_messages_of_the_nim_dialect() -> None:
    wires = ["", "0a0161", "0a01611001220163", "0a01ff100122016a2a00", "0a"]
    replies = ask(PYTHON, [("decode", {"profile": "sds-nim", "wire": wire}) for wire in wires])
    assert [(s, r.get("kind")) for s, r in replies] == [("error", "PeerError")] * len(wires)


def test_a_board_does_not_speak_the_nim_dialect() -> None:
    asked = {"dialect": "sds-nim", "item": "a", "n": 1, "max": 10}
    for command in list(COMMANDS.values())[1:]:
        [(status, reply)] = ask(command, [("hashn", asked)])
        assert status == "error" and reply["kind"] == "ValueError"


def test_all_interpreters_print_the_same_bytes() -> None:
    wires = [vector["wire"] for vector in js()["messages"]] + ["", "zz", "0a 0", "a2010161a20100"]
    text = "".join(f'decode {{"profile": "sds", "wire": "{wire}"}}\n' for wire in wires)
    for item in ("", "ü", "日本", "😀x", "a" * 255, "é" * 33):
        asked = {"dialect": "sds", "item": item, "n": 3, "max": 999983}
        text += f"hashn {json.dumps(asked)}\n"
    assert len({printed(command, text) for command in COMMANDS.values()}) == 1
