"""A group of people with invite, join and leave; and the private group of two with their devices.

    descriptor: the founders [8] in order, then of a chat with a name a salt [12]
    payload: kind u8, person [8], and for INVITE the other person [8], for TEXT the text

Who is in the group is computed from a message's own past alone, so every member computes the same
in whatever order messages come: per person a step count, merged over the dependencies by maximum,
whose rest by 4 is the state. What a person may not do in its state is invalid, and all that
depends on it.
"""

from collections.abc import Iterable

from drupelet import host_api
from drupelet.base.hashes import MessageHash
from drupelet.base.limits import DEPENDENCIES_MAX, ID_SIZE
from drupelet.engine.body import INVALID, SHARE, BodyReader, DefaultClient
from drupelet.node import Node
from drupelet.store.states import STATE_DELETED
from drupelet_host.home.client_ids import CHAT_CLIENT_ID

PERSON_SIZE = 8
# No multiple of a person's size: no salt reads as founders.
SALT_SIZE = 12
TEXT, INVITE, JOIN, LEAVE = range(4)
OUTSIDE, INVITED, MEMBER, LEFT = range(4)
STATES = 4
# People of one group, and how often one of them may come and go.
PERSONS_MAX = 256
STEPS_MAX = 4 * 64
_REFUSED = -1
# (what is done, the state of whom it changes) -> the state behind it. All else is refused: leaving
# declines an invitation, too, and who left may be invited again.
TRANSITIONS = {
    (INVITE, OUTSIDE): INVITED,
    (INVITE, LEFT): INVITED,
    (JOIN, INVITED): MEMBER,
    (LEAVE, INVITED): LEFT,
    (LEAVE, MEMBER): LEFT,
}
# Which state the doer must be in.
ALLOWED = {TEXT: MEMBER, INVITE: MEMBER, JOIN: INVITED}
Roster = dict[bytes, int]  # person -> steps


def _step(steps: int, done: int) -> int:
    """The steps after something was done to a person, or _REFUSED."""
    after = TRANSITIONS.get((done, steps % STATES))
    if after is None or steps >= STEPS_MAX:
        return _REFUSED
    return steps + 1 + (after - steps - 1) % STATES


def apply(roster: Roster, payload: bytes) -> Roster | None:
    """The roster after a message whose past has `roster`; None: it is invalid."""
    kind, person = payload[:1], payload[1 : 1 + PERSON_SIZE]
    if not kind or kind[0] not in range(4) or len(person) != PERSON_SIZE:
        return None
    done = kind[0]
    rest = payload[1 + PERSON_SIZE :]
    if done in ALLOWED and roster.get(person, OUTSIDE) % STATES != ALLOWED[done]:
        return None
    if done == TEXT:
        return roster
    whom = rest if done == INVITE else person
    if len(whom) != PERSON_SIZE or (done != INVITE and rest):
        return None
    steps = _step(roster.get(whom, OUTSIDE), done)
    if steps == _REFUSED or (whom not in roster and len(roster) >= PERSONS_MAX):
        return None
    return {**roster, whom: steps}


