"""The line harness itself: one line for each line, whatever it holds, the same everywhere."""

import hashlib
import json
import os
import random
import resource
import subprocess
from typing import Any

from harness_bloom import TABLE
from line_harness import COMMANDS, PYTHON, ROOT, TIMEOUT_S, Json, Request, ask, on_all, printed

FUZZ_LINES = 1_500
# One byte at a time, a stream of three of the longest messages; half a minute and more where
# every byte costs a look at all that came before it.
FEED_CPU_S = 15
INT64_MAX = (1 << 63) - 1
BOARDS = list(COMMANDS.values())[1:]

rng = random.Random(15)


def sds(verb: str, **fields: object) -> Request:
    return verb, {"dialect": "sds", **fields}


def nim(verb: str, **fields: object) -> Request:
    return verb, {"dialect": "sds-nim", **fields}


def raw(command: list[str], data: bytes) -> list[str]:
    """What the harness prints for bytes that need not be text."""
    done = subprocess.run(
        [*command, str(ROOT / "tests/harness.py")],
        input=data, capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("ascii").splitlines()


# --- what cannot be ---


BLOOM = {"capacity": 10, "error_rate": 0.01}
TIMES = {"participant_id": "p", "message_id": "m", "sender_id": "s"}
CANNOT_BE: list[Request] = [
    sds("hashn", item="a", n=1, max=0),
    sds("hashn", item="a", n=1, max=-5),
    sds("hashn", item="a", n=-1, max=5),
    sds("hashn", item="a", n=1, max=str(1 << 64)),
    *[sds("treq", **TIMES, t_min=low, t_max=high) for low, high in ((5, 5), (6, 5), (-1, 5))],
    sds("treq", **TIMES, t_min=0, t_max=1 << 63),
    sds("treq", **TIMES, t_min=0, t_max=True),
    sds("tresp", **TIMES, t_max=0, num_response_groups=1),
    sds("tresp", **TIMES, t_max=1000, num_response_groups=0),
    sds("tresp", **TIMES, t_max=1000, num_response_groups=-3),
    *[sds("bloom", **BLOOM | {"capacity": n}) for n in (0, -5, 10**12, 1.5, None)],
    *[sds("bloom", **BLOOM | {"error_rate": e}) for e in (0, 1, 2, -1, 1e300, True, "nan", "inf")],
    *[sds("bloom", **BLOOM, k=k) for k in (-1, 13, 10**9)],
    sds("bloom", **BLOOM, k=3, bits_per_element=-1),
    sds("bloom", capacity=10, error_rate=1e-6, k=3),
    ("feed", {"profile": "bsp-1", "stream": "0100", "pieces": [0]}),
    ("feed", {"profile": "bsp-1", "stream": "0100", "pieces": [-1]}),
    ("feed", {"profile": "bsp-1", "stream": "0100", "pieces": [10**30]}),
    ("feed", {"profile": "bsp-1", "stream": "0100", "pieces": 1}),
    ("feed", {"profile": "compact-1", "stream": "0100", "pieces": [0]}),
    ("blake2s", {"data": " 00"}),
    ("blake2s", {"data": "00\t"}),
    ("blake2s", {"data": "0"}),
    ("cobs_decode", {"wire": "01 01"}),
    ("hmac", {"key": " ", "data": ""}),
    ("message_id", {"profile": "bsp-1", "group_id": "00" * 32, "timestamp": 0, "body": "00 00"}),
    ("message_id", {"profile": "mvds-1", "group_id": "00", "timestamp": 1.5, "body": ""}),
    ("encode", {"profile": "bsp-1", "messages": [5]}),
    ("encode", {"profile": "bsp-1", "acks": {}}),
    ("encode", {"profile": 5}),
    ("decode", {"profile": "compact-1", "wire": ""}),
]
TOO_MUCH: list[Request] = [
    ("blake2s", {"data": "", "key": "00" * 33}),
    sds("bloom", **BLOOM | {"capacity": 4_000_000}),
    sds("bloom", **BLOOM, k=3, bits_per_element=1 << 22),
]


@on_all
def test_what_cannot_be_is_an_error(command: list[str]) -> None:
    replies = ask(command, CANNOT_BE + TOO_MUCH)
    kinds = ["ValueError"] * len(CANNOT_BE) + ["CapacityError"] * len(TOO_MUCH)
    assert [(status, reply.get("kind")) for status, reply in replies] == [
        ("error", kind) for kind in kinds
    ]
    assert all(reply["message"] for _, reply in replies)


def test_what_cannot_be_is_an_error_of_the_nim_dialect_too() -> None:
    requests = [
        (verb, request | {"dialect": "sds-nim"})
        for verb, request in CANNOT_BE + TOO_MUCH
        if "dialect" in request
    ]
    assert len(requests) > 20
    assert [status for status, _ in ask(PYTHON, requests)] == ["error"] * len(requests)


def test_a_board_refuses_what_is_on_hosts_only_and_goes_on() -> None:
    requests: list[Request] = [
        ("decode", {"profile": "bsp-0", "wire": ""}),
        nim("hashn", item="a", n=0, max=5),
        ("decode", {"profile": "sds-nim", "wire": ""}),
        ("blake2s", {"data": ""}),
    ]
    for command in BOARDS:
        statuses = [status for status, _ in ask(command, requests)]
        assert statuses == ["error", "error", "error", "ok"]


# --- JSON by the letter ---

NESTED = '{"data":"","x":' + "[" * 5000 + "]" * 5000 + "}"
NO_JSON = (
    '{"data":"",}', '{"data" ""}', '{"data":"" "key":""}', "{data:1}", "{'data':''}", '{"data":"}',
    '{"data":"",1:2}', '{"data":""} 1', '{"data":"","n":01}', '{"data":"","n":+1}',
    '{"data":"","n":1.}', '{"data":"","n":.5}', '{"data":"","n":1e}', '{"data":"","n":NaN}',
    '{"data":"","n":Infinity}', '{"data":"","n":-}', '{"data":"","n":0x1}', '{"data":"","n":1_0}',
    '{"data":"","n":[1 2]}', '{"data":"","n":[1,]}', '{"data":"","s":"\t"}',
    '{"data":"","s":"\x00"}',
    '{"data":"","s":"\\x"}', '{"data":"","s":"\\u00g0"}', '{"data":"","s":"\\u1_00"}',
    '{"data":"","s":"\\ud83d"}', '{"data":"","s":"\\ud83dx"}', '{"data":"","s":"\\ud83d\\ud83d"}',
    '{"data":"","s":"\\ude00"}', '{"data":"","n":' + "9" * 5000 + "}", NESTED, "[]", "5", "", "{",
    '{"data":"","n":tru}', '["data"]', '{"data":""}\x00',
)  # fmt: skip
JSON = (
    '{"data":""}', ' { "data" : "" } ', '\t{"data":"",\t"n":[ 1 , -2.5e+3 ,0,-0, 0.1E-2 ] }\r',
    '{"data":"","s":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uD83D\\uDE00é日😀"}',
    '{"data":"aa","data":""}', '{"data":"","x":[true,false,null,{},[],[[[[]]]]]}',
    '{"\\u0064ata":""}', '{"data":"\\u0030\\u0030"}',
)  # fmt: skip


@on_all
def test_json_is_read_by_the_letter(command: list[str]) -> None:
    lines = "".join(f"blake2s {line}\n" for line in NO_JSON + JSON)
    replies = raw(command, lines.encode())
    assert len(replies) == len(NO_JSON) + len(JSON)
    statuses = [reply.split()[0] for reply in replies]
    assert statuses == ["error"] * len(NO_JSON) + ["ok"] * len(JSON)


@on_all
def test_text_beyond_the_basic_plane_is_one_character(command: list[str]) -> None:
    asked = {"dialect": "sds", "participant_id": "p😀", "message_id": "m"}
    asked |= {"t_min": 30_000, "t_max": 300_000}
    message = {"profile": "sds", "sender_id": "\x08😀\x7f", "message_id": "m", "channel_id": "c"}
    replies = ask(command, [("treq", asked), ("encode", message)])
    assert replies[0] == ("ok", {"offset_ms": 207_528})
    wire = replies[1][1]["wire"]
    assert "08f09f98807f" in wire
    for text in ("p😀".encode(), b"p\\ud83d\\uDE00"):
        line = json.dumps(asked, ensure_ascii=False).encode().replace("p😀".encode(), text)
        assert raw(command, b"treq " + line + b"\n") == ['ok {"offset_ms": 207528}']
    [(status, found)] = ask(command, [("decode", {"profile": "sds", "wire": wire})])
    assert status == "ok" and found["sender_id"] == message["sender_id"]


@on_all
def test_bytes_that_are_no_text_are_an_error(command: list[str]) -> None:
    for wrong in (b"\x80", b"\xed\xa0\xbd", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff"):
        lines = b'blake2s {"data":"","s":"' + wrong + b'"}\n' + wrong + b" {}\n"
        replies = raw(command, lines + b'\n \t\r\nblake2s {"data":""}')
        assert [reply.split()[0] for reply in replies] == ["error", "error", "ok"]


# --- long ones ---


def message(body: bytes) -> Json:
    return {"group_id": rng.randbytes(32).hex(), "timestamp": 5, "body": body.hex()}


LONGEST = [message(rng.randbytes(32_768)) for _ in range(3)]


def stream_of(messages: list[Json]) -> str:
    head = "01018028"
    return "".join(head + m["group_id"] + "00" * 7 + "05" + m["body"] for m in messages)


@on_all
def test_three_of_the_longest_messages_fit(command: list[str]) -> None:
    wire = stream_of(LONGEST)
    requests: list[Request] = [
        ("decode", {"profile": "bsp-1", "wire": wire}),
        ("feed", {"profile": "bsp-1", "stream": wire}),
        ("encode", {"profile": "bsp-1", "messages": LONGEST}),
    ]
    decoded, fed, encoded = ask(command, requests)
    assert encoded == ("ok", {"wire": wire})
    found = [{k: m[k] for k in LONGEST[0]} for m in decoded[1]["messages"]]
    assert found == LONGEST and len(fed[1]["records"]) == 3


@on_all
def test_the_longest_record_of_ids_is_read_again_and_again(command: list[str]) -> None:
    """Of 2,047 ids: what one request leaves behind is in no other's way."""
    draw = random.Random(3)
    requests: list[Request] = []
    for number in range(6):
        ids = draw.randbytes(32 * 2047)
        record = bytes([1, (0, 2, 3)[number % 3]]) + len(ids).to_bytes(2, "big") + ids
        requests.append(("decode", {"profile": "bsp-1", "wire": record.hex()}))
        requests.append(("feed", {"profile": "bsp-1", "stream": record.hex()}))
    assert [status for status, _ in ask(command, requests)] == ["ok"] * len(requests)


@on_all
def test_byte_by_byte_is_linear(command: list[str]) -> None:
    whole = stream_of(LONGEST)
    base = "a0001005" + "c0" + "11" * 32
    size = bytes((32_000 & 127 | 128, 32_000 >> 7 & 127 | 128, 32_000 >> 14)).hex()
    compact = base + "20" + size + "80a0abfef962" + LONGEST[0]["body"][:64_000]
    requests: list[Request] = [
        ("feed", {"profile": "bsp-1", "stream": whole, "pieces": [1]}),
        ("feed", {"profile": "bsp-1", "stream": whole[:-2], "pieces": [1]}),
        ("feed", {"profile": "compact-1", "stream": compact, "pieces": [1]}),
        ("feed", {"profile": "compact-1", "stream": compact[:-2], "pieces": [1]}),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    replies = ask(command, requests)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < FEED_CPU_S
    assert [len(reply["records"]) for _, reply in replies] == [3, 2, 3, 2]
    assert [reply["truncated"] for _, reply in replies] == [False, True, False, True]


def test_what_does_not_fit_into_a_boards_memory_is_an_error_and_the_next_is_answered() -> None:
    # Heaps of 2 MiB each.
    for command, size in zip(BOARDS, (1_100_000, 1_100_000), strict=True):
        line = b'blake2s {"data":"' + b"00" * size + b'"}\n'
        replies = raw(command, line + b'blake2s {"data":""}\n')
        assert len(replies) == 2 and replies[1].startswith("ok ")
        assert json.loads(replies[0].removeprefix("error "))["kind"] == "CapacityError"


# --- repair times beyond what a board's small integers hold ---


def digest_int(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("".join(parts).encode()).digest()[:8], "big")


@on_all
def test_repair_times_of_any_length(command: list[str]) -> None:
    cases = [(30_000, 2_097_153, 3), (0, 86_400_000, 5_000_000_000), (7, 1 << 40, 1 << 31)]
    cases += [(30_000, 30_000 + (1 << 21) + 1, 1), (1, INT64_MAX, INT64_MAX)]
    requests, expected = [], []
    for low, high, groups in cases:
        for mine, sender in (("p", "s"), ("participant", "p"), ("é", "日")):
            asked = {"participant_id": mine, "sender_id": sender, "message_id": "m"}
            requests.append(sds("treq", **asked, t_min=low, t_max=high))
            expected.append({"offset_ms": digest_int(mine, "m") % (high - low) + low})
            asked["num_response_groups"] = str(groups)
            requests.append(sds("tresp", **asked, t_max=str(high)))
            distance = digest_int(mine) ^ digest_int(sender)
            same = digest_int(mine, "m") % groups == digest_int(sender, "m") % groups
            offset = distance * digest_int("m") % high
            expected.append({"offset_ms": offset, "in_group": same})
    assert ask(command, requests) == [("ok", reply) for reply in expected]


# --- filters of a given number of hashes ---

# SHA-256 over bits per element, joined by commas, 0 for refused: for k in 1..12, each entry of
# the table below 1 in ascending order, as error rate. As @waku/sds 0.0.8 answered it.
JS_ANSWERS = "cf90725ad1566cd46d456a9a012ec3f9b13813d450ad43238bd2ca2f0370abf2"
# k, error rate, bits per element of the JavaScript peer and of the Nim peer
FILTERS = (
    (12, 0.01, 15, 15), (8, 0.1, 9, 9), (10, 0.02, 12, 12), (7, 0.001, 16, 16), (3, 0.01, 13, 13),
    (3, 0.005, 20, 17), (3, 0.001, 33, 29), (3, 0.00072, 36, 32), (4, 0.0031, 15, 15),
    (1, 0.283, 3, 4),
)  # fmt: skip


@on_all
def test_bits_per_element_are_the_peers(command: list[str]) -> None:
    rates = [share / 1e9 for share in sorted({share for _, row in TABLE for share in row})]
    requests = [
        sds("bloom", capacity=1, error_rate=rate, k=k) for k in range(1, 13) for rate in rates
    ]
    bits = [str(reply.get("m_bits", 0)) for _, reply in ask(command, requests)]
    assert len(bits) == 3528 and hashlib.sha256(",".join(bits).encode()).hexdigest() == JS_ANSWERS
    requests = [sds("bloom", capacity=100, error_rate=e, k=k) for k, e, _, _ in FILTERS]
    replies = [(reply["k_hashes"], reply["m_bits"]) for _, reply in ask(command, requests)]
    assert replies == [(k, 100 * js) for k, _, js, _ in FILTERS]


def test_bits_per_element_are_the_nim_peers() -> None:
    requests = [nim("bloom", capacity=100, error_rate=e, k=k) for k, e, _, _ in FILTERS]
    replies = [(reply["k_hashes"], reply["m_bits"]) for _, reply in ask(PYTHON, requests)]
    assert replies == [(k, 100 * bits) for k, _, _, bits in FILTERS]


# --- whatever a line holds ---

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e300, 1e-300, 1 << 31, 1 << 63, 1 << 64, 10**12, 10**40, "",
    "0", "-1", "1_0", " 1", "+1", "00", "zz", "00 ", "é", "\ud800", "\x00", '\x7f\b\n"\\', [], {},
    [1], ["00"], {"a": 1}, "NaN", [[]], [None], [{}],
)  # fmt: skip
NOISE = b' ,:{}[]"\\0189-+.eEtfn\t\x80\xc3\xed'


def some(draw: random.Random) -> Request:
    """A request that makes sense."""

    def hexed(size: int) -> str:
        return draw.randbytes(size).hex()

    bsp = {"group_id": hexed(32), "timestamp": draw.choice([0, "77", 1 << 62]), "body": hexed(9)}
    entry = {"message_id": "é😀", "retrieval_hint": draw.choice([None, hexed(3)])}
    ids = {"sender_id": "a", "message_id": "b", "channel_id": "c"}
    times = {"participant_id": "p", **ids, "t_min": 3, "t_max": 700_000, "num_response_groups": 2}
    ccm = {"key": hexed(16), "nonce": hexed(13), "aad": hexed(2), "tag_size": 8}
    stream = draw.choice(["01000020", "a0001005c0"]) + hexed(34)
    by_three = {"pieces": [3, "1"]}
    profile = draw.choice(["bsp-1", "mvds-1", "mvds-nested", "mvds-5001"])
    return draw.choice([
        ("group_id", {"profile": "bsp-1", "client_id": hexed(32), "descriptor": hexed(5)}),
        ("message_id", {"profile": profile, **bsp}),
        ("encode", {"profile": profile, "acks": [hexed(32)], "messages": [bsp]}),
        ("decode", {"profile": "bsp-1", "wire": "01000020" + hexed(32)}),
        ("decode", {"profile": draw.choice(["mvds-1", "sds"]), "wire": "0a20" + hexed(32)}),
        ("feed", {"profile": draw.choice(["bsp-1", "compact-1"]), "stream": stream, **by_three}),
        ("encode", {"profile": "sds", **ids, "causal_history": [entry], "content": hexed(5)}),
        sds("bloom", capacity=50, error_rate=0.02, k=draw.choice([0, 3]), items=["a", "é"]),
        sds("hashn", item="😀", n=2, max=977),
        sds("treq", **times),
        sds("tresp", **times),
        ("blake2s", {"data": hexed(9), "key": hexed(4)}),
        ("hkdf", {"ikm": hexed(4), "size": 40}),
        ("ccm_seal", {**ccm, "plaintext": hexed(9)}),
        ("ccm_open", {**ccm, "ciphertext": hexed(19)}),
        ("cobs_decode", {"wire": "0401020300"[: draw.randrange(0, 11, 2)]}),
    ])  # fmt: skip


def twist(draw: random.Random, value: Any) -> None:
    """Put something odd where it does not belong, or leave a key out."""
    key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if isinstance(value, dict) and draw.random() < 0.15:
        del value[key]
    elif isinstance(value[key], dict | list) and value[key] and draw.random() < 0.6:
        twist(draw, value[key])
    else:
        value[key] = draw.choice(ODD)


def damaged(draw: random.Random, line: bytes) -> bytes:
    wrong = bytearray(line)
    at = draw.randrange(len(wrong))
    wrong[at : at + draw.randrange(2)] = bytes((draw.choice([*NOISE, draw.randrange(256)]),))
    return bytes(wrong).replace(b"\n", b"")


def lines_with(draw: random.Random, host_only: bool) -> bytes:
    lines = []
    for _ in range(FUZZ_LINES):
        verb, request = some(draw)
        for key, other in (("dialect", "sds-nim"), ("profile", draw.choice(["sds-nim", "bsp-0"]))):
            if host_only and key in request:
                request[key] = other
        if draw.random() < 0.7:
            twist(draw, request)
        text = json.dumps(request, ensure_ascii=draw.random() < 0.7)
        line = f"{verb} {text}".encode("utf-8", "surrogatepass")
        lines.append(damaged(draw, line) if draw.random() < 0.3 else line)
    return b"\n".join(lines) + b"\n"


def test_each_line_has_one_reply_the_same_on_all() -> None:
    lines = lines_with(random.Random(int(os.environ.get("SEED", "1"))), False)
    first, *others = [raw(command, lines) for command in COMMANDS.values()]
    asked = lines.split(b"\n")[:-1]
    assert len(first) == FUZZ_LINES
    for other in others:
        answers = zip(asked, first, other, strict=True)
        assert not [line for line, here, there in answers if here != there]
    assert sum(reply.startswith("ok ") for reply in first) > FUZZ_LINES // 5


def test_each_line_has_one_reply_on_a_host() -> None:
    replies = raw(PYTHON, lines_with(random.Random(2), True))
    assert len(replies) == FUZZ_LINES
    assert all(reply.startswith(("ok {", 'error {"kind": ')) for reply in replies)


def test_ids_of_compact1_are_those_of_bsp1() -> None:
    of_group = {"client_id": "11" * 32, "descriptor": "22"}
    of_message = {"group_id": "33" * 32, "timestamp": 7, "body": "44"}
    for verb, fields in (("group_id", of_group), ("message_id", of_message)):
        lines = [(verb, {"profile": each, **fields}) for each in ("bsp-1", "compact-1")]
        for command in COMMANDS.values():
            (kind, made), again = ask(command, lines)
            assert kind == "ok" and again == (kind, made)


def test_a_reply_is_json_in_ascii() -> None:
    text = "".join(chr(point) for point in (*range(0x20), 0x22, 0x5C, 0x7F, 0xE9, 0xFFFF, 0x1F600))
    asked = {"profile": "sds", "sender_id": text, "message_id": "m", "channel_id": "c"}
    [(_, made)] = ask(PYTHON, [("encode", asked)])
    line = f"decode {json.dumps({'profile': 'sds', 'wire': made['wire']})}\n"
    [reply] = {printed(command, line) for command in COMMANDS.values()}
    assert json.loads(reply.removeprefix("ok "))["sender_id"] == text
