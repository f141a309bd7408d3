"""docs/SPEC.md, section 12: its examples are what is sent, its numbers those of the code."""

import re

from drupelet.base import limits
from drupelet.base.hashes_sds import Identity
from drupelet.wire.sds import message as sds
from drupelet.wire.sds.bloom import Bloom, modulo, parameters
from drupelet.wire.sds.nim import decode, encode, from_sds
from drupelet_host.store.schema import CHANNELS
from helpers_channel import START_MS, Talker, wire
from spec import spec_text

PAGE = spec_text()
SECTION = re.search(r"^## 12 Channels.*?(?=^## |\Z)", PAGE, re.M | re.S)
assert SECTION
TEXT = SECTION.group()


def test_the_first_message() -> None:
    ann = Talker()
    assert ann.publish(b"hi") > 0
    [said] = ann.say()
    shown = re.search(r"^0a03616e6e\n.*?(?=^```)", TEXT, re.M | re.S)
    assert shown
    drawn = "".join(shown.group().split())
    assert said.wire.hex() == drawn


def test_keys_bits_and_times() -> None:
    key = bytearray(8)
    Bloom(100, 10, 7).key_into(key, 0, b"hello", 0, 5)
    assert f"`{key.hex()}`" in TEXT
    first, step = modulo(key, 0, 4, 1000), modulo(key, 4, 4, 1000)
    bits = ", ".join(str((first + index * step) % 1000) for index in range(7))
    assert bits in " ".join(TEXT.split())
    ann = Identity(b"ann")
    assert f"{ann.t_req_ms(b'hello', 0, 5, 30_000, 300_000):,} ms" in TEXT
    assert f"{ann.t_resp_ms(b'bob', 0, 3, b'hello', 0, 5, 300_000):,} ms" in TEXT


def test_one_message_in_both_dialects() -> None:
    frame = wire(
        b"m2", sender=b"bob", content=b"yes", lamport=START_MS + 7, causal=(b"m1",), author=b"ann"
    )
    assert f"\n{frame.hex()}\n" in TEXT
    message = from_sds(bytes(frame))
    message.lamport = START_MS // 1000
    other = encode(message)
    assert f"\n{other.hex()}\n" in TEXT and decode(other).sender_id == b"bob"


def test_numbers() -> None:
    for name in ("SENDER_ID", "MESSAGE_ID", "CHANNEL_ID", "CONTENT"):
        assert f"{name.lower()} {getattr(sds, name)}" in TEXT
    assert f"lamport_timestamp {sds.LAMPORT}" in TEXT and f"bloom_filter {sds.BLOOM}" in TEXT
    assert f"causal_history {sds.CAUSAL}, repair_request {sds.REPAIR}" in TEXT
    bounds = (limits.CHANNEL_NAME_MAX, limits.CHANNEL_MESSAGE_ID_MAX, limits.CHANNEL_NAME_MAX)
    assert "1 to {}, 1 to {} and 0 to {} bytes".format(*bounds) in TEXT
    assert f"more than {limits.CHANNEL_HISTORY_MAX} entries" in TEXT
    assert parameters(100, 0.01) == [7, 10] and parameters(10_000, 0.001) == [10, 15]
    assert f"0x{CHANNELS.application_id:08x}" in TEXT
