"""The schema that docs/configuration.md is made from says what the parser does."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet_host.home import config, schema, toml_table
from drupelet_host.home.config import ConfigError
from drupelet_host.home.schema import KEYS, REQUIRED, Key

ROOT = Path(__file__).parents[2]
# One valid value of each required key, and what else a table needs.
GOOD: dict[str, dict[str, object]] = {
    "": {"name": "host", "id": "0000000a", "group": "g"},
    schema.PEERS: {"name": "gate", "id": "0000000b", "url": "mqtt://h:1883/p"},
    schema.TOPICS: {"name": "t", "url": "udp://239.0.0.1:7447"},
    schema.CHANNELS: {"name": "c", "url": "udp://239.0.0.1:7448"},
    schema.BROKERS: {"url": "mqtts://h:8883"},
    schema.FEED: {},
}
# A value of each key that is neither a number nor one of some.
OTHERS: dict[tuple[str, str], object] = {
    ("", "client"): "public",
    ("", "explode"): "7d",
    ("", "announce"): ["mqtt://h:1883/p"],
    (schema.TOPICS, "peers"): ["gate"],
    (schema.CHANNELS, "peers"): ["gate"],
    (schema.CHANNELS, "bridge"): "other",
    (schema.BROKERS, "ca_file"): "ca.pem",
    (schema.BROKERS, "certificate_file"): "own.pem",
    (schema.BROKERS, "key_file"): "own.key",
    (schema.BROKERS, "login_file"): "login",
    (schema.FEED, "place"): "folder:/media/log",
}


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def load(home: Path, table: str, **values: object) -> config.Config:
    """A file with one of each table, where `table` has `values`, too."""
    lines = []
    for name, good in GOOD.items():
        lines.append(name)
        row = good | values if name == table else good
        lines += [f"{key} = {toml(value)}" for key, value in row.items()]
    if "bridge" in values:  # to another channel
        lines += [schema.CHANNELS, 'name = "other"', 'url = "udp://239.0.0.1:7449"']
        lines += ['dialect = "sds-nim"']
    (home / config.CONFIG_NAME).write_text("\n".join(lines) + "\n")
    return config.load(home)


def needed(key: Key) -> dict[str, object]:
    """What else must be said with a value."""
    if key.name in ("explode", "explode_read", "ephemeral"):
        return {"client": "exploding"}
    if key.name == "share_with":
        return {"client": "public"}
    if key.name in ("serve", "mail"):
        return {"place": "mqtt://h:1883/p"}
    return {"certificate_file": "own.pem"} if key.name == "key_file" else {}


def parsed(settings: config.Config, key: Key) -> object:
    """What the parser made of a key of the only table of its kind."""
    if key.table == schema.FEED:
        return getattr(settings.feed, key.name)
    if not key.table:
        return getattr(settings, "explode_s" if key.name == "explode" else key.name)
    row, *_ = getattr(settings, key.table.strip("[]"))
    name = "period_ms" if key.table in (schema.TOPICS, schema.CHANNELS) else "epoch_ms"
    return getattr(row, name if key.name in ("epoch_ms", "period_ms") else key.name)


def test_the_parser_knows_these_keys_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, set[str]] = {}
    whole = toml_table.Table.end

    def end(self: toml_table.Table) -> None:
        asked.setdefault(self.where.strip(": 1"), set()).update(self._asked)
        whole(self)

    monkeypatch.setattr(toml_table.Table, "end", end)
    load(tmp_path, "")
    names = {"peer": schema.PEERS, "topics": schema.TOPICS, "channels": schema.CHANNELS,
             "broker": schema.BROKERS, "feed": schema.FEED, "": ""}  # fmt: skip
    tables = {table.strip("[]") for table in schema.TABLES if table}
    found = {(names[where], key) for where, keys in asked.items() for key in keys}
    found -= {("", table) for table in tables}
    assert found == {(key.table, key.name) for key in KEYS}
    assert len(KEYS) == len(found)


@pytest.mark.parametrize("key", [key for key in KEYS if key.high], ids=str)
def test_a_number_has_these_bounds(tmp_path: Path, key: Key) -> None:
    for value in (key.low, key.high):
        values = needed(key) | {key.name: value}
        assert parsed(load(tmp_path, key.table, **values), key) == value
    for value in (key.low - 1, key.high + 1):
        with pytest.raises(ConfigError, match=f"{key.name}: .* from {key.low} to {key.high}"):
            load(tmp_path, key.table, **{key.name: value})


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_key_is_required_or_has_this_default(tmp_path: Path, key: Key) -> None:
    if key.default == REQUIRED:
        before = dict(GOOD[key.table])
        without = {name: value for name, value in before.items() if name != key.name}
        GOOD[key.table] = without
        try:
            with pytest.raises(ConfigError, match=f"{key.name}: missing"):
                load(tmp_path, "")
        finally:
            GOOD[key.table] = before
        return
    value = parsed(load(tmp_path, ""), key)
    if isinstance(key.default, int | tuple) or key.default in key.choices:
        assert value == key.default
    else:  # in words
        assert not value or key.name == "epoch_ms"
    if key.name == "epoch_ms" and key.table:
        assert parsed(load(tmp_path, "", epoch_ms=777), key) == 777


@pytest.mark.parametrize("key", [key for key in KEYS if key.choices], ids=str)
def test_a_choice_is_one_of_these(tmp_path: Path, key: Key) -> None:
    families = {
        profile: family for family, names in config.PROFILES_OF.items() for profile in names
    }
    for value in key.choices:
        family = value if key.name == "family" else families.get(value, "bsp")
        if family != "bsp":  # which has no topics
            text = f'name = "h"\nid = "0000000a"\ngroup = "g"\nfamily = "{family}"\n'
            row = "" if key.name == "family" else f'profile = "{value}"\n'
            text += f'[[peers]]\nname = "a"\nid = "0000000b"\nurl = "mqtt://h:1883/p"\n{row}'
            (tmp_path / config.CONFIG_NAME).write_text(text)
            settings = config.load(tmp_path)
        else:
            settings = load(tmp_path, key.table, **{key.name: value})
        assert parsed(settings, key) == value
    with pytest.raises(ConfigError, match=f"{key.name}: must be one of"):
        load(tmp_path, key.table, **{key.name: "none such"})


@pytest.mark.parametrize(
    "key", [key for key in KEYS if (key.table, key.name) in OTHERS or key.kind == schema.SWITCH],
    ids=str,
)  # fmt: skip
def test_any_other_key_takes_a_value(tmp_path: Path, key: Key) -> None:
    value = OTHERS.get((key.table, key.name), not key.default)
    settings = load(tmp_path, key.table, **needed(key), **{key.name: value})
    assert parsed(settings, key) != parsed(load(tmp_path, ""), key)
    with pytest.raises(ConfigError, match=f"{key.name}: must be"):
        load(tmp_path, key.table, **needed(key), **{key.name: 5})


def test_every_optional_key_is_tried() -> None:
    tried = {key for key in KEYS if key.high or key.choices or key.kind == schema.SWITCH}
    assert {(key.table, key.name) for key in KEYS if key.default != REQUIRED} == {
        *((key.table, key.name) for key in tried), *OTHERS
    }  # fmt: skip
    assert replace(KEYS[0], name="other") not in KEYS


def test_the_page_is_made_from_the_schema() -> None:
    command = "drupelet_host.cli.configuration_page"
    done = subprocess.run(
        [sys.executable, "-m", command], capture_output=True, text=True, timeout=60, check=True
    )
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text("utf-8") == done.stdout, f"run: python -m {command} > {page}"
