"""How long something lasts, as a person writes it: 90min, 12h, 7d."""

import re

# What a mistake is told.
FORMS = "90s, 30min, 12h, 7d or 2w"
_DURATION = re.compile(r"(\d{1,9}) ?(s|min|m|h|d|w)")
_UNIT_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_s(text: str) -> int | None:
    """The seconds that a text stands for; None: it is no duration."""
    parts = _DURATION.fullmatch(text)
    return int(parts[1]) * _UNIT_S[parts[2]] if parts else None


def duration_text(seconds: int) -> str:
    """The reverse, in the largest unit of which it is a whole number."""
    for unit in ("d", "h", "min"):
        if seconds and not seconds % _UNIT_S[unit]:
            return f"{seconds // _UNIT_S[unit]}{unit}"
    return f"{seconds}s"
