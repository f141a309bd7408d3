"""The shapes of requests: one JSON object a line, told apart by `do` (docs/SPEC.md 8.4).

The answer is one JSON object, too; it has `error` with one line when the request was refused.
"""

from typing import Annotated, Any

import msgspec

from drupelet.base.errors import PeerError

# The longest request line: a path has at most 4,096 bytes, a message on a channel 400.
REQUEST_SIZE_MAX = 1 << 16
# The longest answer: the status of 32 peers takes about 50 KB.
ANSWER_SIZE_MAX = 1 << 22


# What a file system can have: no path is empty or has a NUL.
PathText = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]+\Z")]


class Request(msgspec.Struct, tag_field="do", forbid_unknown_fields=True):
    """Something that the agent does, or says, for who asks."""


class AskStatus(Request, tag="status"):
    """What does the agent know of its carriers and peers?"""


class VisitStick(Request, tag="stick"):
    """Exchange with the stick that is mounted at `path`."""

    path: PathText


class Reload(Request, tag="reload"):
    """Take up the peers and modes that drupelet.toml has now."""


class ChangeKeys(Request, tag="keys"):
    """`rotate` or `revoke` the keys of a peer, by its name."""

    action: str
    name: str


class TellBoard(Request, tag="command"):
    """Tell a board to do something."""

    board: str
    operation: str
    value: int = 0


class SendEphemeral(Request, tag="ephemeral"):
    """Send a message to the members that are there now; the bytes are Base64 in JSON."""

    content: bytes


class SayOnChannel(Request, tag="channel"):
    """Send a message on a channel; the bytes are Base64 in JSON. ephemeral: once, for no log."""

    channel: str
    content: bytes
    ephemeral: bool = False


class TakePartInChat(Request, tag="chat"):
    """Create a chat, invite a peer to it, join, leave or forget it, or say something in it."""

    action: str
    chat: str
    argument: str = ""


class Push(Request, tag="push"):
    """Upload the readings to a remote log in a folder."""

    folder: PathText


class Pull(Request, tag="pull"):
    """Take in what remote logs have, and what ours in `folder` has."""

    folder: PathText


AnyRequest = (
    AskStatus | VisitStick | Reload | ChangeKeys | TellBoard | SendEphemeral | SayOnChannel
    | TakePartInChat
    | Push | Pull
)  # fmt: skip
_decoder = msgspec.json.Decoder(AnyRequest)
_answer_decoder = msgspec.json.Decoder(dict[str, Any])


def encode(message: msgspec.Struct | dict[str, Any]) -> bytes:
    """A request or an answer as one line."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> AnyRequest:
    """A request; raises PeerError with one line for anything else."""
    try:
        request: AnyRequest = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not a request: {error}") from None
    return request


def decode_answer(line: bytes) -> dict[str, Any]:
    """An answer; raises PeerError for anything else."""
    try:
        return _answer_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not an answer of an agent: {error}") from None
