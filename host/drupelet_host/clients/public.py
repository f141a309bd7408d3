"""A public group: a topic string leads to it, for the string's hash is the descriptor."""

from hashlib import blake2s
from typing import TYPE_CHECKING

from drupelet.base.errors import CapacityError
from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID, TOPIC_SIZE_MAX
from drupelet_host.home.toml_table import shown

if TYPE_CHECKING:
    from drupelet.node import Node


def topic_descriptor(topic: str) -> bytes:
    """The descriptor of a topic's group: BLAKE2s of its UTF-8. Raises CapacityError."""
    try:
        text = topic.encode()
    except UnicodeEncodeError:
        raise CapacityError(f"topic {shown(topic)}: must be text in UTF-8") from None
    if not 0 < len(text) <= TOPIC_SIZE_MAX:
        raise CapacityError(f"a topic has 1 to {TOPIC_SIZE_MAX} bytes")
    return blake2s(text).digest()


def join_topic(node: "Node", topic: str) -> int:
    """Become a member of a topic's group; its number. Raises CapacityError."""
    return node.join(PUBLIC_CLIENT_ID, topic_descriptor(topic))
