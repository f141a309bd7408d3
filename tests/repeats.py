"""A test that repeats one thing: some of its cases run in the full tier, all of them in `long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(count: int, cases: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`; those behind the first `count` are of the tier `long`."""
    return [
        case if at < count else pytest.param(case, marks=pytest.mark.long)
        for at, case in enumerate(cases)
    ]


def strides(stride: int) -> list[Any]:
    """How far it is from one step to the next that is tried: each step is tried in `long`."""
    return [
        pytest.param(stride, id=f"every {stride}"),
        pytest.param(1, id="every one", marks=pytest.mark.long),
    ]
