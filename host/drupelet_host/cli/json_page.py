"""Writes docs/json.md from the shapes of what `--json` prints.

`python -m drupelet_host.cli.json_page > docs/json.md`; a test compares them.
"""

from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from drupelet_host.agent.channels import ChannelMessage
from drupelet_host.agent.stick_visit import Report
from drupelet_host.cli.accepted import Accepted
from drupelet_host.keys.overview import PeerKeys
from drupelet_host.view.chat_view import ChatLine, ChatMember, ChatMessage
from drupelet_host.view.doctor import Check
from drupelet_host.view.log_view import LogLine
from drupelet_host.view.sent_commands import SentCommand
from drupelet_host.view.status_shapes import Status

_HEAD = """# What `--json` prints

Made by `python -m drupelet_host.cli.json_page > docs/json.md` from the shapes in the code; a test
compares it with them.

`said_ms`, and what ends in `heard_ms`, `since_ms` or `last_ms`, is a time in milliseconds since
1970; 0 stands for never. `null` stands for what nobody knows, such as how long a peer takes before
the first contact. A later release may add fields. `--help` of a command says whether it has
`--json`; [cli.md](cli.md) has all of them.
"""
# Commands, what they print, and the shape of it: a Struct or a TypedDict.
_COMMANDS: tuple[tuple[str, str, type], ...] = (
    ("drupelet status --json", "One object.", Status),
    ("drupelet stick DIR --json", "One object.", Report),
    (
        "drupelet doctor --json",
        "`state`, which is the worst, and `checks`, a list of these.",
        Check,
    ),
    ("drupelet put TEXT --json", "One object.", Accepted),
    ("drupelet log --json", "An object a line.", LogLine),
    ("drupelet peers --json", "A list.", PeerKeys),
    ("drupelet command BOARD --json", "A list, of the commands that were sent.", SentCommand),
    ("drupelet channel log NAME --json", "An object a line.", ChannelMessage),
    ("drupelet chat list --json", "A list.", ChatLine),
    ("drupelet chat members NAME --json", "A list.", ChatMember),
    ("drupelet chat read NAME --json", "An object a line.", ChatMessage),
)
_TYPES = {str: "text", int: "number", float: "number", bool: "true or false", NoneType: "null"}


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for command, text, shape in _COMMANDS:
        parts.append(f"\n## `{command}`\n\n{text}\n")
        parts += [_section(each) for each in _shapes(shape)]
    return "".join(parts)


def _shapes(shape: type) -> list[type]:
    """A shape and those inside of it, each once."""
    shapes = [shape]
    for each in shapes:
        for hint in get_type_hints(each).values():
            shapes += [inner for inner in _inner_shapes(hint) if inner not in shapes]
    return shapes


def _inner_shapes(hint: Any) -> list[type]:  # noqa: ANN401 - a type of any kind
    if isinstance(hint, type) and (is_typeddict(hint) or issubclass(hint, msgspec.Struct)):
        return [hint]
    return [inner for part in get_args(hint) for inner in _inner_shapes(part)]


def _section(shape: type) -> str:
    rows = "".join(
        f"| `{name}` | {_type_text(hint)} | {_meaning(hint)} |\n" for name, hint in _fields(shape)
    )
    about = (shape.__doc__ or "").partition("\n")[0]
    heads = "| field | type | meaning |\n|---|---|---|\n"
    return f"\n### {shape.__name__}\n\n{about}\n\n{heads}{rows}"


def _fields(shape: type) -> list[tuple[str, Any]]:
    """Each field's name in JSON, and its type."""
    hints = get_type_hints(shape, include_extras=True)
    if is_typeddict(shape):
        return list(hints.items())
    return [(field.encode_name, hints[field.name]) for field in msgspec.structs.fields(shape)]


def _meaning(hint: Any) -> str:  # noqa: ANN401 - a type of any kind
    """The description that a field's own type carries."""
    if get_origin(hint) is NotRequired:
        hint = get_args(hint)[0]
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note.description for note in notes if getattr(note, "description", None)), "")


def _type_text(hint: Any) -> str:  # noqa: ANN401 - a type of any kind
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return f"{_type_text(arguments[0])}; may be missing"
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_type_text, arguments))
    if origin is list:
        return f"list of {_type_text(arguments[0])}"
    if origin is dict:
        return f"object, each value a {_type_text(arguments[1])}"
    return _TYPES.get(hint) or f"[{hint.__name__}](#{hint.__name__.lower()})"


if __name__ == "__main__":
    print(render(), end="")
