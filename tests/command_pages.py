"""What the pages of the command say: docs/cli.md by command, and lines that call `drupelet`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def help_texts() -> dict[str, str]:
    """Of each command, its section in docs/cli.md, which is what `--help` says."""
    sections = (ROOT / "docs" / "cli.md").read_text("utf-8").split("\n## drupelet")[1:]
    return {title.strip(): text for title, _, text in (each.partition("\n") for each in sections)}


def unknown_options(words: list[str], texts: dict[str, str]) -> set[str]:
    """Options behind the name of a command (`peer add NAME --board rp2`) that it has not.

    Raises KeyError if there is no such command.
    """
    names = [" ".join(words[:count]) for count in (3, 2, 1)]
    name = next((name for name in names if name in texts), words[0])
    options = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", texts[name]))
    if name == "flash" and len(words) > 1:  # `flash TARGET` is `flash device TARGET`
        options |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", texts["flash device"]))
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return used - options
