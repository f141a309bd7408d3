"""Private names become short ones, the same ones everywhere, and nothing else changes."""

import ast

from drupelet_tools.flash.shorten import shorten

ONE = '''
from pkg._two import helper

class A:
    """_text stays"""

    def __init__(self, _long_argument):
        self._counted = _long_argument
        self.kept = "_counted"

    def _private_call(self):
        return self._counted + helper(self._counted)
'''
TWO = "def helper(value):\n    _a = value\n    return _a\n"


def test_private_names_are_shortened_alike() -> None:
    texts, names = shorten({"pkg.one": ONE, "pkg._two": TWO})
    made = {name: short for short, name in names.items()}
    assert set(made) == {"_counted", "_long_argument", "_private_call", "_a"} - {"_a"}
    one = texts["pkg.one"]
    assert "from pkg._two import helper" in one and '"_counted"' in one and "__init__" in one
    assert len(set(made.values())) == 3 and "_a" not in made.values(), "a taken name is not given"
    assert one.count(made["_counted"] + " ") + one.count(made["_counted"] + ")") >= 2
    assert "_private_call" not in one and "_text stays" in one
    assert len(one.split("\n")) == len(ONE.split("\n"))
    ast.parse(one)
    assert texts["pkg._two"] == TWO
