"""Who is invited to which chat, and what they answered: notices among a home's hosts.

    content: varint kind = 1; bytes device = 2 [4]; bytes founder = 3 [8]; bytes salt = 4 [12];
             bytes inviter = 5 [4]; bytes name = 6; bytes invitation = 7 [32]

A group of their own with the descriptor of the home's group (docs/SPEC.md 15.9). The messages of a
chat go to those who accepted, so an invitation has to come by another way than the chat itself. No
notice proves who wrote it: members of a home's group trust each other.
"""

from dataclasses import dataclass
from typing import NamedTuple

from drupelet import host_api
from drupelet.base.errors import CapacityError, PeerError, check
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.node import Node
from drupelet.store.states import STATE_DELIVERED
from drupelet.wire.protobuf import VARINT
from drupelet_host.clients.chat import PERSON_SIZE, SALT_SIZE
from drupelet_host.clients.default_body import split_body
from drupelet_host.clients.notices import DEVICE_SIZE, is_invented
from drupelet_host.home.client_ids import CHAT_CLIENT_ID, CHAT_NOTICES_CLIENT_ID
from drupelet_host.home.toml_table import is_name
from drupelet_host.remote.log_bytes import fields, put_field, put_varint

INVITED, ACCEPTED, DECLINED = 1, 2, 3
# Chats that devices were invited to or answered about: what is older is forgotten, which costs an
# invitation that nobody took up, or frames to who is not there any more.
NOTICES_KNOWN_MAX = 1024
_CONTENT_SIZE_MAX = 256


class ChatId(NamedTuple):
    """What leads to a chat: its founder, and what tells it from the founder's others."""

    founder: bytes
    salt: bytes

    @property
    def group_id(self) -> bytes:
        """The id of the chat's group."""
        id, descriptor = bytearray(ID_SIZE), self.founder + self.salt
        group_id_into(id, CHAT_CLIENT_ID, descriptor, len(descriptor))
        return bytes(id)


@dataclass(frozen=True)
class ChatNotice:
    """`device` is invited to a chat by `inviter`, or answers to an invitation.

    invitation: the id of the message that an answer is to; b"" where there is none.
    """

    kind: int
    device: bytes
    chat: ChatId
    inviter: bytes = bytes(DEVICE_SIZE)
    name: str = ""
    invitation: bytes = b""

    def encode(self) -> bytes:
        """As the content of a message."""
        out = bytearray()
        put_varint(out, 1 << 3 | VARINT)
        put_varint(out, self.kind)
        parts = (self.device, *self.chat, self.inviter, self.name.encode(), self.invitation)
        for number, part in enumerate(parts, 2):
            if part:
                put_field(out, number, part)
        return bytes(out)


def decode_notice(content: bytes) -> ChatNotice:
    """Read a message's content; raises PeerError."""
    if len(content) > _CONTENT_SIZE_MAX:
        raise PeerError("too long for a notice of a chat")
    kind = 0
    parts = dict.fromkeys(range(2, 8), b"")
    for number, value in fields(content):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in parts and isinstance(value, bytes):
            parts[number] = value
    device, founder, salt, inviter, name, invitation = parts.values()
    sizes = (len(device), len(founder), len(salt), len(inviter))
    if sizes != (DEVICE_SIZE, PERSON_SIZE, SALT_SIZE, DEVICE_SIZE):
        raise PeerError("not a notice of a chat")
    is_answer = kind in (ACCEPTED, DECLINED) and len(invitation) in (0, ID_SIZE)
    if not is_answer and (kind != INVITED or invitation):
        raise PeerError("not a notice of a chat")
    text = name.decode(errors="replace")
    return ChatNotice(
        kind, device, ChatId(founder, salt), inviter, text if is_name(text) else "", invitation
    )


class KnownNotices:
    """What one device knows by the notices that it has taken in, in the log's order."""

    def __init__(self, device: bytes) -> None:
        self._device = device
        # Message id -> what we were invited to, and have not answered yet.
        self.invitations: dict[bytes, ChatNotice] = {}
        self._answered: dict[bytes, None] = {}
        # (chat, device) -> the time of its last answer, and whether it takes part.
        self._answers: dict[tuple[ChatId, bytes], tuple[bytes, bool]] = {}

    def take(
        self, id: bytes, is_ours: bool, timestamp: bytes, body: bytes
    ) -> ChatNotice | None:  # fmt: skip
        """Take in a message of the group; the notice, if it changes what is known."""
        try:
            notice = decode_notice(split_body(body)[1])
        except PeerError:
            return None
        # What we answered we know ourselves; another may have written this.
        is_forged = notice.kind != INVITED and notice.device == self._device and not is_ours
        if is_forged or is_invented(timestamp):
            return None
        if notice.kind == INVITED:
            if notice.device != self._device or id in self._answered:
                return None
            self.invitations[id] = notice
            _bound(self.invitations)
            return notice
        if is_ours and notice.invitation:
            self.invitations.pop(notice.invitation, None)
            self._answered[notice.invitation] = None
            _bound(self._answered)
        if timestamp <= self.answered_at(notice.chat, notice.device):
            return None
        self._answers[notice.chat, notice.device] = (timestamp, notice.kind == ACCEPTED)
        _bound(self._answers)
        return notice

    def answered_at(self, chat: ChatId, device: bytes) -> bytes:
        """When a device said last whether it takes part, 8 bytes; b"": never."""
        return self._answers.get((chat, device), (b"", False))[0]

    def is_present(self, chat: ChatId, device: bytes) -> bool | None:
        """Whether a device takes part in a chat, as it said last; None: it has not said."""
        answer = self._answers.get((chat, device))
        return None if answer is None else answer[1]

    def invitation_to(self, chat: ChatId) -> bytes:
        """The id of the newest invitation to a chat that was not answered; b"": there is none."""
        ids = [id for id, notice in self.invitations.items() if notice.chat == chat]
        return ids[-1] if ids else b""


class ChatNotices:
    """The group of these notices, of one member. `saw` each message of it, also after a start."""

    def __init__(self, node: Node, descriptor: bytes, device: bytes) -> None:
        self._node = node
        self.group = node.join(CHAT_NOTICES_CLIENT_ID, descriptor)
        self.known = KnownNotices(device)

    def saw(self, handle: int) -> ChatNotice | None:
        """Take in a message of the log; the notice, if it changes what is known."""
        message = host_api.message(self._node.store, handle)
        if message is None or message.group != self.group or message.state != STATE_DELIVERED:
            return None
        body = host_api.body(self._node.store, message)
        if body is None:
            return None
        return self.known.take(message.id, not message.source, message.timestamp, body)

    def say(self, notice: ChatNotice, timestamp: bytes, now_ms: int) -> None:
        """Publish a notice. Raises CapacityError."""
        last = self.known.answered_at(notice.chat, notice.device)
        if notice.kind != INVITED and last >= timestamp:  # of a clock that was ahead
            timestamp = (int.from_bytes(last) + 1).to_bytes(TIMESTAMP_SIZE)
        if is_invented(timestamp):
            raise CapacityError("no notice can be newer than one that is there; set the clock")
        body = b"\x00" + notice.encode()
        handle = self._node.publish(self.group, body, len(body), timestamp, now_ms)
        check(handle, "no room for another notice of a chat")
        self.saw(handle)


def _bound(known: dict) -> None:  # type: ignore[type-arg]
    """Forget the oldest."""
    if len(known) > NOTICES_KNOWN_MAX:
        del known[next(iter(known))]
