"""Watches wells: a file of levels per day, and an alarm to the group when one runs dry.

`python well_logger.py HOME FOLDER DRY_MM` runs the home's agent itself, until Ctrl-C. The boards
send what examples/well_level publishes: {"board":"well-3","level_mm":1200}.
"""

import asyncio
import json
import sys
from pathlib import Path

from drupelet_host import Message, open_home


def level_of(message: Message) -> int | None:
    """The level in a message; None where it says none."""
    try:
        level = json.loads(message.body)["level_mm"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return level if type(level) is int else None


async def main(path: str, folder: Path, dry_mm: int) -> None:
    """Log levels as they come."""
    dry: set[str] = set()
    with open_home(path) as home:
        async with home.agent():
            async for message in home.arrivals("well logger"):
                level = level_of(message)
                if level is not None and level < dry_mm and message.author not in dry:
                    home.publish(f"alarm: {message.author} is at {level} mm".encode())
                    dry.add(message.author)
                elif level is not None and level >= dry_mm:
                    dry.discard(message.author)
                if level is not None:
                    # The id tells a line that a power cut wrote twice.
                    line = f"{message.time.isoformat()} {level} {message.id[:8]}\n"
                    with (folder / f"{message.time.date()}.txt").open("a") as file:
                        file.write(f"{message.author!r} {line}")
                message.done()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    except KeyboardInterrupt:
        sys.exit(130)
