"""What tests of `drupelet flash` share: sets that are compiled once, and what a person reads."""

from typing import Any

from drupelet_tools.flash import steps
from drupelet_tools.flash.probe import Facts
from drupelet_tools.flash.report import Report

_whole_build = steps.build
_builds: dict[tuple[object, ...], dict[str, bytes]] = {}


def build_once(set_name: str, facts: Facts, wanted: dict[str, Any]) -> dict[str, bytes]:
    """Instead of `steps.build`, which takes seconds for each kind of board."""
    key = (set_name, facts.port, facts.arch, facts.rom, facts.digest)
    if key not in _builds:
        _builds[key] = _whole_build(set_name, facts, wanted)
    return dict(_builds[key])


class Lines(Report):
    """What a person reads."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []
        self.checks: dict[str, tuple[bool | None, str]] = {}

    def note(self, text: str) -> None:
        self.lines.append(text)

    def table(self, checks: list[tuple[str, bool | None, str]]) -> None:
        self.checks = {name: (passed, seen) for name, passed, seen in checks}
