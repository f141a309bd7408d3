"""The chats of a home: groups of its hosts whose members invite, join and leave.

chats = Chats(node, store, settings)   before `Node.boot`
chats.add_peer(peer, number)           for each peer, at any time
chats.began()                          after `Node.boot`
chats.saw(event)                       for each event

A chat's messages go to those of its members that are peers here, and to who was invited and
accepted. `meta` of the store says which chats there are, and everybody's steps in each, which
outlive the messages that they follow from.
"""

import os
import sqlite3
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drupelet import host_api
from drupelet.base.errors import CapacityError, DrupeletError
from drupelet.node import INVISIBLE, SHARED, VISIBLE, Node
from drupelet.store.states import STATE_DELETED, STATE_DELIVERED
from drupelet_host.base import clock
from drupelet_host.base.errors import DamagedError
from drupelet_host.base.output import message_start, payload_text
from drupelet_host.clients import chat_notices
from drupelet_host.clients.chat import (
    INVITE,
    INVITED,
    JOIN,
    LEAVE,
    LEFT,
    MEMBER,
    PERSON_SIZE,
    SALT_SIZE,
    STATES,
    TEXT,
    ChatClient,
    Roster,
    payload_of,
)
from drupelet_host.clients.chat_notices import ChatId, ChatNotice, ChatNotices, KnownNotices
from drupelet_host.clients.default_body import split_body
from drupelet_host.clients.home_groups import find_peer
from drupelet_host.clients.notices import DEVICE_SIZE
from drupelet_host.home.board_kinds import BOARD_HOST
from drupelet_host.home.config import FAMILY_BSP_NAME, Config, ConfigError, NotThereError, Peer
from drupelet_host.home.toml_table import NAME_SIZE_MAX, is_name, shown
from drupelet_host.store.sqlite_store import SqliteStore

# A node of a host has 16 groups; it is in six beside its chats. Of chats that were forgotten, our
# last word may still have to go out.
CHATS_MAX = 8
CHATS_OPEN_MAX = 10
# The longest text, in bytes of UTF-8: some pages.
TEXT_SIZE_MAX = 16_384
# Key of the table `meta`, with the chat's group id in hex behind it.
META_KEY = "chat."
_OF_GROUP = (
    f"SELECT handle FROM log WHERE member_group = ? AND state = {STATE_DELIVERED} ORDER BY handle"  # noqa: S608 - no input
)
# No index has these: only for a chat of which there are deleted messages.
_OF_GROUP_DELETED_TOO = _OF_GROUP.replace(
    f"state = {STATE_DELIVERED}", f"state IN ({STATE_DELIVERED}, {STATE_DELETED})"
)
# What a person does, in an event and in `drupelet chat read`.
KINDS = {TEXT: "text", INVITE: "invite", JOIN: "join", LEAVE: "leave"}
# Where a chat stands for us, as `drupelet chat list` says it.
MEMBER_HERE, INVITED_HERE, JOINING, LEFT_HERE = "member", "invited", "joining", "left"


class ChatError(DrupeletError):
    """Something that is not possible in a chat now; the message says why."""


class ChatRecord(msgspec.Struct):
    """A chat that we are or were in, as `meta` keeps it. Bytes are Base64 there.

    steps: person in hex -> its steps. is_joining: we accepted, and have not joined yet.
    is_forgotten: nothing of it is shown; has_deleted: once its texts were removed.
    """

    name: str
    founder: bytes
    salt: bytes
    inviter: bytes = b""
    is_joining: bool = False
    is_forgotten: bool = False
    has_deleted: bool = False
    steps: dict[str, int] = {}

    @property
    def chat(self) -> ChatId:
        """What leads to it."""
        return ChatId(self.founder, self.salt)

    @property
    def roster(self) -> Roster:
        """Everybody's steps as of the last change."""
        return {bytes.fromhex(person): steps for person, steps in self.steps.items()}

    def standing(self, own: bytes) -> str:
        """MEMBER_HERE and so on."""
        if self.is_joining:
            return JOINING
        state = self.roster.get(own, 0) % STATES
        return {MEMBER: MEMBER_HERE, INVITED: INVITED_HERE}.get(state, LEFT_HERE)


def person_of(device: bytes) -> bytes:
    """A host as a person of a chat: its device id, and zeros."""
    return device.ljust(PERSON_SIZE, b"\0")


