"""Whatever bytes arrive: a code or PeerError, never another exception, never growth.

100,000 streams for each parser: noise, and sound streams that were cut, joined, flipped, shifted.
The three MVDS tables have theirs in test_mvds.py, the engine behind a link in test_fuzz_links.py.
"""

import io
import os
import struct
from binascii import crc_hqx
from pathlib import Path

import pytest

import drupelet_transports.stick.stick as stick_module
from drupelet.base.errors import E_PEER, OK, PeerError
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.wire import bsp1
from drupelet.wire.bsp0 import records as bsp0
from drupelet.wire.protobuf import Reader
from drupelet_transports.board.mqtt_packet import PacketReader, payload_start
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max
from drupelet_transports.stick.stick import Stick
from mutations import STREAMS, streams

IDS = [bytes([n]) * 32 for n in range(1, 9)]


def record(version: int, kind: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", version, kind, len(payload)) + payload


def records(version: int) -> list[bytes]:
    """Sound streams of BSP records."""
    message = IDS[0] + bytes(7) + b"\x05" + b"\x01" + IDS[1] + b"payload"
    lists = [record(version, kind, b"".join(IDS[:n])) for kind in (0, 2, 3) for n in (1, 3)]
    one = record(version, 1, message)
    unknown = record(version, 9, b"new")
    return [*lists, one, lists[1] + one + lists[3] + unknown + one + lists[4], unknown + one]


class Sink:
    """Takes what a reader of records finds, and looks that it lies in the frame."""

    def __init__(self) -> None:
        self.end = 0
        self.found = [0, 0, 0, 0]
        self.sizes = 0

    def _id(self, kind: int, at: int) -> None:
        assert 0 <= at <= self.end - 32
        self.found[kind] += 1

    def on_ack(self, buf: bytearray, at: int) -> None:  # noqa: ARG002
        self._id(0, at)

    def on_gone(self, buf: bytearray, at: int) -> None:  # noqa: ARG002
        self._id(0, at)

    def on_offer(self, buf: bytearray, at: int) -> None:  # noqa: ARG002
        self._id(2, at)

    def on_request(self, buf: bytearray, at: int) -> None:  # noqa: ARG002
        self._id(3, at)

    def on_message(self, group, group_at, stamp, stamp_at, body, at, size) -> None:
        assert group is stamp is body
        assert 0 <= group_at <= self.end - 40 and stamp_at == group_at + 32
        assert at == group_at + 40 and at + size <= self.end and stamp[stamp_at] < 128
        self.found[1] += 1

    def count_record(self, sent: bool, kind: int, size: int) -> None:  # noqa: ARG002
        assert not sent
        self.sizes += size


def test_bsp1_records() -> None:
    sink = Sink()
    codes = {OK: 0, E_PEER: 0}
    frame = bytearray(FRAME_SIZE_MAX)
    for number, stream in streams("bsp1", records(1), FRAME_SIZE_MAX - 2):
        start = number % 3
        sink.end = start + len(stream)
        frame[start : sink.end] = stream
        sink.sizes = 0
        code = bsp1.parse(sink, frame, start, sink.end)
        codes[code] += 1
        assert sink.sizes <= len(stream) and (code != OK or sink.sizes == len(stream))
    assert min(codes.values()) > STREAMS // 10 and min(sink.found) > STREAMS // 10
    assert len(frame) == FRAME_SIZE_MAX


def test_bsp0_records() -> None:
    found = dict.fromkeys(range(6), 0)
    refused = 0
    more = [record(0, 4, b"\x00\x01"), record(0, 5, bytes(16))]
    for number, stream in streams("bsp0", records(0) + more, 4096):
        reader = bsp0.Reader()
        piece = number % 70 + 1
        read = 0
        try:
            for at in range(0, len(stream), piece):
                reader.push(stream[at : at + piece])
                while reader.next():
                    assert bsp0.is_well_formed(reader.kind, reader.payload)
                    found[reader.kind] += 1
                    read += 4 + len(reader.payload)
        except PeerError:
            refused += 1
        assert read <= len(stream)
    assert min(found.values()) > STREAMS // 50 and STREAMS // 20 < refused < STREAMS


def test_protobuf_fields() -> None:
    sound = [
        b"\x0a\x20" + IDS[0] + b"\x12\x20" + IDS[1],
        b"\x22\x2f\x0a\x20" + IDS[2] + b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x00",
        b"\xca\xb8\x02\x05hello\x09" + bytes(8) + b"\x0d" + bytes(4) + b"\x08\x96\x01",
    ]
    reader = Reader()
    ends = {0: 0, E_PEER: 0}
    kinds = dict.fromkeys((0, 1, 2, 5), 0)
    for number, stream in streams("protobuf", sound, 512):
        start = number % 3
        end = start + len(stream)
        buf = bytes(start) + stream + b"\x0a"
        reader.open(buf, start, end)
        at = start
        while (field := reader.next()) > 0:
            assert field < 1 << 29 and at < reader.start <= end
            at = reader.start + reader.size
            assert reader.size >= 0 and at <= end
            kinds[reader.kind] += 1
            reader.is_true()
        assert reader.next() == field and (field or at == end)
        ends[field] += 1
    assert min(ends.values()) > STREAMS // 10 and min(kinds.values()) > STREAMS // 10


def framed(frame: bytes) -> bytes:
    wire = bytearray(wire_size_max(len(frame)))
    return bytes(wire[: encode_into(wire, frame, len(frame))])


def test_frames_on_a_serial_line() -> None:
    size_max = 300
    frames = [b"\x40", bytes(range(200)), bytes(300), b"\xff" * 254, b"a\x00b" * 20]
    sound = [framed(frame) for frame in frames]
    decoder = Decoder(size_max)
    frame_size = len(decoder.frame)
    good = bytearray(b"\x00" + framed(b"after the noise"))
    found = damaged = strange = 0
    for number, stream in streams("framing", [*sound, sound[1] + sound[4]], 2048):
        at = 0
        while at < len(stream):
            after = decoder.feed(stream, at, len(stream))
            assert at < after <= len(stream)
            at = after
            if decoder.size:
                assert decoder.size <= size_max
                known = bytes(decoder.frame[: decoder.size]) in frames
                found += known
                # Zeros behind a frame and its CRC leave that at zero: it checks them not.
                inside = bytes(decoder.frame[: decoder.size + 2]).rstrip(b"\x00")[:-2]
                strange += not known and inside not in frames
        if number % 64 == 0:
            at = decoder.feed(good, 0, len(good))
            assert decoder.feed(good, at, len(good)) == len(good)
            assert decoder.frame[: decoder.size] == b"after the noise"
        damaged = decoder.damaged
    assert found > STREAMS // 8 and damaged > STREAMS // 4
    assert len(decoder.frame) == frame_size, "it did not grow"
    assert strange <= 5, "16 bits of CRC let one damaged frame in 65,536 pass"


def packet(kind: int, body: bytes) -> bytes:
    size = (
        bytes([len(body)]) if len(body) < 128 else bytes([len(body) % 128 | 128, len(body) // 128])
    )
    return bytes([kind]) + size + body


def test_mqtt_packets() -> None:
    topic = b"\x00\x13d/000000a1/000000b2"
    sound = [
        packet(0x20, b"\x00\x00"),
        packet(0x90, b"\x00\x01\x00"),
        packet(0xD0, b""),
        packet(0x30, topic + bytes(200)),
        packet(0x30, topic + b"x") + packet(0x31, topic + bytes(400)),
        packet(0x32, topic + b"\x00\x07q"),
    ]
    reader = PacketReader(256)
    body = reader.body
    ready = broken = bad_topics = 0
    for number, stream in streams("mqtt", sound, 2048):
        piece = number % 90 + 10
        for start in range(0, len(stream), piece):
            end = min(start + piece, len(stream))
            at = start
            while at < end and not reader.broken:
                after = reader.feed(stream, at, end)
                assert at < after <= end
                at = after
                if reader.ready:
                    ready += 1
                    assert reader.size <= len(body)
                    payload_at = payload_start(reader.body, reader.size)
                    assert payload_at == -1 or 2 <= payload_at <= reader.size
                    bad_topics += payload_at < 0
                    reader.release()
        if reader.broken:
            broken += 1
        if reader.broken or number % 8 == 0:
            reader.reset()  # the connection ends with what breaks MQTT
    assert reader.body is body and len(body) == 256
    assert ready > STREAMS // 4 and broken > STREAMS // 500 and reader.skipped > STREAMS // 50
    assert bad_topics > STREAMS // 50


def bundle(number: int, frames: list[bytes]) -> bytes:
    """A bundle of a stick as docs/SPEC.md 7.3 draws it."""
    head = b"DRP1" + b"\xaa\x00\x00\x01" + b"\xbb\x00\x00\x02" + struct.pack(">II", number, 7)
    parts = [head] + [len(frame).to_bytes(2, "big") + frame for frame in [*frames, b""]]
    return b"".join(part + crc_hqx(part, 0xFFFF).to_bytes(2, "big") for part in parts)


def test_bundles_on_a_stick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are real, contents come from memory: 100,000 files would be what is measured."""
    count = 64
    folder = tmp_path / "DRUPELET/BB000002/AA000001"
    folder.mkdir(parents=True)
    for number in range(1, count + 1):
        (folder / f"{number:08X}.DRP").write_bytes(b"")
    contents: dict[int, bytearray] = {}
    monkeypatch.setattr(
        stick_module, "open", lambda path, _: io.BytesIO(contents[int(path[-12:-4], 16)]),
        raising=False,
    )  # fmt: skip
    stick = Stick(str(tmp_path), b"\xbb\x00\x00\x02")
    frame = bytearray(FRAME_SIZE_MAX)
    sound = [bundle(1, [b"x"]), bundle(1, [b"frame", bytes(300), b"\xff" * 90]), bundle(1, [])]
    written = {b"x", b"frame", bytes(300), b"\xff" * 90}
    opened = frames = complete = strange = 0
    for number, stream in streams("stick", sound, 2048):
        place = number % count + 1
        if stream[12:16] == b"\x00\x00\x00\x01" and len(stream) > 22 and number % 16:
            # As if it had been written under its name.
            stream[12:16] = place.to_bytes(4, "big")
            stream[20:22] = crc_hqx(bytes(stream[:20]), 0xFFFF).to_bytes(2, "big")
        contents[place] = stream
        if place < count:
            continue
        reader = stick.reader(b"\xaa\x00\x00\x01", 0)
        while reader.next():
            opened += 1
            read = 22
            while (size := reader.read_into(frame)) > 0:
                assert size <= FRAME_SIZE_MAX
                frames += 1
                strange += bytes(frame[:size]) not in written
                read += size + 4
            assert size == OK and read <= len(contents[reader.number])
            complete += reader.complete
        reader.close()
        assert reader.code == OK
    assert len(frame) == FRAME_SIZE_MAX and len(os.listdir(folder)) == count
    assert opened > STREAMS // 4 and frames > STREAMS // 4
    assert STREAMS // 10 < complete < opened
    assert strange <= 5, "16 bits of CRC let one damaged frame in 65,536 pass"
    assert stick.damaged > STREAMS // 10 and stick.foreign > STREAMS // 200
