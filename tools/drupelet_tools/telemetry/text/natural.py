"""Names in the order in which people count: n2 before n10, 0.9.0 before 0.10.0."""

from __future__ import annotations

import re


def natural(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts n2 before n10."""
    parts = [part for part in re.split(r"([0-9]+)", text) if part]
    return [_natural_part(part) for part in parts]


def _natural_part(part: str) -> tuple[bool, int, str]:
    if part[0] not in "0123456789":
        return True, 0, part.lower()
    digits = part.lstrip("0")  # of any length, so it stays text: more digits, more
    return False, len(digits), digits
