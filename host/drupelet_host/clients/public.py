"""A public group: a topic string leads to it, and each member shares it with a few at a time.

Nobody coordinates: the hash of the string is the descriptor. In each period a member chooses at
random with whom it shares; from all others it takes messages in all the same. Over some periods
everybody has had a choice of everybody, while each sends `share_with` copies instead of all.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2s
from typing import TYPE_CHECKING

from drupelet.base.errors import CapacityError
from drupelet.engine.members import SHARED, VISIBLE
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


class RandomSharing:
    """Whom a public group is shared with: `share_with` of the peers, drawn anew by `turn`.

    draw: a number 0 <= n < its argument. share_with = 2 or more keeps the group connected with a
    high probability in each period, and over several ones surely.
    """

    def __init__(
        self, node: "Node", group: int, share_with: int, draw: Callable[[int], int]
    ) -> None:
        assert share_with > 0
        self._node = node
        self._group = group
        self._share_with = share_with
        self._draw = draw

    def turn(self, peers: Iterable[int]) -> list[int]:
        """Choose for the next period; whom (peer numbers).

        What is under way to a peer that is not chosen is left to others.
        """
        every = list(peers)
        chosen: list[int] = []
        rest = list(every)
        while rest and len(chosen) < self._share_with:
            chosen.append(rest.pop(self._draw(len(rest))))
        for peer in every:
            self._node.share(self._group, peer, SHARED if peer in chosen else VISIBLE)
        return chosen
