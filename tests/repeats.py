"""A test that repeats one thing: some of its cases run in the full tier, all of them in `long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(count: int, cases: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`, tuples for several names at once; those behind the first `count`
    are of the tier `long`."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*row, marks=() if at < count else pytest.mark.long)
        for at, row in enumerate(rows)
    ]


def strides(stride: int) -> list[Any]:
    """How far it is from one step to the next that is tried: each step is tried in `long`."""
    return [
        pytest.param(stride, id=f"every {stride}"),
        pytest.param(1, id="every one", marks=pytest.mark.long),
    ]
