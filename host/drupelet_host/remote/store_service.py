"""A remote store over any carrier: an agent answers, others ask (docs/SPEC.md 15.4).

    service = StoreService(SqliteRemoteStore(connection), key)      answer(frame) -> frames
    client = StoreClient(exchange, key, own_id)                     a RemoteStore

A call is cut into frames and carries a tag of 16 bytes: who has no key is not answered. Frames may
get lost; then the whole call is asked again, which is harmless for each of the verbs.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from drupelet.base.errors import CapacityError, DrupeletError, PeerError, StorageError
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_host.remote.content_store import ADDRESS_SIZE, CONTENT_SIZE_MAX, RemoteStore
from drupelet_host.remote.log_bytes import fields, put_field

KIND_STORE = 0x55
ADD, GET, DROP, UPDATE, FETCH = range(1, 6)
# Of `helpers`: a mailbox, and the history of channels.
KEEP, ASK, MESSAGE, HINTED, SINCE = range(6, 11)
ANSWER = 0x80
# What became of it.
_DONE, _ABSENT, _FULL, _FAILED = range(4)
_CLIENT_SIZE = 4
# Kind, client, number of the call, index of the frame, how many there are.
_HEAD_SIZE = 1 + _CLIENT_SIZE + 4 + 1 + 1
_PIECE_SIZE = FRAME_SIZE_MAX - _HEAD_SIZE
_TAG_SIZE = 16
FRAMES_MAX = (CONTENT_SIZE_MAX + 300) // _PIECE_SIZE + 1
# Calls that come in piece by piece at once; the oldest goes.
CALLS_MAX = 8
# How often a call is asked before its store counts as absent.
TRIES_MAX = 4
KEY_SIZE = 32


def _tag(key: bytes, head: bytes, content: bytes) -> bytes:
    return hmac.digest(key, head + content, "sha256")[:_TAG_SIZE]


def frames_of(key: bytes, client: bytes, number: int, content: bytes) -> list[bytes]:
    """A call or answer as frames."""
    head = bytes((KIND_STORE,)) + client + number.to_bytes(4)
    whole = content + _tag(key, head, content)
    count = -(-len(whole) // _PIECE_SIZE)
    assert count <= FRAMES_MAX
    return [
        head + bytes((row, count)) + whole[row * _PIECE_SIZE : (row + 1) * _PIECE_SIZE]
        for row in range(count)
    ]


@dataclass
class _Parts:
    count: int
    pieces: dict[int, bytes] = field(default_factory=dict)


class Assembler:
    """Puts calls together again, a bounded number at once. `refused`: frames of no holder."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._calls: OrderedDict[bytes, _Parts] = OrderedDict()
        self.refused = 0

    def take(self, frame: bytes) -> tuple[bytes, int, bytes] | None:
        """Client, number and content once a call is whole."""
        head = frame[: _HEAD_SIZE - 2]
        if len(frame) <= _HEAD_SIZE or len(frame) > FRAME_SIZE_MAX or frame[0] != KIND_STORE:
            self.refused += 1
            return None
        row, count = frame[_HEAD_SIZE - 2 : _HEAD_SIZE]
        if not row < count <= FRAMES_MAX:
            self.refused += 1
            return None
        parts = self._calls.get(head)
        if parts is None or parts.count != count:
            parts = self._calls[head] = _Parts(count)
            while len(self._calls) > CALLS_MAX:
                self._calls.popitem(last=False)
        parts.pieces[row] = frame[_HEAD_SIZE:]
        if len(parts.pieces) < count:
            return None
        self._calls.pop(head)
        whole = b"".join(parts.pieces[at] for at in range(count))
        content, tag = whole[:-_TAG_SIZE], whole[-_TAG_SIZE:]
        if not content or not hmac.compare_digest(tag, _tag(self._key, head, content)):
            self.refused += 1
            return None
        return head[1 : 1 + _CLIENT_SIZE], int.from_bytes(head[1 + _CLIENT_SIZE :]), content


# A protobuf's fields, in their order.
Fields = list[tuple[int, bytes | int]]


class Helper(Protocol):
    """What a service does beside its store."""

    def do(self, verb: int, call_fields: Fields) -> bytes | None:
        """The content of the answer, None: there is none. PeerError for a verb of nobody's."""


