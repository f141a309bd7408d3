"""docs/SPEC.md and its pages as one text: sections are numbered through all of them."""

from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("wire", "flash", "host", "lake")


@cache
def spec_text() -> str:
    """The index, then every page."""
    paths = [DOCS / "SPEC.md", *(DOCS / "spec" / f"{name}.md" for name in PAGES)]
    return "\n".join(path.read_text("utf-8") for path in paths)