def person_name(names: dict[str, str], person: bytes) -> str:
    """What a person is called here: the peer's name, or its id. names: by device id in hex."""
    id = person[:DEVICE_SIZE].hex()
    return names.get(id, id) if person == person_of(person[:DEVICE_SIZE]) else person.hex()


def records(connection: sqlite3.Connection) -> list[ChatRecord]:
    """The chats of a home that were not forgotten, by name."""
    return [record for record in _all_records(connection) if not record.is_forgotten]


def _all_records(connection: sqlite3.Connection) -> list[ChatRecord]:
    rows = connection.execute("SELECT value FROM meta WHERE key GLOB ?", (META_KEY + "*",))
    try:
        every = [msgspec.json.decode(bytes(row[0]), type=ChatRecord) for row in rows]
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedError(
            "store.db: what it says of a chat is damaged; restore a backup"
        ) from error
    return sorted(every, key=lambda record: record.name)


def said(body: bytes) -> dict[str, Any] | None:
    """What a message of a chat says: kind, person, and `whom` or `text`; None: nothing."""
    payload = split_body(body)[1]
    kind = KINDS.get(payload[0]) if payload else None
    if kind is None or len(payload) <= PERSON_SIZE:
        return None
    person, rest = payload[1 : 1 + PERSON_SIZE], payload[1 + PERSON_SIZE :]
    fields: dict[str, Any] = {"kind": kind, "person": person}
    if kind == "text":
        fields["text"] = payload_text(rest)
    elif kind == "invite":
        fields["whom"] = rest
    return fields


@dataclass
class _Open:
    """One chat of this node. visibility: what each peer (number) was given last."""

    record: ChatRecord
    client: ChatClient
    group: int
    visibility: dict[int, int] = field(default_factory=dict)


