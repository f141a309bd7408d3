"""Constants become numbers across modules, and a use that cannot is refused, never lost."""

import ast
from pathlib import Path

import pytest

from drupelet_tools.flash.build import ROOT, board_sources, dotted
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.fold import collect, fold

BASE = """\
from drupelet.base.compat import const

A = const(7)
NEGATIVE = const(-5)
SUM = A + 2 * A  # no call: a constant all the same
_PRIVATE = const(1 << 4)
TWICE = const(1)
TWICE = 2
NAMES = ("a", "b")
lower = const(3)
"""


def folded(text: str, base: str = BASE, name: str = "core.user") -> str:
    """`text` as a module beside `base`, which is core.base."""
    sources = {"core.base": base, name: text}
    constants = collected(sources)
    return fold(name, text, constants)


def collected(sources: dict[str, str]) -> dict[str, dict[str, int]]:
    class Source:
        def __init__(self, text: str) -> None:
            self.text = text

        def read_text(self, _encoding: str) -> str:
            return self.text

    return collect((name, Source(text)) for name, text in sources.items())  # type: ignore[misc]


def run(text: str, **known: object) -> dict[str, object]:
    """What a module's names are once it has run."""
    space: dict[str, object] = dict(known)
    exec(compile(text, "module", "exec"), space)
    return space


def test_what_is_a_constant() -> None:
    assert collected({"core.base": BASE})["core.base"] == {
        "A": 7, "NEGATIVE": -5, "SUM": 21, "_PRIVATE": 16,
    }  # fmt: skip


def test_constants_of_other_modules_in_any_order() -> None:
    found = collected(
        {
            "core.last": "from core.middle import M\nL = M + 1\n",
            "core.middle": "from core.base import A as B\nM = const(B * 2)\n",
            "core.base": BASE,
        }
    )
    assert found["core.middle"] == {"M": 14}
    assert found["core.last"] == {"L": 15}


def test_uses_become_numbers_and_lines_stay() -> None:
    text = """\
from drupelet.base.compat import const
from core.base import (
    A,
    NAMES,
    SUM as S,
)

OWN = const(A * 3)


def f(x):
    return x + A + OWN, S, NAMES
"""
    after = folded(text)
    lines, before = after.splitlines(), text.splitlines()
    assert len(lines) == len(before)
    assert lines[0] == ""  # `const` has nothing left to do
    assert lines[1] == "from core.base import NAMES"
    assert lines[7] == ""
    assert lines[11] == "    return x + 7 + 21, 21, NAMES"
    assert lines[10] == before[10]


def test_const_stays_where_it_is_called() -> None:
    text = "from drupelet.base.compat import ON_BOARD, const\n\nx = const(1)\n"
    assert folded(text) == text
    text = "from drupelet.base.compat import ON_BOARD, const\n\nX = const(1)\n"
    assert folded(text) == "from drupelet.base.compat import ON_BOARD\n\n\n"


def test_a_negative_number_keeps_its_sign() -> None:
    text = "from core.base import NEGATIVE\nx = NEGATIVE**2\ny = 1 -NEGATIVE\n"
    assert "x = (-5)**2" in folded(text)
    space = run(folded(text))
    assert (space["x"], space["y"]) == (25, 6)


def test_strings_comments_and_attributes_are_left_alone() -> None:
    text = '''\
from core.base import A

"""A in a docstring"""
x = "A", b"A", A  # A
y = f"A {x}"
z = x.A
w = dict(A=A)
ü, v = "ü", (A, "ü", A)
'''
    after = folded(text)
    assert '"""A in a docstring"""' in after
    assert 'x = "A", b"A", 7  # A' in after
    assert 'y = f"A {x}"' in after
    assert "z = x.A" in after
    assert "w = dict(A=7)" in after
    assert 'ü, v = "ü", (7, "ü", 7)' in after


def test_types_do_not_reach_the_board() -> None:
    text = """\
TYPE_CHECKING = False
if TYPE_CHECKING:
    from core.base import A

    class Shape:
        pass


x: "Shape" = 1
if TYPE_CHECKING:
    from typing import Any as Base

    pass
else:
    Base = object
y = 2
"""
    after = folded(text)
    assert len(after.splitlines()) == len(text.splitlines())
    assert "class" not in after
    assert "import" not in after
    assert "TYPE_CHECKING" not in after
    assert run(after)["Base"] is object


def test_limits_keep_their_names() -> None:
    constants = collected({"drupelet.base.limits": BASE})
    assert fold("drupelet.base.limits", BASE, constants) == BASE


def test_a_name_bound_twice_is_no_constant() -> None:
    for rest in (
        "def f(A):\n    return A\n",
        "def f():\n    A = 1\n    return A\n",
        "class A:\n    pass\n",
        "def f():\n    global A\n",
        "for A in ():\n    pass\n",
        "class B:\n    A = 3\n",
        "try:\n    pass\nexcept OSError as A:\n    pass\n",
    ):
        text = f"from drupelet.base.compat import const\nA = const(1)\n{rest}"
        assert collected({"core.user": text})["core.user"] == {}
        assert folded(text) == text


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("import core.base\n\nx = core.base.A\n", "from core.base import A"),
        ("import core.base as b\n\nx = b.A\n", "from core.base import A"),
        ("from core import base\n\nx = base.A\n", "from core.base import A"),
        ("from core import base as b\n\n\ndef f():\n    return b.SUM\n", "import SUM"),
        ("def f():\n    import core.base\n    return core.base.A\n", "from core.base import A"),
        ("def f():\n    from core.base import A\n    return A\n", "at the top level"),
        ("try:\n    from core.base import A\nexcept ImportError:\n    A = 1\n", "top level"),
        ("from core.base import *\n", "by name"),
        ("from core.base import A\n\nx = f'{A}'\n", "f-string"),
        ("from core.base import A\n\nx = f'{1:{A}}'\n", "f-string"),
        ("from core.base import A\n\n\ndef f(A):\n    return A\n", "hides"),
        ("from core.base import A\n\n\ndef f():\n    A = 3\n", "hides"),
        ("from core.base import A\n\n\nclass B:\n    A = 3\n", "hides"),
        ("from core.base import A\n\nx = [A for A in ()]\n", "hides"),
        ("from core.base import A\n\n\ndef A():\n    pass\n", "hides"),
        ("X = 4\nx = f'{X}'\n", "f-string"),
    ],
)
def test_what_would_not_be_found_on_the_board_is_refused(use: str, why: str) -> None:
    with pytest.raises(BuildError) as caught:
        folded(use)
    assert why in str(caught.value)
    assert str(caught.value).startswith("core.user, line ")


def test_limits_may_be_used_by_attribute() -> None:
    constants = collected({"drupelet.base.limits": BASE, "core.user": ""})
    text = "from drupelet import limits\n\nx = limits.A\n"
    assert fold("core.user", text, constants) == text


def test_the_firmware_keeps_its_lines_and_loses_its_constants() -> None:
    sources = [(dotted(path), source) for source, path in board_sources("unix")]
    constants = collect(sources)
    assert sum(len(names) for names in constants.values()) > 150
    for name, source in sources:
        text = Path(source).read_text("utf-8")
        after = fold(name, text, constants)
        assert len(after.splitlines()) == len(text.splitlines()), name
        tree = ast.parse(after)
        if name == "drupelet.base.limits":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                assert node.id not in constants[name], f"{name}: {node.id}"
            if isinstance(node, ast.ImportFrom):
                left = {alias.name for alias in node.names} & set(
                    constants.get(node.module or "", {})
                )
                assert not left, f"{name}: {left}"
    assert (ROOT / "firmware").is_dir()
