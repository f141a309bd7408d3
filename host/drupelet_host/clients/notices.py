"""Notices: each device says something about itself, and only its newest word counts.

    payload: device id [4], then the content, a protobuf

A group of its own per kind of notice. The newest by timestamp, then by id, is the same at every
member; what its sender has replaced is deleted, which leaves its id and nothing else.

A notice does not prove who wrote it: a member may say something in another device's name. So what
this device itself published is kept apart from what others say about it (`own`), what a sender
says counts only while it is a member, and a sender may speak for few devices that are no members.
"""

from collections.abc import Mapping
from typing import NamedTuple

from drupelet import host_api
from drupelet.base.errors import CapacityError, check
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.node import Node
from drupelet.store.states import STATE_DELIVERED
from drupelet_host.base import clock

DEVICE_SIZE = 4
# Devices that are no members here, of which one sender may speak: members of members, whom `learn`
# may add. With the longest content they take 64 KB of memory for each sender.
STRANGERS_PER_SENDER_MAX = 16
CONTENT_SIZE_MAX = 4096
# A timestamp that is further ahead of a clock which was set was invented to be the last word for
# ever. A member's clock may be a year off.
AHEAD_MS_MAX = 366 * 86_400_000
# The last millisecond of the year 9999, where our own clock was never set.
TIMESTAMP_MS_MAX = 253_402_300_799_999
# The store's number for ourselves as a sender.
_OURS = 0


class _Notice(NamedTuple):
    """In the order in which a device's notices replace each other."""

    timestamp: bytes
    id: bytes
    handle: int
    content: bytes


class Notices:
    """One group of notices; `turn` after events.

    roster: the members now: id by the number under which the store knows a sender.
    latest: device id -> content, the newest notice about it, whoever wrote that.
    ignored: notices that did not count.
    """

    def __init__(
        self, node: Node, client_id: bytes, descriptor: bytes, roster: Mapping[int, bytes]
    ) -> None:
        self._node = node
        self._roster = roster
        self.group = node.join(client_id, descriptor)
        self.latest: dict[bytes, bytes] = {}
        self.ignored = 0
        self._known: dict[int, bytes] = {}  # the roster as of the last look
        self._words: dict[int, dict[bytes, _Notice]] = {}  # by sender: its newest about a device
        self._looked = 0

    def own(self, device: bytes) -> bytes:
        """The newest content that this device itself published about `device`; b"" for none."""
        notice = self._words.get(_OURS, {}).get(device)
        return notice.content if notice is not None else b""

    def say(self, device: bytes, content: bytes, timestamp: bytes, now_ms: int) -> None:
        """Publish our newest word, unless it is the newest already. Raises CapacityError."""
        assert len(device) == DEVICE_SIZE and len(content) <= CONTENT_SIZE_MAX
        self.turn()
        if self.latest.get(device) == content == self.own(device):
            return
        newest = self._newest(device)
        if newest is not None and newest.timestamp >= timestamp:  # of a clock that was ahead
            timestamp = (int.from_bytes(newest.timestamp) + 1).to_bytes(TIMESTAMP_SIZE)
        if is_invented(timestamp):
            raise CapacityError(
                f"{device.hex()}: no notice can be newer than one that is there; set the clocks"
            )
        body = b"\x00" + device + content
        check(
            self._node.publish(self.group, body, len(body), timestamp, now_ms),
            "no room for another notice",
        )
        self.turn()

    def turn(self) -> bool:
        """Look at what entered the log since; True when some device says something new."""
        changed = self._known != self._roster
        if changed:
            # What a sender said counts while it is a member: look at the whole log anew.
            self._known = dict(self._roster)
            self.latest.clear()
            self._words.clear()
            self._looked = 0
        for message in host_api.messages(self._node.store, self._looked):
            self._looked = message.handle
            if message.group == self.group and message.state == STATE_DELIVERED:
                changed |= self._take(message)
        return changed

    def _take(self, message: host_api.Message) -> bool:
        source, timestamp = message.source, message.timestamp
        if source != _OURS and source not in self._known:
            return False  # it may be a member again: its notices stay in the log
        body = host_api.body(self._node.store, message)
        if not body:
            return False
        at = 1 + body[0] * ID_SIZE
        device, content = body[at : at + DEVICE_SIZE], body[at + DEVICE_SIZE :]
        words = self._words.setdefault(source, {})
        is_notice = len(device) == DEVICE_SIZE and len(content) <= CONTENT_SIZE_MAX
        if not is_notice or is_invented(timestamp) or not self._has_room(source, words, device):
            self.ignored += 1
            self._node.delete(message.handle)
            return False
        notice = _Notice(timestamp, message.id, message.handle, content)
        held = words.get(device)
        if held is not None:
            self._node.delete(min(held, notice).handle)
            if held > notice:
                return False
        words[device] = notice
        newest = self._newest(device)
        assert newest is not None
        self.latest[device] = newest.content
        return newest == notice

    def _has_room(self, source: int, words: dict[bytes, _Notice], device: bytes) -> bool:
        """Members and what we publish always have room; of strangers a sender may name few."""
        members = self._known.values()
        if source == _OURS or device in words or device in members:
            return True
        return sum(known not in members for known in words) < STRANGERS_PER_SENDER_MAX

    def _newest(self, device: bytes) -> _Notice | None:
        """The newest notice about a device."""
        words = (words[device] for words in self._words.values() if device in words)
        return max(words, default=None)


def is_invented(timestamp: bytes) -> bool:
    """True for a time that no clock of a member shows."""
    now_ms = clock.wall_ms()
    limit_ms = now_ms + AHEAD_MS_MAX if now_ms >= clock.SET_MS else TIMESTAMP_MS_MAX
    return int.from_bytes(timestamp) > limit_ms