class Chats:
    """See the module."""

    def __init__(self, node: Node, store: SqliteStore, settings: Config) -> None:
        self._node = node
        self._store = store
        self.settings = settings  # as the peers are called now; the caller keeps it new
        self._own = person_of(settings.id)
        self._peers: dict[int, bytes] = {}  # hosts: id by number
        self._open: dict[ChatId, _Open] = {}
        self._notices: ChatNotices | None = None
        if settings.family != FAMILY_BSP_NAME:
            return  # no link would carry them
        self._notices = ChatNotices(node, settings.group.encode(), settings.id)
        for handle in self._handles(self._notices.group):
            self._notices.saw(handle)
        for record in _all_records(store.connection):
            self._enter(record)

    def _handles(self, group: int, has_deleted: bool = False) -> list[int]:
        query = _OF_GROUP_DELETED_TOO if has_deleted else _OF_GROUP
        return [handle for (handle,) in self._store.connection.execute(query, (group,))]

    def _enter(self, record: ChatRecord) -> _Open:
        """Become a member of a chat's group, and know who is in it."""
        client = ChatClient((record.founder,), record.salt, record.roster)
        chat = _Open(record, client, client.join(self._node))
        handles = self._handles(chat.group, record.has_deleted)
        client.recover(self._node, chat.group, handles)
        self._open[record.chat] = chat
        self._share(chat)
        return chat

    @property
    def group_names(self) -> dict[int, str]:
        """What our groups are called in a status."""
        names = {chat.group: f"chat {chat.record.name}" for chat in self._open.values()}
        return names | ({self._notices.group: "chat invitations"} if self._notices else {})

    # --- peers ---

    def add_peer(self, peer: Peer, number: int) -> None:
        """Share with a host what it is a member of. A board has no chats."""
        if self._notices is None or peer.board not in ("", BOARD_HOST):
            return
        self._peers[number] = peer.id
        self._node.share(self._notices.group, number, SHARED)
        self._share_all()

    def remove_peer(self, number: int) -> None:
        """Forget a peer."""
        self._peers.pop(number, None)
        for chat in self._open.values():
            chat.visibility.pop(number, None)

    def _share_all(self) -> None:
        for chat in self._open.values():
            self._share(chat)

    def _share(self, chat: _Open) -> None:
        roster = chat.client.roster
        for number, device in self._peers.items():
            visibility = self._visibility(chat, roster, device)
            if chat.visibility.get(number, INVISIBLE) != visibility:
                chat.visibility[number] = visibility
                self._node.share(chat.group, number, visibility)

    def _visibility(self, chat: _Open, roster: Roster, device: bytes) -> int:
        """What a peer gets of a chat.

        Who left still hands over what it said before. While we join, we do not know yet who is in
        the chat, and whoever is may bring it.
        """
        assert self._notices is not None
        state = roster.get(person_of(device), 0) % STATES
        is_present = self._notices.known.is_present(chat.record.chat, device)
        if state == MEMBER:
            return VISIBLE if is_present is False else SHARED
        if state == INVITED and is_present:
            return SHARED
        return VISIBLE if state == LEFT or chat.record.is_joining else INVISIBLE

    # --- events ---

    def saw(self, group: int, handle: int) -> dict[str, Any] | None:
        """An event of any group; what to tell of it, if it is a chat's."""
        if self._notices is not None and group == self._notices.group:
            return self._saw_notice(handle)
        chat = next((chat for chat in self._open.values() if chat.group == group), None)
        message = host_api.message(self._store, handle) if chat is not None else None
        body = host_api.body(self._store, message) if message is not None else None
        fields = said(body) if body is not None else None
        if chat is None or message is None or fields is None or chat.record.is_forgotten:
            return None
        if fields["kind"] != "text":
            self._changed(chat)
        return {"chat": chat.record.name, "id": message.id.hex(), **named(self._names, fields)}

    @property
    def _names(self) -> dict[str, str]:
        return self.settings.names()

    def _saw_notice(self, handle: int) -> dict[str, Any] | None:
        assert self._notices is not None
        notice = self._notices.saw(handle)
        if notice is None:
            return None
        chat = self._open.get(notice.chat)
        if notice.kind != chat_notices.INVITED:
            if chat is not None:
                self._share(chat)
            return None
        if chat is not None and chat.record.standing(self._own) in (MEMBER_HERE, JOINING):
            return None
        name = next((name for name, one in self._invited().items() if one == notice), "")
        by = person_name(self._names, person_of(notice.inviter))
        return {"chat": name, "kind": "invitation", "person": by}

    def _changed(self, chat: _Open) -> None:
        """Somebody was invited, joined or left: keep that, share by it, and join if we are to."""
        self._share(chat)
        if chat.record.is_joining and chat.client.state(self._own) == INVITED:
            self._join_now(chat)
        elif chat.client.state(self._own) == MEMBER:
            chat.record.is_joining = False  # after a loss of our store
        self._keep(chat)

    def _join_now(self, chat: _Open) -> None:
        chat.record.is_joining = False
        try:
            self._publish(chat, payload_of(JOIN, self._own))
        except CapacityError:
            chat.record.is_joining = True  # no room: with the next change, or the next start

    def _keep(self, chat: _Open) -> None:
        """Durable with the next barrier."""
        roster = sorted(chat.client.roster.items())
        chat.record.steps = {person.hex(): steps for person, steps in roster}
        key = META_KEY + chat.record.chat.group_id.hex()
        value = msgspec.json.encode(chat.record)
        self._store.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def began(self) -> None:
        """After `Node.boot`: what was left to do is done."""
        for chat in self._open.values():
            if chat.record.is_joining:
                self._changed(chat)

    # --- what the owner does ---

    def do(self, action: str, name: str, argument: str = "") -> dict[str, Any]:
        """One of ACTIONS; the chat's name and what came of it. Raises DrupeletError."""
        if self._notices is None:
            raise ConfigError(
                f'chats need family = "{FAMILY_BSP_NAME}" in drupelet.toml, not'
                f' "{self.settings.family}"'
            )
        if action not in _ACTIONS:
            raise ChatError(f"{shown(action)}: no such action; update this agent")
        return {"chat": name, **_ACTIONS[action](self, name, argument)}

    def _create(self, name: str, _: str) -> dict[str, Any]:
        check_name(name)
        if name in self._named() or name in self._invited():
            raise ChatError(f"{name}: there is a chat of this name; choose another")
        self._make_room()
        record = ChatRecord(name, self._own, os.urandom(SALT_SIZE))
        self._keep(self._enter(record))
        return {"state": MEMBER_HERE}

    def _make_room(self) -> None:
        if len(self._named()) >= CHATS_MAX:
            raise CapacityError(
                f"a home has at most {CHATS_MAX} chats; leave one, then `drupelet chat forget` it"
            )
        if len(self._open) >= CHATS_OPEN_MAX:
            self._close_forgotten()

    def _close_forgotten(self) -> None:
        """Leave the group of a chat that was forgotten: nothing of it is worth its row."""
        chat = next(chat for chat in self._open.values() if chat.record.is_forgotten)
        del self._open[chat.record.chat]
        key = META_KEY + chat.record.chat.group_id.hex()
        self._store.write("DELETE FROM meta WHERE key = ?", key)
        self._node.leave(chat.group)

    def _invite(self, name: str, peer: str) -> dict[str, Any]:
        assert self._notices is not None
        chat = self._of_member(name)
        device = find_peer(self.settings, peer)
        if device not in self._peers.values():
            raise ChatError(f"{peer}: is a board, which has no chats; invite a host")
        whom = person_of(device)
        state = chat.client.state(whom)
        is_present = self._notices.known.is_present(chat.record.chat, device)
        if state == MEMBER and is_present is not False:
            raise ChatError(f"{peer}: is a member of {name} already")
        if state not in (INVITED, MEMBER):
            self._publish(chat, payload_of(INVITE, self._own, whom))
        self._say(chat_notices.INVITED, chat.record, device, self.settings.id)
        self._changed(chat)
        return {"peer": peer, "state": INVITED_HERE}

    def _join(self, name: str, _: str) -> dict[str, Any]:
        chat = self._named().get(name)
        notice = self._invited().get(name)
        if chat is None:
            if notice is None:
                raise NotThereError(f"{name}: no invitation; `drupelet chat list` shows them")
            self._make_room()
            chat = self._open.get(notice.chat)
            if chat is None:
                chat = self._enter(ChatRecord(name, *notice.chat))
            chat.record.name, chat.record.inviter = name, notice.inviter
            chat.record.is_forgotten = False
        elif (standing := chat.record.standing(self._own)) in (MEMBER_HERE, JOINING):
            said_so = {MEMBER_HERE: "is joined already", JOINING: "was accepted already"}
            raise ChatError(f"{name}: {said_so[standing]}; `drupelet chat list` shows it")
        elif notice is None and standing != INVITED_HERE:
            raise ChatError(f"{name}: you left it; a member has to invite you again")
        chat.record.is_joining = True
        self._answer(chat_notices.ACCEPTED, chat.record)
        self._changed(chat)
        return {"state": chat.record.standing(self._own)}

    def _leave(self, name: str, _: str) -> dict[str, Any]:
        chat = self._named().get(name)
        if chat is None:
            notice = self._invited().get(name)
            if notice is None:
                raise self._unknown(name)
            self._answer(chat_notices.DECLINED, ChatRecord(name, *notice.chat))
            return {"state": "declined"}
        if chat.client.state(self._own) in (MEMBER, INVITED):
            self._publish(chat, payload_of(LEAVE, self._own))
        elif chat.record.is_joining:
            self._answer(chat_notices.DECLINED, chat.record)
        else:
            raise ChatError(f"{name}: you left it already; `drupelet chat forget` removes it")
        chat.record.is_joining = False
        self._changed(chat)
        return {"state": LEFT_HERE}

    def _forget(self, name: str, _: str) -> dict[str, Any]:
        chat = self._named().get(name)
        if chat is None:
            raise self._unknown(name)
        if chat.record.standing(self._own) in (MEMBER_HERE, JOINING):
            raise ChatError(f"{name}: leave it first: `drupelet chat leave {name}`")
        self._answer(chat_notices.DECLINED, chat.record)
        # Not the group: others know what we had, and would not send it again if we came back.
        for handle in self._handles(chat.group):
            message = host_api.message(self._store, handle)
            body = host_api.body(self._store, message) if message is not None else None
            fields = said(body) if body is not None else None
            if fields is not None and fields["kind"] == "text":
                self._node.delete(handle)
        chat.record.is_forgotten = chat.record.has_deleted = True
        self._keep(chat)
        return {"state": "forgotten"}

    def _say_text(self, name: str, text: str) -> dict[str, Any]:
        chat = self._of_member(name)
        content = checked_text(text)
        message = self._publish(chat, payload_of(TEXT, self._own, content))
        return {"id": message.id.hex()}

    # --- helpers ---

    def _named(self) -> dict[str, _Open]:
        chats = self._open.values()
        return {chat.record.name: chat for chat in chats if not chat.record.is_forgotten}

    def _invited(self) -> dict[str, ChatNotice]:
        """As `invited`."""
        assert self._notices is not None
        return invited(self._notices.known, [chat.record for chat in self._named().values()])

    def _unknown(self, name: str) -> NotThereError:
        return NotThereError(f"{name}: no such chat; `drupelet chat list` shows them")

    def _of_member(self, name: str) -> _Open:
        chat = self._named().get(name)
        if chat is None:
            if name in self._invited():
                raise ChatError(f"{name}: you are invited; first `drupelet chat join {name}`")
            raise self._unknown(name)
        if chat.client.state(self._own) == MEMBER:
            return chat
        standing = chat.record.standing(self._own)
        raise ChatError(
            {
                JOINING: f"{name}: waits for the messages of a member; you join when they come",
                INVITED_HERE: f"{name}: you are invited; first `drupelet chat join {name}`",
            }.get(standing, f"{name}: you left it; a member has to invite you again")
        )

    def _publish(self, chat: _Open, payload: bytes) -> host_api.Message:
        body = chat.client.compose(self._node, payload, self._own)
        stamp = clock.timestamp8(clock.wall_ms())
        handle = self._node.publish(chat.group, body, len(body), stamp, clock.now_ms())
        message = host_api.message(self._store, handle) if handle > 0 else None
        if message is None:
            raise CapacityError(
                f"{chat.record.name}: not taken: the log is full, or somebody came and went too"
                " often; `drupelet status` shows what is owed"
            )
        return message

    def _answer(self, kind: int, record: ChatRecord) -> None:
        """Tell the others whether we take part, and take the invitations as answered."""
        assert self._notices is not None
        while True:
            invitation = self._notices.known.invitation_to(record.chat)
            self._say(kind, record, self.settings.id, record.inviter, invitation)
            if not self._notices.known.invitation_to(record.chat):
                return

    def _say(
        self, kind: int, record: ChatRecord, device: bytes, inviter: bytes, invitation: bytes = b""
    ) -> None:  # fmt: skip
        assert self._notices is not None
        inviter = inviter or self.settings.id
        notice = ChatNotice(kind, device, record.chat, inviter, record.name, invitation)
        self._notices.say(notice, clock.timestamp8(clock.wall_ms()), clock.now_ms())


