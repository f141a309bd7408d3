"""Writes docs/configuration.md from the schema of `drupelet.toml`.

`python -m drupelet_host.cli.configuration_page > docs/configuration.md`; a test compares them.
"""

from drupelet_host.home.model import CONFIG_SIZE_MAX, PEERS_CONFIGURED_MAX, SHARED_MAX
from drupelet_host.home.schema import KEYS, REQUIRED, SWITCH, TABLES, Key

_HEAD = f"""# drupelet.toml

Made by `python -m drupelet_host.cli.configuration_page > docs/configuration.md` from the schema in
`host/drupelet_host/home/schema.py`; a test tries every row on the parser.

`drupelet init` makes the file in the home, `drupelet peer add` and `remove` change it and keep its
comments and its order. It is TOML of at most {CONFIG_SIZE_MAX:,} bytes, with at most
{PEERS_CONFIGURED_MAX} peers, {SHARED_MAX} topics and {SHARED_MAX} channels. A key that does not
exist is refused, and so is a value out of bounds: one line names the file, the key and the remedy.
An agent that runs takes up a changed list of peers with the next `drupelet peer` command, all else
when it is started again. [field-guide.md](field-guide.md) has examples.
"""


def render() -> str:
    """The whole page."""
    pages = [_HEAD]
    for table, text in TABLES.items():
        title = f"`{table}`" if table else "The file"
        pages.append(f"\n## {title}\n\n{text}\n\n| key | type | default | bounds | meaning |\n")
        pages.append("|---|---|---|---|---|\n")
        pages += [_row(key) for key in KEYS if key.table == table]
    return "".join(pages)


def _row(key: Key) -> str:
    kind = f"{key.kind}, {key.unit}" if key.unit else key.kind
    return f"| `{key.name}` | {kind} | {_default(key)} | {_bounds(key)} | {key.text} |\n"


def _default(key: Key) -> str:
    if key.default == REQUIRED:
        return "required"
    if key.default == ():
        return "none"
    if key.kind == SWITCH:
        return "`true`" if key.default else "`false`"
    if isinstance(key.default, int):
        return f"{key.default:,}"
    return f'`"{key.default}"`' if key.default in key.choices else str(key.default)


def _bounds(key: Key) -> str:
    if key.high:
        zero = "0, or " if key.default == 0 else ""
        return f"{zero}{key.low:,} to {key.high:,}"
    return ", ".join(f"`{choice}`" for choice in key.choices)


if __name__ == "__main__":
    print(render(), end="")
