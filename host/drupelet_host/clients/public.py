"""A public group: a topic string leads to it, for the string's hash is the descriptor."""

from hashlib import blake2s

from drupelet.base.errors import CapacityError
from drupelet_host.home.client_ids import TOPIC_SIZE_MAX
from drupelet_host.home.toml_table import shown


def topic_descriptor(topic: str) -> bytes:
    """The descriptor of a topic's group: BLAKE2s of its UTF-8. Raises CapacityError."""
    try:
        text = topic.encode()
    except UnicodeEncodeError:
        raise CapacityError(f"topic {shown(topic)}: must be text in UTF-8") from None
    if not 0 < len(text) <= TOPIC_SIZE_MAX:
        raise CapacityError(f"a topic has 1 to {TOPIC_SIZE_MAX} bytes")
    return blake2s(text).digest()