# What the verbs of `drupelet chat` ask for.
_ACTIONS = {
    "create": Chats._create,
    "invite": Chats._invite,
    "join": Chats._join,
    "leave": Chats._leave,
    "forget": Chats._forget,
    "say": Chats._say_text,
}


def check_name(name: str) -> None:
    """Raise ConfigError for what no chat can be called."""
    if not is_name(name):
        raise ConfigError(
            f"chat {shown(name)}: a name has 1 to {NAME_SIZE_MAX} letters, digits, '.', '-' or"
            " '_', and begins with a letter or digit"
        )


def checked_text(text: str) -> bytes:
    """A text in UTF-8; raises CapacityError for what is none, or too long."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise CapacityError("a chat takes UTF-8 only; `drupelet put` takes any bytes") from None
    if not 0 < len(content) <= TEXT_SIZE_MAX:
        raise CapacityError(
            f"a text of {len(content):,} bytes: it has to have 1 to {TEXT_SIZE_MAX:,}"
        )
    return content


def named(names: dict[str, str], fields: dict[str, Any]) -> dict[str, Any]:
    """What `said` gives, with names in place of persons."""
    result = dict(fields)
    for key in ("person", "whom"):
        if key in fields:
            result[key] = person_name(names, fields[key])
    return result


def chat_line(fields: dict[str, Any]) -> str:
    """One line for people about what `Chats.saw` gives."""
    person, chat = fields["person"], fields["chat"]
    what = {
        "text": f": {message_start(fields.get('text', ''))}",
        "invite": f" invited {fields.get('whom', '')}",
        "join": " joined",
        "leave": " left",
        "invitation": f" invites you: `drupelet chat join {chat}`",
    }[fields["kind"]]
    return f"{chat} {person}{what}"


def invited(notices: KnownNotices, known: list[ChatRecord]) -> dict[str, ChatNotice]:
    """Invitations that were not answered, the newest to each chat, by what it is called here.

    A chat that we know keeps its name; a new one whose name is taken gets a number behind it.
    """
    by_chat = {notice.chat: notice for notice in notices.invitations.values()}
    names = {record.chat: record.name for record in known}
    taken = set(names.values())
    result = {}
    for chat, notice in by_chat.items():
        name = names.get(chat) or _free_name(notice.name or "chat", taken)
        taken.add(name)
        result[name] = notice
    return result


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: NAME_SIZE_MAX - 5]}-{number}"
    return free
