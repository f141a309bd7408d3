"""Private names become short ones, the same ones everywhere, and nothing else changes."""

import ast

from drupelet_tools.flash.shorten import shorten, shorten_parameters

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


def test_names_of_modules_that_share_no_objects_are_alike() -> None:
    """Each different name takes heap of a board; one object's names must stay apart."""
    base = "class Base:\n    def _first_of_base(self):\n        return 1\n"
    derived = (
        "from base import Base\nclass Derived(Base):\n    def _own_of_derived(self):\n"
        "        return self._first_of_base() + 1\n    def own(self):\n"
        "        return self._own_of_derived()\n"
    )
    other = (
        "from derived import Derived\nclass Other:\n    def _mine_alone(self):\n        return 3\n"
        "    def look(self):\n        it = Derived()\n        it._set_from_here = 5\n"
        "        return it.own() + self._mine_alone() + it._set_from_here\n"
    )
    texts, names = shorten({"base": base, "derived": derived, "other": other})
    assert len(names) == 3, "of other and the two that inherit, one name is the same"
    assert "_first_of_base or _mine_alone" in names.values()
    space: dict[str, object] = {}
    for module in ("base", "derived", "other"):
        body = "\n".join(line for line in texts[module].split("\n") if "import" not in line)
        exec(compile(body, module, "exec"), space)
    assert space["Other"]().look() == 10  # type: ignore[operator]


CALLED = """
def scale(value, factor_of_all, named_in_a_call=1):
    total = value * factor_of_all  # factor_of_all stays here
    return [total * factor_of_all, named_in_a_call]

def sums(amounts, start_at):
    return [start_at + amount for amount in amounts]

class Box:
    def put(self, thing_that_is_put, kept):
        self.kept = thing_that_is_put
        return self.take(thing_that_is_put) + kept

    def take(self, thing_that_is_put):
        _a = 2
        return thing_that_is_put * _a
"""
CALLER = "from pkg.called import Box, scale\nRESULT = scale(2, 3, named_in_a_call=4)\n"


def test_parameters_that_no_call_names_are_shortened() -> None:
    texts = shorten_parameters({"pkg.called": CALLED, "pkg.caller": CALLER})
    called = texts["pkg.called"]
    assert texts["pkg.caller"] == CALLER
    parameters = {
        node.name: [parameter.arg for parameter in node.args.args]
        for node in ast.walk(ast.parse(called))
        if isinstance(node, ast.FunctionDef)
    }
    assert parameters == {
        "scale": ["_a", "_b", "named_in_a_call"],
        "sums": ["amounts", "start_at"],  # a comprehension has names of its own
        "put": ["_a", "_b", "kept"],  # the name of an attribute is there anyway
        "take": ["_b", "_c"],
    }
    assert "# factor_of_all stays here" in called and called.count("\n") == CALLED.count("\n")
    space: dict[str, object] = {}
    exec(compile(called, "called", "exec"), space)
    assert space["scale"](2, 3, named_in_a_call=4) == [18, 4]  # type: ignore[operator]
    assert space["Box"]().put(5, 1) == 11  # type: ignore[operator]
    assert space["sums"]([1, 2], 3) == [4, 5]  # type: ignore[operator]


def test_a_parameter_that_a_program_outside_names_is_kept() -> None:
    """The script of `bench ram` calls `FlashStore(..., pending_max=...)`."""
    texts = {"one": "def call(first_long_name, second_long_name):\n    pass\n"}
    kept = shorten_parameters(texts, ("second_long_name",))["one"]
    assert "second_long_name" in kept and "first_long_name" not in kept
