"""One edit that makes a row of docs/conformance.md untrue."""

from typing import NamedTuple

CORE = "firmware/drupelet/"


class Mutation(NamedTuple):
    """A number of a row, a file, and the edit: `old` stands exactly once in the file."""

    row: str
    file: str
    old: str
    new: str
