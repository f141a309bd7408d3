"""A TOML table taken apart, with one line for what is wrong in it: file, key and remedy."""

import difflib
import re
from pathlib import Path

from drupelet.base.errors import DrupeletError

NAME_SIZE_MAX = 32
_ID = re.compile(r"[0-9a-f]{8}")
# Nobody's: what is blank or erased reads so.
_IDS_OF_NOBODY = ("00000000", "ffffffff")
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_SIZE_MAX - 1}}}")


# A value in a message is only there to be found again.
_SHOWN_SIZE_MAX = 60


def shown(value: object) -> str:
    """A value as a message quotes it: cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_SIZE_MAX else text[:_SHOWN_SIZE_MAX] + "..."


class ConfigError(DrupeletError):
    """The configuration is missing or wrong; the text names the file, the key and the remedy."""


class NotThereError(ConfigError):
    """A peer, a channel or an invitation of that name does not exist; the text names those."""


def is_name(text: str) -> bool:
    """Whether a text is a name that needs no quotes anywhere, a file's name included."""
    return bool(_NAME.fullmatch(text))


def device_id(text: str) -> bytes:
    """The 4 bytes of a device id that somebody wrote; raises ValueError with the remedy."""
    if not _ID.fullmatch(text.lower()):
        raise ValueError(f"must be 8 hex digits (4 bytes), not {shown(text)}")
    if text.lower() in _IDS_OF_NOBODY:
        raise ValueError(f"{shown(text)} stands for nobody; choose another")
    return bytes.fromhex(text)


class Table:
    """One TOML table being taken apart; remembers which keys nobody asked for."""

    def __init__(self, path: Path, where: str, values: dict[str, object]) -> None:
        self.path = path
        self.where = where
        self.values = dict(values)
        self._asked: set[str] = set()

    def wrong(self, key: str, remedy: str) -> ConfigError:
        """What to raise about a key."""
        return ConfigError(f"{self.path}: {self.where}{key}: {remedy}")

    def take(self, key: str, default: object = None) -> object:
        """The value of a key as it is written, or the default; nobody else gets it."""
        self._asked.add(key)
        return self.values.pop(key, default)

    def has(self, key: str) -> bool:
        """Whether a key that may be left out is there; a misspelt one is compared with it."""
        self._asked.add(key)
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default it must be there. Raises ConfigError, as all do."""
        value = self.take(key, default)
        if value is None:
            misspelt = difflib.get_close_matches(key, self.values, 1)
            if misspelt:
                raise self.wrong(misspelt[0], f"unknown key; did you mean {key!r}?")
            raise self.wrong(key, "missing; add it")
        if not isinstance(value, str):
            raise self.wrong(key, f"must be a text in quotes, not {shown(value)}")
        if not value:
            raise self.wrong(key, "must not be empty")
        # Bytes of the command line that are not UTF-8 stand in a str as what no file can hold.
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise self.wrong(key, f"must be text in UTF-8, not {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """A name that needs no quotes anywhere."""
        value = self.text(key)
        if not is_name(value):
            raise self.wrong(
                key,
                f"use 1 to {NAME_SIZE_MAX} letters, digits, '.', '-' or '_', not {shown(value)}",
            )
        return value

    def id(self, key: str) -> bytes:
        """A device id."""
        try:
            return device_id(self.text(key))
        except ValueError as error:
            raise self.wrong(key, str(error)) from None

    def number(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(
                key, f"must be a whole number from {low} to {high}, not {shown(value)}"
            )
        return value

    def switch(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {shown(value)}")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """Texts in brackets; none if it is not there."""
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(row, str) for row in value):
            raise self.wrong(key, 'must be names in brackets, as in ["a", "b"]')
        return tuple(value)

    def rows(self, key: str, rows_max: int, where: str = "") -> "list[Table]":
        """The tables that begin with [[key]]; messages call each `where` and its number."""
        values = self.take(key, [])
        if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
            raise self.wrong(key, f"must be tables that begin with [[{key}]]")
        if len(values) > rows_max:
            raise self.wrong(key, f"at most {rows_max}, here are {len(values)}")
        where = where or key
        return [Table(self.path, f"{where} {count}: ", row) for count, row in enumerate(values, 1)]

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some; the first is the default."""
        value = self.text(key, choices[0])
        if value not in choices:
            meant = difflib.get_close_matches(value.lower(), choices, 1)
            remedy = f"; did you mean {meant[0]!r}?" if meant else ""
            known = ", ".join(choices)
            raise self.wrong(key, f"must be one of {known}, not {shown(value)}{remedy}")
        return value

    def end(self) -> None:
        """Raise ConfigError for a key that nobody asked for."""
        for key in self.values:
            meant = difflib.get_close_matches(key, sorted(self._asked), 1)
            known = "see docs/configuration.md for those there are"
            remedy = f"did you mean {meant[0]!r}?" if meant else known
            raise self.wrong(key, f"unknown key; {remedy}")
