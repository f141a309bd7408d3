"""Syntax trees that are only read, and their nodes."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

_TREES_MAX = 512  # of some 50 KB; a board has 180 modules, of which sets leave out some parts


@lru_cache(_TREES_MAX)
def parsed(text: str) -> ast.Module:
    """The tree of a module, which nobody may change: sets have most of their modules in common."""
    return ast.parse(text)


@contextmanager
def without_collections() -> Iterator[None]:
    """Have Python look for no cycles of objects meanwhile: trees have none, but so many nodes that
    the search takes a third of a build's time."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def walk(top: ast.AST) -> list[ast.AST]:
    """`top` and all nodes below it, but those that say how a name is used (`ctx`).

    In the order of `ast.walk`, in a third of its time.
    """
    nodes = [top]
    for node in nodes:
        for field in node._fields:
            if field != "ctx":
                value = getattr(node, field, None)
                if isinstance(value, list):
                    nodes += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    nodes.append(value)
    return nodes
