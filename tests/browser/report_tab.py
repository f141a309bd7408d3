"""A page of the report in a tab, once its charts are drawn."""

DRAWN = "document.querySelectorAll('.chart[data-drawn=yes]').length"
PLACES = "document.querySelectorAll('.chart').length"


def opened(tab, path, **more):
    """The tab, with the page of a file in it; `more` as Page.open takes it."""
    tab.open(path.as_uri(), **more)
    if path.name == "index.html":  # its pictures are still
        return tab
    tab.until(f"{DRAWN} === {PLACES} && {PLACES} > 0")
    return tab
