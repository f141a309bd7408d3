"""What a board's traceback means: the lines of a joined module, and its short names.

    File "drupelet_set.py", line 2104, in _ab   ->   File "drupelet/engine/outbox.py", line 88, in
    _free_row

`trace.json`, which a build leaves beside its modules, says what stands for what:
`{"names": {short: name}, "sources": [[first line in the joined module, path], ...]}`.
"""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from drupelet_tools.bounded import read_bounded
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import JOINED

_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@dataclass(frozen=True)
class Trace:
    """What a build's short names and joined lines were."""

    names: dict[str, str]
    sources: list[tuple[int, str]]

    @classmethod
    def load(cls, path: Path) -> "Trace":
        """Read a trace.json. Raises BuildError."""
        try:
            content = json.loads(read_bounded(path))
            names = {str(short): str(name) for short, name in content["names"].items()}
            sources = sorted((int(first), str(name)) for first, name in content["sources"])
        except OSError as error:
            raise BuildError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BuildError(
                f"{path}: no trace.json: give the one that the build of this board left"
            ) from None
        return cls(names, sources)

    def place(self, file: str, line: int) -> tuple[str, int]:
        """The source and its line of a place in a traceback."""
        if file == f"{JOINED}.py":
            row = bisect_right(self.sources, line, key=lambda source: source[0]) - 1
            if row >= 0:
                first, file = self.sources[row]
                line -= first - 1
        return file, line

    def places(self, text: str) -> list[dict[str, str | int]]:
        """File, line and function of each line of a traceback, as the source has them."""
        rows: list[dict[str, str | int]] = []
        for match in _PLACE.finditer(text):
            file, line = self.place(match[1], int(match[2]))
            function = self.names.get(match[3], match[3])
            rows.append({"file": file, "line": line, "function": function})
        return rows

    def translated(self, text: str) -> str:
        """A text with each place and name of a traceback in it as the source has them."""

        def shown(match: re.Match[str]) -> str:
            file, line = self.place(match[1], int(match[2]))
            return f'File "{file}", line {line}, in {self.names.get(match[3], match[3])}'

        lines = [_PLACE.sub(shown, line) for line in text.splitlines(keepends=True)]
        return "".join(
            line if "File " in line else re.sub(r"\b_[a-z]{1,2}\b", self._name, line)
            for line in lines
        )

    def _name(self, match: re.Match[str]) -> str:
        return self.names.get(match[0], match[0])
