"""What `drupelet chat` shows of a home's chats: never a write, agent or not."""

import sqlite3
from collections.abc import Iterator
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.store.states import STATE_DELIVERED
from drupelet_host.base import clock
from drupelet_host.clients.chat import INVITED, MEMBER, STATES
from drupelet_host.clients.chat_notices import KnownNotices
from drupelet_host.clients.notices import DEVICE_SIZE
from drupelet_host.home.client_ids import CHAT_NOTICES_CLIENT_ID
from drupelet_host.home.config import Config, NotThereError
from drupelet_host.member.chats import (
    INVITED_HERE,
    JOINING,
    MEMBER_HERE,
    ChatRecord,
    invited,
    named,
    person_name,
    person_of,
    records,
    said,
)
from drupelet_host.store.checksum import row_checksum
from drupelet_host.store.database import has_checksums

_MEMBER_GROUP = 1
_ROWS_AT_ONCE = 256
_NUMBER = "SELECT number FROM members WHERE kind = ? AND key = ?"
_ROWS = (
    "SELECT handle, CAST(id AS BLOB), source, CAST(timestamp AS BLOB), CAST(body AS BLOB),"  # noqa: S608 - no input
    " {checksum} FROM log"
    f" WHERE member_group = ? AND state = {STATE_DELIVERED} AND handle > ? ORDER BY handle LIMIT ?"
)
_STATES = {INVITED: "invited", MEMBER: "member"}
# A row of a group's log.
_Row = tuple[int, bytes, int, bytes, bytes]


class ChatLine(TypedDict):
    """A chat of ours, or one that we are invited to."""

    chat: Annotated[str, Meta(description="its name here")]
    state: Annotated[str, Meta(description="what we are: member, joining, invited or left")]
    members: Annotated[int | None, Meta(description="how many are in it; null: we are not")]
    inviter: Annotated[str, Meta(description="who invited us; empty: nobody, or not known")]


class ChatMember(TypedDict):
    """Somebody who is or was in a chat, or is invited."""

    name: Annotated[str, Meta(description="as drupelet.toml has it, else hex digits")]
    person: Annotated[str, Meta(description="the id in the chat, as hex digits")]
    state: Annotated[str, Meta(description="member, joining, invited, declined or left")]


class ChatMessage(TypedDict):
    """What was said or done in a chat."""

    id: Annotated[str, Meta(description="64 hex digits")]
    timestamp_ms: Annotated[int, Meta(description="when it was written, in ms since 1970")]
    time: Annotated[str, Meta(description="the same, in UTC, as text")]
    kind: Annotated[str, Meta(description="text, invite, join or leave")]
    person: Annotated[str, Meta(description="who says that it wrote it")]
    text: NotRequired[Annotated[str, Meta(description="of a text: what was said")]]
    whom: NotRequired[Annotated[str, Meta(description="of an invite: who is invited")]]


class ChatView:
    """The chats of a home, on a connection to its store that may be read-only."""

    def __init__(self, connection: sqlite3.Connection, settings: Config) -> None:
        self._connection = connection
        self._settings = settings
        self._names = settings.names()

    def _rows(self, group_id: bytes) -> Iterator[_Row]:
        """The rows of a group that are whole; no query stays open while they are looked at."""
        number_row = self._connection.execute(_NUMBER, (_MEMBER_GROUP, group_id)).fetchone()
        if number_row is None:
            return
        number, after = number_row[0], 0
        checksum = "checksum" if has_checksums(self._connection) else "NULL"
        query = _ROWS.format(checksum=checksum)
        while rows := self._connection.execute(query, (number, after, _ROWS_AT_ONCE)).fetchall():
            for handle, id, source, timestamp, body, check in rows:
                content = (number, source, STATE_DELIVERED, id, timestamp, body)
                if check is None or row_checksum(*content) == check:
                    yield handle, id, source, timestamp, body
            after = rows[-1][0]

    def _notices(self) -> KnownNotices:
        group_id, descriptor = bytearray(ID_SIZE), self._settings.group.encode()
        group_id_into(group_id, CHAT_NOTICES_CLIENT_ID, descriptor, len(descriptor))
        known = KnownNotices(self._settings.id)
        for _, id, source, timestamp, body in self._rows(bytes(group_id)):
            known.take(id, not source, timestamp, body)
        return known

    def chats(self) -> list[ChatLine]:
        """Every chat and every invitation: name, where it stands for us, and by whom."""
        own, known = person_of(self._settings.id), records(self._connection)
        notices = self._notices()
        rows: dict[str, ChatLine] = {}
        for record in known:
            rows[record.name] = {
                "chat": record.name,
                "state": record.standing(own),
                "members": list(_states(record, notices).values()).count("member"),
                "inviter": self._person(record.inviter),
            }
        for name, notice in invited(notices, known).items():
            if name in rows and rows[name]["state"] in (MEMBER_HERE, JOINING):
                continue
            members = rows[name]["members"] if name in rows else None
            rows[name] = {
                "chat": name,
                "state": INVITED_HERE,
                "members": members,
                "inviter": self._person(notice.inviter),
            }
        return [rows[name] for name in sorted(rows)]

    def _person(self, device: bytes) -> str:
        return person_name(self._names, person_of(device)) if device else ""

    def _record(self, name: str) -> ChatRecord:
        for record in records(self._connection):
            if record.name == name:
                return record
        if any(row["chat"] == name for row in self.chats()):
            raise NotThereError(
                f"{name}: you are invited and see it from `drupelet chat join {name}` on"
            )
        raise NotThereError(f"{name}: no such chat; `drupelet chat list` shows them")

    def members(self, name: str) -> list[ChatMember]:
        """Whoever is or was in a chat, or is invited. Raises NotThereError."""
        record, notices = self._record(name), self._notices()
        own = person_of(self._settings.id)
        return [
            {
                "name": person_name(self._names, person),
                "person": person.hex(),
                "state": JOINING if person == own and record.is_joining else state,
            }
            for person, state in _states(record, notices).items()
        ]

    def messages(self, name: str) -> Iterator[ChatMessage]:
        """What was said and done in a chat, in the log's order. Raises NotThereError."""
        record = self._record(name)
        for _, id, _, timestamp, body in self._rows(record.chat.group_id):
            fields = said(body)
            if fields is None:
                continue
            fields = named(self._names, fields)
            message: ChatMessage = {
                "id": id.hex(),
                "timestamp_ms": int.from_bytes(timestamp),
                "time": clock.timestamp_text(timestamp),
                "kind": fields["kind"],
                "person": fields["person"],
            }
            if "text" in fields:
                message["text"] = fields["text"]
            if "whom" in fields:
                message["whom"] = fields["whom"]
            yield message


def _states(record: ChatRecord, notices: KnownNotices) -> dict[bytes, str]:
    """Person -> what it is in a chat: member, invited, declined or left.

    Who says that it does not take part may have removed the chat before its last word got out.
    """
    states = {}
    for person, steps in sorted(record.roster.items()):
        state = steps % STATES
        if notices.is_present(record.chat, person[:DEVICE_SIZE]) is False:
            states[person] = "declined" if state == INVITED else "left"
        else:
            states[person] = _STATES.get(state, "left")
    return states
