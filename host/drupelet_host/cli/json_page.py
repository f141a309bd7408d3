"""Writes docs/json.md from the shapes of what `--json` prints.

`python -m drupelet_host.cli.json_page > docs/json.md`; a test compares them.
"""

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from drupelet_host.agent.stick_visit import Report
from drupelet_host.view.doctor import Check
from drupelet_host.view.status_shapes import Status

_HEAD = """# What `--json` prints

Made by `python -m drupelet_host.cli.json_page > docs/json.md` from the shapes in the code; a test
compares it with them.

`said_ms`, and what ends in `heard_ms`, `since_ms` or `last_ms`, is a time in milliseconds since
1970; 0 stands for never. `null` stands for what nobody knows, such as how long a peer takes before
the first contact. A later release may add fields. `--help` of a command says whether it has
`--json`; [cli.md](cli.md) has all of them.
"""
# Commands, what they print, and the shape of it.
_COMMANDS: tuple[tuple[str, str, type[msgspec.Struct]], ...] = (
    ("drupelet status --json", "One object.", Status),
    ("drupelet stick DIR --json", "One object.", Report),
    (
        "drupelet doctor --json",
        "`state`, which is the worst, and `checks`, a list of these.",
        Check,
    ),
)
_TYPES = {str: "text", int: "number", float: "number", bool: "true or false", NoneType: "null"}


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for command, text, shape in _COMMANDS:
        parts.append(f"\n## `{command}`\n\n{text}\n")
        parts += [_section(each) for each in _shapes(shape)]
    return "".join(parts)


def _shapes(shape: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """A shape and those inside of it, each once."""
    shapes = [shape]
    for each in shapes:
        for hint in get_type_hints(each).values():
            shapes += [inner for inner in _structs(hint) if inner not in shapes]
    return shapes


def _structs(hint: Any) -> list[type[msgspec.Struct]]:  # noqa: ANN401 - a type of any kind
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [inner for part in get_args(hint) for inner in _structs(part)]


def _section(shape: type[msgspec.Struct]) -> str:
    hints = get_type_hints(shape, include_extras=True)
    rows = "".join(
        f"| `{field.encode_name}` | {_type_text(hint)} | {_meaning(hint)} |\n"
        for field in msgspec.structs.fields(shape)
        for hint in [hints[field.name]]
    )
    about = (shape.__doc__ or "").partition("\n")[0]
    heads = "| field | type | meaning |\n|---|---|---|\n"
    return f"\n### {shape.__name__}\n\n{about}\n\n{heads}{rows}"


def _meaning(hint: Any) -> str:  # noqa: ANN401 - a type of any kind
    """The description that a field's own type carries."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note.description for note in notes if getattr(note, "description", None)), "")


def _type_text(hint: Any) -> str:  # noqa: ANN401 - a type of any kind
    origin, arguments = get_origin(hint), get_args(hint)
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