class ChatClient(DefaultClient):
    """The client of one chat group.

    founders: who is in it from the start, in the descriptor; salt: tells chats of the same
    founders apart. known: what an earlier run knew of everybody's steps; it stands in for the
    past of messages that went from a full log.
    """

    def __init__(
        self, founders: tuple[bytes, ...], salt: bytes = b"", known: Roster | None = None
    ) -> None:
        super().__init__()
        self.founders = founders
        self.refused = 0
        self._salt = salt
        self._first: Roster = dict.fromkeys(founders, MEMBER)
        self._before = merged(self._first, known or {})
        # Message id -> the roster behind it; messages that change nobody's steps share one.
        self.rosters: dict[bytes, Roster] = {}
        self._known: dict[tuple[tuple[bytes, int], ...], Roster] = {}
        self.heads: dict[bytes, None] = {}  # in the order in which they came
        self.group_id = b""

    @property
    def descriptor(self) -> bytes:
        """The group's descriptor."""
        return b"".join(sorted(self.founders)) + self._salt

    def join(self, node: Node, flags: int = 0) -> int:
        """Become a member of the group of these founders; its number."""
        group = node.join(CHAT_CLIENT_ID, self.descriptor, flags, self)
        self.group_id = host_api.group_id(node, group)
        return group

    def validate(self, reader: BodyReader) -> int:
        """SHARE for what its author may do, else INVALID."""
        body = bytearray(reader.size)
        reader.read_into(0, body, 0, len(body))
        if not self.take(bytes(reader.timestamp), bytes(body)):
            self.refused += 1
            return INVALID
        return SHARE

    def take(self, timestamp: bytes, body: bytes) -> bool:
        """Judge a message whose dependencies were taken; False: it is invalid."""
        parents = dependencies_of(body)
        after = apply(self._past(parents), body[1 + len(parents) * ID_SIZE :])
        if after is None:
            return False
        id = bytearray(ID_SIZE)
        hashing = MessageHash()
        hashing.start(self.group_id, 0, timestamp, 0, len(body))
        hashing.update(body, 0, len(body))
        hashing.digest_into(id, 0)
        self._put(bytes(id), parents, after)
        return True

    def _put(self, id: bytes, parents: list[bytes], after: Roster) -> None:
        # There are as many rosters as there were steps, not as many as messages.
        self.rosters[id] = self._known.setdefault(tuple(sorted(after.items())), after)
        for parent in parents:
            self.heads.pop(parent, None)
        self.heads[id] = None

    def _past(self, parents: Iterable[bytes]) -> Roster:
        roster = self._first
        for parent in parents:
            roster = merged(roster, self.rosters.get(parent, self._before))
        return dict(roster)

    def recover(self, node: Node, group: int, handles: Iterable[int] | None = None) -> None:
        """Look at the whole log, or at these messages of it, before messages come in.

        Of what was deleted, texts only, the place is left; of what the disk spoiled, nothing.
        """
        logged = host_api.messages(node.store) if handles is None else _messages(node, handles)
        for message in logged:
            if message.group != group:
                continue
            if message.state == STATE_DELETED:
                edges = host_api.edges(node.store, message)
                if edges:
                    parents = dependencies_of(edges)
                    self._put(message.id, parents, self._past(parents))
            else:
                body = host_api.body(node.store, message)
                if body is not None:
                    self.take(message.timestamp, body)

    def compose(self, node: Node, payload: bytes, person: bytes) -> bytes:
        """The body of our next message: it comes after all that is in the log.

        Where that has more ends than a message may name, after those that know most of the
        person's own steps, and of them after the newest.
        """
        ends = [id for id in self.heads if host_api.find(node.store, id) is not None]
        ends.sort(key=lambda id: self.rosters[id].get(person, OUTSIDE))
        ends = ends[-DEPENDENCIES_MAX:]
        return bytes((len(ends),)) + b"".join(ends) + payload

    @property
    def roster(self) -> Roster:
        """Everybody's steps, by all that is in the log, and was."""
        return merged(self._before, self._past(self.heads))

    def state(self, person: bytes) -> int:
        """OUTSIDE, INVITED, MEMBER or LEFT, by all that is in the log."""
        return self.roster.get(person, OUTSIDE) % STATES

    def members(self) -> list[bytes]:
        """Who is in the group."""
        roster = self.roster
        return sorted(person for person, steps in roster.items() if steps % STATES == MEMBER)

    def texts(self, node: Node, group: int) -> list[tuple[bytes, str]]:
        """Person and text of each message in the order of the log."""
        texts = []
        for message in host_api.messages(node.store):
            body = host_api.body(node.store, message) if message.group == group else None
            if body:
                payload = body[1 + body[0] * ID_SIZE :]
                if payload[:1] == bytes((TEXT,)):
                    text = payload[1 + PERSON_SIZE :].decode(errors="replace")
                    texts.append((payload[1 : 1 + PERSON_SIZE], text))
        return texts


def merged(one: Roster, other: Roster) -> Roster:
    """Each person's most steps of two rosters."""
    if one is other:
        return one
    return {**one, **{who: max(steps, one.get(who, 0)) for who, steps in other.items()}}


def _messages(node: Node, handles: Iterable[int]) -> Iterable[host_api.Message]:
    for handle in handles:
        message = host_api.message(node.store, handle)
        if message is not None:
            yield message


def dependencies_of(body: bytes | bytearray) -> list[bytes]:
    """The ids that a well-formed body begins with."""
    count = body[0] if body else 0
    return [bytes(body[at : at + ID_SIZE]) for at in range(1, 1 + count * ID_SIZE, ID_SIZE)]


def payload_of(done: int, person: bytes, rest: bytes = b"") -> bytes:
    """What a person does, as a payload; `rest`: the text, or whom it invites."""
    assert len(person) == PERSON_SIZE
    return bytes((done,)) + person + rest


def private_chat(one: bytes, other: bytes) -> ChatClient:
    """The private group of two people: the same one on every device of both of them."""
    return ChatClient((one, other))
