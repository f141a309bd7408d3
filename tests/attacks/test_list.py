"""docs/attacks.md says of every line of the fault list what happens, and what shows it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "attacks.md"
SECTIONS = {
    "Link": 8,
    "Serial": 7,
    "MQTT": 11,
    "Stick (USB, FAT)": 11,
    "Flash and power": 9,
    "Clock": 4,
    "Counters": 5,
    "Peers that lie": 14,
    "SDS": 6,
    "Peer state": 6,
}
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows_of(section: str) -> list[list[str]]:
    """The rows of one section's table, without its head."""
    text = PAGE.read_text("utf-8")
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"there is no section {section}"
    lines = [line for line in found[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_part_of_the_fault_list_has_its_rows() -> None:
    for section, count in SECTIONS.items():
        assert len(rows_of(section)) >= count, section


def test_every_row_has_a_status_and_what_shows_it() -> None:
    open_rows = 0
    for section in SECTIONS:
        for row in rows_of(section):
            assert len(row) == 4, row
            what, target, status, shown = row
            assert what and target and status in ("held", "open"), row
            tests = TEST.findall(shown)
            if status == "open":
                open_rows += 1
                assert len(shown) > 20 and not tests, f"{what}: say why it is open"
                continue
            assert tests, f"{what}: nothing shows it"
            for file, name in tests:
                source = (ROOT / file).read_text("utf-8")
                assert f"def {name}(" in source, f"{file} has no {name}"
    assert open_rows <= 3


def test_no_attack_is_there_twice() -> None:
    whats = [row[0] for section in SECTIONS for row in rows_of(section)]
    assert len(set(whats)) == len(whats)
