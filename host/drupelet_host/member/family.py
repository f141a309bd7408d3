"""What a home's readings are: a group of one id family for life (`family` in drupelet.toml).

bsp is the default client's (docs/SPEC.md 4); mvds the same bodies as MVDS has them, parents as
metadata, timestamps in seconds; bsp-0 Briar's, whose bodies are the payload alone. Loaded by
commands that start no node; who does has `readings_group`.
"""

from typing import TYPE_CHECKING

from drupelet.base.errors import CapacityError
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import HEAD_EPHEMERAL, HEAD_PARENTS
from drupelet.wire.bsp0 import records as bsp0
from drupelet_host.base import clock
from drupelet_host.clients.default_body import split_body
from drupelet_host.clients.public import topic_descriptor
from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID
from drupelet_host.home.config import FAMILY_BSP_0_NAME, FAMILY_MVDS_NAME, Config
from drupelet_host.home.lifetime import (
    EPHEMERAL_LIFETIME,
    HEAD_SIZE,
    Lifetime,
    lifetime,
    lifetime_of,
)
from drupelet_host.store.outbox import PAYLOAD_SIZE_MAX

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
    """The stored body of the next message with a payload, as `payload_of` makes one."""
    if settings.family == FAMILY_BSP_0_NAME:
        return payload
    if settings.has_lifetimes and lifetime_of(payload) is None:
        # It was put while drupelet.toml named another client.
        payload = payload_of(settings, payload)
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
    """Take a stored body apart: dependency ids and what its author wrote."""
    if settings.family == FAMILY_BSP_0_NAME:
        return [], body
    if settings.family == FAMILY_MVDS_NAME and body:
        body = bytes((body[0] & HEAD_PARENTS,)) + body[1:]
    dependencies, payload = split_body(body)
    return dependencies, payload[HEAD_SIZE:] if settings.has_lifetimes else payload


def lifetime_in(settings: Config, body: bytes) -> Lifetime:
    """What becomes of a message with a stored body."""
    if settings.has_lifetimes:
        return lifetime_of(split_body(body)[1]) or Lifetime()
    is_mvds = settings.family == FAMILY_MVDS_NAME
    return EPHEMERAL_LIFETIME if is_mvds and body and body[0] & HEAD_EPHEMERAL else Lifetime()


def payload_of(settings: Config, content: bytes, lifetime: Lifetime | None = None) -> bytes:
    """The payload of a message of ours with this content; by default it stays as long as
    drupelet.toml says. Raises CapacityError where the group does not have such lifetimes."""
    if not settings.has_lifetimes:
        if lifetime is not None and lifetime.kind:
            raise CapacityError(
                'messages of this group cannot explode: that needs client = "exploding" in'
                " drupelet.toml, at every member and before there are messages"
            )
        return content
    return (default_lifetime(settings) if lifetime is None else lifetime).head() + content


def default_lifetime(settings: Config) -> Lifetime:
    """What becomes of a message of ours of which nobody says otherwise."""
    return lifetime(settings.explode_s, settings.explode_read)


def content_max(settings: Config) -> int:
    """The longest content of a message."""
    return PAYLOAD_SIZE_MAX - (HEAD_SIZE if settings.has_lifetimes else 0)


def ephemeral_body(settings: Config, content: bytes) -> bytes:
    """The stored body of an ephemeral message, which depends on nothing. Raises CapacityError."""
    if settings.has_lifetimes:
        return b"\0" + EPHEMERAL_LIFETIME.head() + content
    if settings.family == FAMILY_MVDS_NAME:
        return bytes((HEAD_EPHEMERAL,)) + content
    raise CapacityError(
        'messages of this group cannot be ephemeral: that needs client = "exploding" or family'
        f' = "{FAMILY_MVDS_NAME}" in drupelet.toml, at every member and before there are messages'
    )
