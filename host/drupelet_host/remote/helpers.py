"""A mailbox and the history of channels at an agent that serves its store (docs/SPEC.md 15.4).

Helpers(mail, history)      what a `StoreService` is asked beside its store
RemoteMail(client)          the MailServer of another host
RemoteHistory(client)       its StoreNode
"""

import sqlite3
import time
from collections.abc import Iterable

from drupelet.base.errors import PeerError, StorageError
from drupelet.wire.protobuf import VARINT
from drupelet_host.base import clock
from drupelet_host.channel.store_node import StoreNode
from drupelet_host.remote.content_store import CONTENT_SIZE_MAX
from drupelet_host.remote.log_bytes import fields, put_field, put_varint
from drupelet_host.remote.mailbox import Kept, MailServer
from drupelet_host.remote.store_service import (
    ASK,
    HINTED,
    KEEP,
    MESSAGE,
    SINCE,
    Fields,
    StoreClient,
)

# What came longer ago goes with the next message that comes.
MAIL_KEPT_S = 30 * 86_400
# Who moves by more than this from one message to the next is a clock that was set.
_STEP_S = 86_400
_LAMPORT_SIZE = 8
# Entries and seconds are SQLite's: no number of a peer's is longer.
_NUMBER_MAX = (1 << 62) - 1


def _all(call_fields: Fields, wanted: int) -> list[bytes]:
    return [
        value for number, value in call_fields if number == wanted and isinstance(value, bytes)
    ]


def _one(call_fields: Fields, wanted: int) -> bytes:
    return b"".join(_all(call_fields, wanted)[-1:])


def _number(call_fields: Fields, wanted: int, instead: int = 0) -> int:
    numbers = [
        value for number, value in call_fields if number == wanted and isinstance(value, int)
    ]
    return min(numbers[-1] if numbers else instead, _NUMBER_MAX)


def _put_number(out: bytearray, number: int, value: int) -> None:
    put_varint(out, number << 3 | VARINT)
    put_varint(out, value)


def _list(parts: Iterable[bytes]) -> bytes:
    """As many as one answer holds, the first ones; who asks goes on behind the last."""
    out = bytearray()
    for part in parts:
        if out and len(out) + len(part) > CONTENT_SIZE_MAX:
            break
        put_field(out, 1, part)
    return bytes(out)


class Helpers:
    """Does the verbs 6 to 10. history: of the agent's channels, None: it has none."""

    def __init__(self, mail: MailServer, history: StoreNode | None) -> None:
        self._mail = mail
        self._history = history
        self._ahead_s = clock.wall_ms() // 1000 - int(time.monotonic())

    def do(self, verb: int, call_fields: Fields) -> bytes | None:
        """See `drupelet_host.remote.store_service.Helper`."""
        try:
            return self._do(verb, call_fields)
        except sqlite3.Error as error:
            raise StorageError(f"what is kept for others cannot be read ({error})") from error

    def _do(self, verb: int, call_fields: Fields) -> bytes | None:
        if verb == KEEP:
            now_s = clock.wall_ms() // 1000
            self._follow_clock(now_s)
            # What came by a clock that nobody had set is bounded by its number alone.
            self._mail.expire(now_s - MAIL_KEPT_S, clock.SET_MS // 1000)
            return b"" if self._mail.keep(_one(call_fields, 1), now_s) else None
        if verb == ASK:
            found = self._mail.ask(
                _all(call_fields, 1),
                _number(call_fields, 2),
                _number(call_fields, 3, _NUMBER_MAX),
                _number(call_fields, 4),
            )
            return _list(_kept(kept) for kept in found)
        if verb not in (MESSAGE, HINTED, SINCE):
            raise PeerError("no such verb")
        return (
            self._recall(self._history, verb, call_fields) if self._history is not None else None
        )

    def _follow_clock(self, now_s: int) -> None:
        """A clock that was behind and is set now, as of a board without a battery: what came
        before that is as young as it was."""
        ahead_s = now_s - int(time.monotonic())
        stepped_s = ahead_s - self._ahead_s
        self._ahead_s = ahead_s
        if stepped_s > _STEP_S:
            self._mail.shift(now_s - stepped_s, stepped_s)

    @staticmethod
    def _recall(history: StoreNode, verb: int, call_fields: Fields) -> bytes | None:
        channel, what = _one(call_fields, 1), _one(call_fields, 2)
        if verb == SINCE:
            if len(what) != _LAMPORT_SIZE:
                raise PeerError("not a Lamport timestamp")
            return _list(history.since(channel, int.from_bytes(what), _one(call_fields, 3)))
        if verb == MESSAGE:
            frame = history.by_id(channel, what)
        else:
            frame = history.by_hint(channel, what)
        return _list([frame]) if frame is not None else None


def _kept(kept: Kept) -> bytes:
    out = bytearray()
    _put_number(out, 1, kept.entry)
    _put_number(out, 2, kept.came_s)
    put_field(out, 3, kept.envelope)
    return bytes(out)


class RemoteMail:
    """As a `remote.mailbox.Mailbox`; when something came is told by the other's clock."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def keep(self, envelope: bytes, time_s: int) -> bool:  # noqa: ARG002 - the other's clock
        """Have an envelope kept; False: it is held already."""
        content = bytearray()
        put_field(content, 1, envelope)
        return self._client.call(KEEP, bytes(content)) is not None

    def ask(
        self, topics: Iterable[bytes], from_s: int = 0, to_s: int = 1 << 40, after: int = 0
    ) -> list[Kept]:
        """Some of what came for these topics in this time, behind entry `after`."""
        content = bytearray()
        for topic in topics:
            put_field(content, 1, topic)
        for number, value in ((2, from_s), (3, to_s), (4, after)):
            _put_number(content, number, value)
        parts = _all(self._client.call(ASK, bytes(content)) or [], 1)
        try:
            answered = [list(fields(part)) for part in parts]
        except PeerError as error:
            raise StorageError("the mailbox answers something else") from error
        return [
            Kept(_number(call_fields, 1), _number(call_fields, 2), _one(call_fields, 3))
            for call_fields in answered
        ]


class RemoteHistory:
    """As a StoreNode that is asked. Raises StorageError when no answer comes."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def _ask(self, verb: int, *values: bytes) -> list[bytes]:
        content = bytearray()
        for number, value in enumerate(values, 1):
            put_field(content, number, value)
        return _all(self._client.call(verb, bytes(content)) or [], 1)

    def by_id(self, channel: bytes, message_id: bytes) -> bytes | None:
        """A message as a frame of dialect `sds`, or None."""
        return next(iter(self._ask(MESSAGE, channel, message_id)), None)

    def by_hint(self, channel: bytes, hint: bytes) -> bytes | None:
        """The message for which somebody gave this retrieval hint, or None."""
        return next(iter(self._ask(HINTED, channel, hint)), None)

    def since(self, channel: bytes, lamport: int, after: bytes = b"") -> list[bytes]:
        """Some messages in the order of the log behind (lamport, id)."""
        return self._ask(SINCE, channel, lamport.to_bytes(_LAMPORT_SIZE), after)
