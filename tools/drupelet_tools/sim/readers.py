"""Readers of frames, written from the specifications alone: they use nothing of the core.

They read the frames that carry whole ids: records of `bsp-1`, payloads of `mvds-1`, content ids of
segments. Frames of `compact-1` carry prefixes and numbers, which only a reader with a memory can
resolve: see `compact.py`.
"""

import hashlib
import struct
from dataclasses import dataclass, field

ACK, MESSAGE, OFFER, REQUEST = range(4)
_BSP_1, _MVDS_1 = 0x40, 0x41
SEGMENT = 0x50
STATE = 0x51
WAKE = 0x52


@dataclass(slots=True)
class FrameIds:
    """The ids that one frame carries; `groups` are those of its messages."""

    acks: list[bytes] = field(default_factory=list)
    offers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)
    segments: list[bytes] = field(default_factory=list)  # first 8 bytes of a content id
    sums: list[bytes] = field(default_factory=list)  # of greetings: b"" if nothing is outstanding


def bsp_hash(*parts: bytes) -> bytes:
    """HASH of BSP v1 section 1.3: BLAKE2s over length-prefixed parts."""
    joined = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hashlib.blake2s(joined).digest()


def bsp_group_id(client_id: bytes, descriptor: bytes) -> bytes:
    """A group's id (BSP v1 section 2.2)."""
    return bsp_hash(b"GROUP_ID", client_id, descriptor)


def bsp_message_id(group: bytes, timestamp: bytes, body: bytes) -> bytes:
    """A message's id (BSP v1 section 2.3)."""
    return bsp_hash(b"MESSAGE_ID", group, timestamp, body)


def mvds_message_id(group: bytes, timestamp: bytes, body: bytes) -> bytes:
    """A message's id as the MVDS peers make it: SHA-256, plain concatenation."""
    return hashlib.sha256(b"MESSAGE_ID" + group + timestamp + body).digest()


def read(frame: bytes) -> FrameIds | None:
    """The ids in a frame; None if its kind is unknown here or it is malformed."""
    kind = frame[0]
    if kind == _BSP_1:
        return _bsp(frame, 1)
    if kind == _MVDS_1:
        return _mvds(frame[1:])
    if kind == SEGMENT:
        return FrameIds(segments=[frame[1:9]])
    return None


def _bsp(frame: bytes, at: int) -> FrameIds | None:
    frame_ids = FrameIds()
    lists = (frame_ids.acks, frame_ids.messages, frame_ids.offers, frame_ids.requests)
    while at + 4 <= len(frame):
        kind = frame[at + 1]
        size = frame[at + 2] << 8 | frame[at + 3]
        end = at + 4 + size
        if frame[at] != 1 or end > len(frame):
            return None
        if kind == MESSAGE:
            group = frame[at + 4 : at + 36]
            frame_ids.groups.append(group)
            frame_ids.messages.append(
                bsp_message_id(group, frame[at + 36 : at + 44], frame[at + 44 : end])
            )
        elif kind < 4:
            lists[kind].extend(frame[i : i + 32] for i in range(at + 4, end, 32))
        at = end
    return frame_ids


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message; integers as 8 bytes little-endian."""
    fields: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            fields.append((tag >> 3, data[at : at + value]))
            at += value
        else:
            fields.append((tag >> 3, (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")))
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _mvds(data: bytes) -> FrameIds:
    frame_ids = FrameIds()
    lists = {1: frame_ids.acks, 2: frame_ids.offers, 3: frame_ids.requests}
    for number, value in _fields(data):
        if number in lists:
            lists[number].append(value)
        elif number == 4:
            inside = dict(_fields(value))
            group = inside.get(1, b"")
            frame_ids.groups.append(group)
            frame_ids.messages.append(
                mvds_message_id(group, inside.get(2, bytes(8)), inside.get(3, b""))
            )
    return frame_ids