class StoreService:
    """Answers calls from a store of its own, and those that a helper knows.

    commit: makes what was written durable; runs before a write is answered. Raises StorageError.
    """

    def __init__(
        self, store: RemoteStore, key: bytes, commit: Callable[[], object] = lambda: None,
        helper: Helper | None = None,
    ) -> None:  # fmt: skip
        assert len(key) == KEY_SIZE
        self._commit = commit
        self._helper = helper
        self._store = store
        self._key = key
        self.assembler = Assembler(key)

    def answer(self, frame: bytes) -> list[bytes]:
        """Take a frame in; the frames of an answer when a call is whole."""
        call = self.assembler.take(frame)
        if call is None:
            return []
        client, number, content = call
        verb = content[0]
        try:
            outcome, value = self._do(verb, content[1:])
            if verb in (ADD, UPDATE, KEEP):
                self._commit()
        except CapacityError:
            outcome, value = _FULL, b""
        except StorageError:
            outcome, value = _FAILED, b""
        except PeerError:
            self.assembler.refused += 1
            return []
        return frames_of(
            self._key, client, number, bytes((verb | ANSWER, outcome)) + value
        )  # fmt: skip

    def _do(self, verb: int, content: bytes) -> tuple[int, bytes]:
        every = list(fields(content))
        values = {number: value for number, value in every if isinstance(value, bytes)}
        first, second = values.get(1, b""), values.get(2, b"")
        out = bytearray()
        if verb == ADD:
            put_field(out, 1, self._store.add(first))
            return _DONE, bytes(out)
        if verb == UPDATE:
            return (_DONE if self._store.update(first, second) else _ABSENT), b""
        if verb == DROP:
            self._store.drop(first)
            return _DONE, b""
        if verb not in (GET, FETCH):
            if self._helper is None:
                raise PeerError("no such verb")
            answer = self._helper.do(verb, every)
            return (_DONE, answer) if answer is not None else (_ABSENT, b"")
        stored = self._store.get(first) if verb == GET else self._store.fetch(first)
        if stored is None:
            return _ABSENT, b""
        put_field(out, 1, stored)
        return _DONE, bytes(out)


# Sends frames and returns what came back until an answer may be whole; [] when nothing did.
Exchange = Callable[[list[bytes]], list[bytes]]


class StoreClient:
    """The store of another host, as `drupelet_host.remote.content_store.RemoteStore`.

    `exchange` sends the frames of a call and returns frames that came, after a while of its own
    choice. Raises StorageError when no answer comes.
    """

    def __init__(self, exchange: Exchange, key: bytes, own_id: bytes) -> None:
        assert len(key) == KEY_SIZE and len(own_id) == _CLIENT_SIZE
        self._exchange = exchange
        self._key = key
        self._own_id = own_id
        self._number = 0

    def add(self, content: bytes) -> bytes:
        """See RemoteStore."""
        address = self._call(ADD, content)
        if address is None or len(address) != ADDRESS_SIZE:
            raise StorageError("the remote store gave no address")
        return address

    def get(self, address: bytes) -> bytes | None:
        """See RemoteStore; the seal inside tells whether it is whole."""
        return self._call(GET, address)

    def drop(self, address: bytes) -> None:
        """See RemoteStore."""
        self._call(DROP, address)

    def update(self, name: bytes, content: bytes) -> bool:
        """See RemoteStore."""
        return self._call(UPDATE, name, content) is not None

    def fetch(self, name: bytes) -> bytes | None:
        """See RemoteStore."""
        return self._call(FETCH, name)

    def _call(self, verb: int, *values: bytes) -> bytes | None:
        content = bytearray()
        for number, value in enumerate(values, 1):
            put_field(content, number, value)
        answer_fields = self.call(verb, bytes(content))
        if answer_fields is None:
            return None
        first = dict(answer_fields).get(1, b"")
        return first if isinstance(first, bytes) else b""

    def call(self, verb: int, content: bytes) -> Fields | None:
        """Ask; the fields of the answer, None: absent. Raises StorageError or CapacityError."""
        self._number = self._number + 1 & 0xFFFFFFFF
        frames = frames_of(self._key, self._own_id, self._number, bytes((verb,)) + content)
        assembler = Assembler(self._key)
        for _ in range(TRIES_MAX):
            for frame in self._exchange(frames):
                answer = assembler.take(frame)
                if answer is not None and answer[:2] == (self._own_id, self._number):
                    return self._read(verb, answer[2])
        raise StorageError("the remote store does not answer; try again later")

    def _read(self, verb: int, content: bytes) -> Fields | None:
        if len(content) < 2 or content[0] != verb | ANSWER:
            raise StorageError("the remote store answers something else")
        outcome = content[1]
        if outcome == _FULL:
            raise CapacityError("the remote store is full")
        if outcome == _FAILED:
            raise StorageError("the remote store cannot read or write its disk")
        if outcome == _ABSENT:
            return None
        try:
            return list(fields(content[2:]))
        except DrupeletError as error:
            raise StorageError("the remote store answers something else") from error
