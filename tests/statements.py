"""The sentences and list items of the texts under ../shared/specs, numbered by section.

A statement's number is text, section, place: B-4.2-07 is the seventh of section 4.2 of BSP v1, M5
and M6 are MVDS 0.5.1 and 0.6.0, P the wire section of the mobile paper. Titles, tables of contents
and lines that only open or close a block of code are no statements. S is SDS: there, statements
are the sentences with a key word of RFC 2119, and its sections are those that have one, in their
order.
"""

import re
from pathlib import Path

SPECS = Path(__file__).parents[2] / "shared/specs"

# A full stop in these ends no sentence.
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc)\.")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(*\"]|state )")
_MARKER = re.compile(r"^\s*(?:[-•]|\d+\.)\s+")
# Lines of MVDS that are headings but in no table of contents.
_MVDS_HEADS = {"Interactive Mode", "Batch Mode", "Term Description", "Version Comment"}
# Parts of the mobile paper's wire section; the caveats and examples between them are not wire.
_PAPER_PARTS = {"Specification and wire protocol": "1", "Types": "2", "Protobuf": "3"}
_PAPER_ENDS = {"Caveats for the minimal version (Status specific)", "Wire protocol"}

_SDS_ITEM = re.compile(r"^\s*[*>-]\s+")
_SDS_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_KEY_WORD = re.compile(r"\b(?:MUST|SHOULD|MAY|RECOMMEND)\b")


def sentences(line: str) -> list[str]:
    """Split one line, without its list marker, into sentences."""
    text = _ABBREVIATIONS.sub(lambda found: found.group().replace(".", "\0"), line)
    text = _MARKER.sub("", text).strip()
    return [part.replace("\0", ".") for part in _END.split(text)] if text else []


class _Numbering:
    def __init__(self, text: str) -> None:
        self._text = text
        self._counts: dict[str, int] = {}
        self.found: dict[str, str] = {}

    def add(self, section: str, line: str) -> None:
        if line.strip() == "}" or line.rstrip().endswith("{"):
            return
        for sentence in sentences(line):
            self._counts[section] = self._counts.get(section, 0) + 1
            self.found[f"{self._text}-{section}-{self._counts[section]:02}"] = sentence


def bsp() -> dict[str, str]:
    """Number -> statement of bsp-v1.md."""
    numbering = _Numbering("B")
    section = "0"
    for line in (SPECS / "bsp-v1.md").read_text("utf-8").splitlines():
        if line.startswith("#"):
            section = (re.findall(r"^#+ (\d[\d.]*) ", line) or [section])[0]
        else:
            numbering.add(section, line)
    return numbering.found


def mvds(text: str, name: str) -> dict[str, str]:
    """Number -> statement of one text of MVDS; its table of contents gives the sections."""
    numbering = _Numbering(text)
    lines = (SPECS / name).read_text("utf-8").splitlines()
    sections: dict[str, str] = {}
    section = "0"
    outer = ""
    for line in lines:
        entry = re.fullmatch(r"( +)(\d+)\. (.+)", line)
        if section == "0" and entry:
            outer = entry[2] if len(entry[1]) == 2 else outer
            sections[entry[3]] = outer if len(entry[1]) == 2 else f"{outer}.{entry[2]}"
        elif line in sections:
            section = sections[line]
        elif line not in _MVDS_HEADS and (section != "0" or line.endswith(".")):
            numbering.add(section, line)
    return numbering.found


def paper() -> dict[str, str]:
    """Number -> statement of the wire section of p2p-data-sync-mobile.md."""
    numbering = _Numbering("P")
    section = ""
    for line in (SPECS / "p2p-data-sync-mobile.md").read_text("utf-8").splitlines():
        head = line.lstrip("#").strip() if line.startswith("#") else ""
        if head in _PAPER_ENDS:
            section = ""
        elif head:
            section = _PAPER_PARTS.get(head, section)
        elif section and re.search(r"\w", line) and not line.startswith(("```", "| Type")):
            numbering.add(section, line)
    return numbering.found


def sds() -> dict[str, str]:
    """Number -> statement of sds.md with a key word: MUST, SHOULD, MAY, RECOMMEND."""
    numbering = _Numbering("S")
    heads: list[str] = []
    head = ""
    code = False
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for line in (SPECS / "sds.md").read_text("utf-8").splitlines():
        if line.startswith("```"):
            code = not code
        head = line.lstrip("# ") if line.startswith("#") and not code else head
        if code or not line.strip() or line.startswith(("#", "```")):
            blocks.append((head, []))
            continue
        if _SDS_ITEM.match(line):
            blocks.append((head, []))
        blocks[-1][1].append(_SDS_ITEM.sub("", line).strip())
    for head, lines in blocks:
        text = _ABBREVIATIONS.sub(lambda found: found.group().replace(".", "\0"), " ".join(lines))
        for part in _SDS_END.split(_LINK.sub(r"\1", text)):
            if _KEY_WORD.search(part):
                heads += [] if head in heads else [head]
                numbering.add(str(heads.index(head) + 1), part.replace("\0", "."))
    return numbering.found


def all_of_them() -> dict[str, str]:
    """Number -> statement of all texts, in their order."""
    return {
        **bsp(),
        **mvds("M5", "mvds-0.5.1.txt"),
        **mvds("M6", "mvds-0.6.0.txt"),
        **paper(),
        **sds(),
    }
