"""What the agent and the commands print: lines for people, JSON lines for programs."""

import json
import sys


class Output:
    """Prints events to standard output, each at once."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def event(self, kind: str, text: str, /, **fields: object) -> None:
        """One line; `fields` are the JSON object's keys beside `event`."""
        if self.as_json:
            print(json.dumps({"event": kind, **fields}), flush=True)
        else:
            print(f"{kind:<10} {text}", flush=True)


def payload_text(payload: bytes) -> str:
    """A payload for a table: its text with control characters escaped, or its size and hex."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload)} B {payload[:16].hex()}{'…' if len(payload) > 16 else ''}"
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2), flush=True)


def complain(text: str) -> None:
    """The one line on standard error that says what was refused and what to do."""
    print(f"drupelet: {' '.join(text.split())}", file=sys.stderr, flush=True)
