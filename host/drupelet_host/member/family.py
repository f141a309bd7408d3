"""What a home's readings are: a group of one id family for life (`family` in drupelet.toml).

bsp is the default client's (docs/SPEC.md 4); mvds the same bodies as MVDS has them, parents as
metadata, timestamps in seconds; bsp-0 Briar's, whose bodies are the payload alone. Loaded by
commands that start no node; who does has `readings_group`.
"""

from typing import TYPE_CHECKING

from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import HEAD_PARENTS
from drupelet.wire.bsp0 import records as bsp0
from drupelet_host.base import clock
from drupelet_host.clients.default_body import split_body
from drupelet_host.clients.public import topic_descriptor
from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID
from drupelet_host.home.config import FAMILY_BSP_0_NAME, FAMILY_MVDS_NAME, Config

if TYPE_CHECKING:
    from drupelet.clients.default import Author

# The name of our client among Briar's, and its version.
BSP_0_CLIENT = "drupelet.readings"
BSP_0_VERSION = 0


def descriptor_of(settings: Config) -> bytes:
    """Of a public group, to which a topic leads, its hash; else the group's text."""
    if settings.client == PUBLIC_CLIENT_ID:
        return topic_descriptor(settings.group)
    return settings.group.encode()


def group_id(settings: Config) -> bytes:
    """The 32-byte id of the readings. MVDS leaves it open: there it is as BSP's."""
    descriptor = descriptor_of(settings)
    if settings.family == FAMILY_BSP_0_NAME:
        return bsp0.group_id(BSP_0_CLIENT, BSP_0_VERSION, descriptor)
    id = bytearray(ID_SIZE)
    group_id_into(id, settings.client or READINGS_CLIENT_ID, descriptor, len(descriptor))
    return bytes(id)


def body_of(settings: Config, author: "Author", payload: bytes) -> bytes:
    """The stored body of the next message with a payload."""
    if settings.family == FAMILY_BSP_0_NAME:
        return payload
    size = author.compose(payload, len(payload))
    assert size > 0, "mailbox.post checked the payload's size"
    return bytes(author.body[:size])


def stamp_of(settings: Config, timestamp: bytes, late: int = 0) -> bytes:
    """A time of ours, 8 bytes of ms, as a message of the family carries it; `late` units later."""
    ms = int.from_bytes(timestamp)
    if settings.family == FAMILY_MVDS_NAME:
        return (ms // 1000 + late).to_bytes(8, "little")
    return clock.timestamp8(ms + late)


def timestamp_of(settings: Config, stamp: bytes) -> bytes:
    """The reverse: what a message carries, as 8 bytes of ms."""
    if settings.family == FAMILY_MVDS_NAME:
        return clock.timestamp8(min(int.from_bytes(stamp, "little") * 1000, 2**64 - 1))
    return stamp


def split(settings: Config, body: bytes) -> tuple[list[bytes], bytes]:
    """Take a stored body apart: dependency ids and payload."""
    if settings.family == FAMILY_BSP_0_NAME:
        return [], body
    if settings.family == FAMILY_MVDS_NAME and body:
        body = bytes((body[0] & HEAD_PARENTS,)) + body[1:]
    return split_body(body)
