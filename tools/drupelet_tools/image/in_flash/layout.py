# ruff: noqa: ANN401 - the classes of mpy-tool.py have no types
"""Lays functions and classes of frozen modules out in flash, as C tables.

Frozen bytecode lies in flash, but the objects around it do not: when MicroPython runs a module,
each `def` takes 16 bytes of heap, and each name in a class 8 bytes and more. All of them are known
when the image is built. So MicroPython's mpy-tool.py calls `emit` behind the bytecode that it
writes: it prints function objects and the namespaces of classes as constants, and in_flash.c.inc
hands them out where MicroPython would make them.

A class is laid out if its body only defines functions and properties and sets constants, each name
once, and if it has no base, or one that is laid out itself. Any other class is made at run time as
always, and the functions that it makes are in flash. So is a class of whose base or whose names
the board finds that they mean something else than they did to the build.

A class in flash is like one of MicroPython's own: nobody can set an attribute of it, and it has no
`__module__` and no `__qualname__`. A `def` or `lambda` that runs twice gives the same function,
unless it has default arguments or is a closure.
"""

from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

_HERE = Path(__file__).parent
_FUNCTION = """static const IN_FLASH_FUNCTION({count}) {name} = {{
    {{&{type}}}, IN_FLASH_CONTEXT({module}), {children}, fun_data_{code}, {{{defaults}}},
}};"""
_PROPERTY = """static const struct {{ mp_obj_base_t base; mp_rom_obj_t functions[3]; }} {name} = {{
    {{&mp_type_property}}, {{{getter}, MP_ROM_NONE, MP_ROM_NONE}},
}};"""
_NAMESPACE = """static const mp_rom_map_elem_t table_{name}[{size}] = {{
{rows}
}};
static const mp_obj_dict_t names_{name} = {{
    {{&mp_type_dict}},
    {{.all_keys_are_qstrs = 1, .is_fixed = 1, .used = {used}, .alloc = {size},
      .table = (mp_map_elem_t *)table_{name}}},
}};"""
_READ = """static const mp_rom_map_elem_t read_{name}[] = {{
{rows}
    {{NULL, NULL}},
}};"""
_CLASS = """static MP_DEFINE_CONST_OBJ_TYPE(
    {name}, {qstr}, IN_FLASH_FLAGS{flags}, make_new, mp_obj_instance_make_new,
    print, instance_print, call, mp_obj_instance_call, unary_op, instance_unary_op,
    binary_op, instance_binary_op, attr, mp_obj_instance_attr, subscr, instance_subscr,
    iter, mp_obj_instance_getiter, buffer, instance_get_buffer,{parent}
    locals_dict, &names_{name});"""
_HEAD = """
#include "py/in_flash.h"
#include "py/objfun.h"
#include "py/objtype.h"
#define IN_FLASH_CONTEXT(module) ((mp_module_context_t *)MP_STATE_VM(in_flash_contexts) + module)
// MicroPython's mp_obj_fun_bc_t, with default arguments.
#define IN_FLASH_FUNCTION(count) struct { \\
    mp_obj_base_t base; const mp_module_context_t *context; const void *children; \\
    const byte *bytecode; mp_rom_obj_t defaults[count]; }
// What MicroPython gives a class. IS_SUBCLASSED, which it would set later, says that nobody may
// give the class special methods any more.
#define IN_FLASH_FLAGS (MP_TYPE_FLAG_EQ_NOT_REFLEXIVE | MP_TYPE_FLAG_EQ_CHECKS_OTHER_TYPE \\
    | MP_TYPE_FLAG_EQ_HAS_NEQ_TEST | MP_TYPE_FLAG_ITER_IS_GETITER | MP_TYPE_FLAG_INSTANCE_TYPE \\
    | MP_TYPE_FLAG_IS_SUBCLASSED)
// The function of a class's body, the class, its base, and the names of the module that the body
// reads, with what they must mean.
typedef struct {
    const void *body; const mp_obj_type_t *type; const mp_obj_type_t *base;
    const mp_rom_map_elem_t *read;
} in_flash_class_t;
"""
_MAKES_FUNCTION = (
    "MAKE_FUNCTION", "MAKE_FUNCTION_DEFARGS", "MAKE_CLOSURE", "MAKE_CLOSURE_DEFARGS",
)  # fmt: skip
_JUMPS_BACK = ("JUMP", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNWIND_JUMP")
_PROPERTY_TYPE = "mp_type_property"
# What MicroPython gives every class, and a class in flash does not have.
_LEFT_OUT = ("__module__", "__qualname__")
# What a class says in its namespace of how its attributes are looked up.
_SPECIAL = frozenset(("__new__", "__setattr__", "__delattr__", "__get__", "__set__", "__delete__"))


class _NotConstantError(Exception):
    """A class body does something else than define functions and set constants."""


def emit(tool: Any, compiled_modules: list[Any], names: Collection[str]) -> None:
    """Print the C tables of modules, and what hands them out.

    tool: the module mpy-tool.py, with its opcodes; compiled_modules: what it has read and printed;
    names: which of them.
    """
    chosen: dict[str, _Layout] = {}
    for compiled in compiled_modules:
        name = compiled.source_file.str.removesuffix(".py").replace("/", ".")
        if name in names and name not in chosen:  # MicroPython imports the first of a name
            chosen[name] = _Layout(tool, len(chosen), compiled)
    print(_HEAD)
    for layout in chosen.values():
        print("\n".join(layout.tables))
    print("static const char *const in_flash_modules[] = {")
    print("".join(f'    "{name}",\n' for name in chosen) + "    NULL\n};")
    print("static const mp_obj_fun_bc_t *const in_flash_functions[] = {")
    functions = [function for layout in chosen.values() for function in layout.functions]
    print("".join(f"    (const void *)&{name},\n" for name in functions) + "    NULL\n};")
    print("static const in_flash_class_t in_flash_classes[] = {")
    classes = [row for layout in chosen.values() for row in layout.classes]
    print("".join(f"    {row},\n" for row in classes) + "    {NULL, NULL, NULL, NULL}\n};")
    print((_HERE / "in_flash.c.inc").read_text("utf-8"))


class _Layout:
    """The tables of one module. index: its place among all."""

    def __init__(self, tool: Any, index: int, compiled: Any) -> None:
        self._tool = tool
        self._index = index
        self.tables: list[str] = []
        self.functions: list[str] = []  # those without default arguments
        self.classes: list[str] = []  # rows of in_flash_classes
        # What names of the module mean, in C, as far as the build can tell. They may have got
        # another meaning when a class is made, so the board looks at them then.
        self.meanings = {"object": "mp_type_object", "property": _PROPERTY_TYPE}
        # Whether it has properties, of each class in flash, by its name in C.
        self._has_accessors = {"mp_type_object": False}
        self.constants = f"const_obj_{compiled.escaped_name}"
        self._types = {
            tool.MP_CODE_BYTECODE: "mp_type_fun_bc",
            tool.MP_CODE_NATIVE_VIPER: "mp_type_fun_viper",
        }
        self._add_module(compiled.raw_code)

    def _add_module(self, module: Any) -> None:
        """Lay out all functions that the module's own code makes, and its classes."""
        instructions = self.instructions(module)
        bases = _bases_of_classes(instructions)
        for (name, argument), (following, target) in pairwise(instructions):
            meaning = None
            if name in _MAKES_FUNCTION:
                code = module.children[argument]
                self._add_code(code, bases.get(argument))
                if name == "MAKE_FUNCTION" and code.code_kind in self._types:
                    meaning = f"function_{code.escaped_name}"
            elif name == "LOAD_NAME":
                meaning = self.meanings.get(argument.str)
            if meaning and following == "STORE_NAME":
                self.meanings[target.str] = meaning

    def _add_code(self, code: Any, bases: list[str] | None = None) -> None:
        """Lay out a function. bases: it is the body of a class that has these."""
        if code.code_kind not in self._types:
            return
        self.functions.append(self._function(code, []))
        if bases is None or not self._add_class(code, bases):
            for child in code.children:
                self._add_code(child)

    def _add_class(self, code: Any, bases: list[str]) -> bool:
        """Lay out a class; False, and nothing is, if it has to be made at run time."""
        before = len(self.tables), len(self.functions)
        try:
            base = self._base(bases)
            body = _Body(self, code)
        except _NotConstantError:
            del self.tables[before[0] :], self.functions[before[1] :]
            return False
        name = f"class_{code.escaped_name}"
        has_accessors = body.has_property or self._has_accessors.get(base, False)
        self.tables += (
            self._namespace(name, body.names),
            self._read(name, body.read),
            _CLASS.format(
                name=name,
                qstr=code.simple_name.qstr_id,
                flags=" | MP_TYPE_FLAG_HAS_SPECIAL_ACCESSORS" * has_accessors,
                parent=f" parent, &{base}," if base else "",
            ),
        )
        base_or_null = f"&{base}" if base else "NULL"
        read = f"read_{name}" if body.read else "NULL"
        row = f"{{&function_{code.escaped_name}, &{name}, {base_or_null}, {read}}}"
        self.classes.append(row)
        self._has_accessors[name] = has_accessors
        self.meanings[code.simple_name.str] = name
        return True

    def _base(self, names: list[str]) -> str:
        """The only base of a class in C, or "". Raises _NotConstantError."""
        if not names:
            return ""
        base = self.meanings.get(names[0], "")
        if len(names) > 1 or base not in self._has_accessors:
            raise _NotConstantError
        return base

    def instructions(self, code: Any) -> list[tuple[str, Any]]:
        """Names of opcodes with their arguments.

        A qstr is an object of mpy-tool.py, a jump back has the index of where it goes.
        """
        tool = self._tool
        at = code.offset_opcodes
        instructions: list[tuple[str, Any]] = []
        indices: dict[int, int] = {}
        while at < len(code.fun_data):
            kind, size, argument, extra = tool.mp_opcode_decode(code.fun_data, at)
            # A small constant is part of the opcode, as in "LOAD_CONST_SMALL_INT 3".
            name, _, constant = tool.Opcode.mapping[code.fun_data[at]].partition(" ")
            indices[at] = len(instructions)
            at += size
            if kind == tool.MP_BC_FORMAT_QSTR:
                argument = code.qstr_table[argument]
            elif kind == tool.MP_BC_FORMAT_OFFSET:
                argument = indices.get(at - (extra is not None) + argument)
            instructions.append((name, constant or argument))
        return instructions

    def method(self, code: Any, defaults: list[str]) -> str:
        """Lay a method out, and what its own code makes; a value in C."""
        if code.code_kind not in self._types:
            raise _NotConstantError
        for child in code.children:
            self._add_code(child)
        return f"MP_ROM_PTR(&{self._function(code, defaults)})"

    def property(self, getter: str) -> str:
        """Lay a property out; a value in C."""
        name = f"property_{self._index}_{len(self.tables)}"
        self.tables.append(_PROPERTY.format(name=name, getter=getter))
        return f"MP_ROM_PTR(&{name})"

    def _function(self, code: Any, defaults: list[str]) -> str:
        """Lay a function object out; its name in C."""
        is_generator = code.scope_flags & self._tool.MP_SCOPE_FLAG_GENERATOR
        self.tables.append(
            _FUNCTION.format(
                name=f"function_{code.escaped_name}",
                type="mp_type_gen_wrap" if is_generator else self._types[code.code_kind],
                module=self._index,
                children=f"children_{code.escaped_name}" if code.children else "NULL",
                code=code.escaped_name,
                count=len(defaults),
                defaults=", ".join(defaults),
            )
        )
        return f"function_{code.escaped_name}"

    def _namespace(self, name: str, values: dict[Any, str]) -> str:
        """The namespace of a class, as MicroPython searches it: by hash, with open addressing."""
        size = len(values) * 5 // 4 + 1  # one row is free, so a search for a missing name ends
        rows: dict[int, str] = {}
        for key, value in values.items():
            slot = self._hash(key.str) % size
            while slot in rows:
                slot = (slot + 1) % size
            rows[slot] = f"    [{slot}] = {{MP_ROM_QSTR({key.qstr_id}), {value}}},"
        lines = "\n".join(rows[slot] for slot in sorted(rows))
        return _NAMESPACE.format(name=name, size=size, used=len(values), rows=lines)

    def _read(self, name: str, values: dict[Any, str]) -> str:
        """The names that the body of a class reads, with what they must mean."""
        rows = [f"    {{MP_ROM_QSTR({key.qstr_id}), {value}}}," for key, value in values.items()]
        return _READ.format(name=name, rows="\n".join(rows)) if rows else ""

    def _hash(self, name: str) -> int:
        size = self._tool.config.MICROPY_QSTR_BYTES_IN_HASH
        assert size  # else MicroPython computes another hash when it looks a name up
        return int(self._tool.qstrutil.compute_hash(name.encode(), size))


class _Body:
    """What the body of a class does. Raises _NotConstantError."""

    def __init__(self, layout: _Layout, code: Any) -> None:
        self._layout = layout
        self._code = code
        # Values in C; a list of them for a tuple of default arguments; None for no such.
        self._stack: list[Any] = []
        self.names: dict[Any, str] = {}  # what it sets
        self.read: dict[Any, str] = {}  # what it reads of its module, and its meaning
        self.has_property = False
        for name, argument in layout.instructions(code):
            step = self._STEPS.get(name)
            if step is None:
                raise _NotConstantError
            step(self, argument)

    def _pop(self) -> str:
        """A value in C."""
        value = self._stack.pop()
        if not isinstance(value, str):
            raise _NotConstantError
        return value

    def _store_name(self, name: Any) -> None:
        value = self._stack.pop()
        if name.str in _LEFT_OUT:
            return
        if not isinstance(value, str) or name in self.names or name.str in _SPECIAL:
            raise _NotConstantError
        self.names[name] = value

    def _load_name(self, name: Any) -> None:
        if name.str == "__name__":  # for `__module__`
            self._stack.append(None)
        elif name in self.names:
            self._stack.append(self.names[name])
        elif name.str in self._layout.meanings:
            self.read[name] = f"MP_ROM_PTR(&{self._layout.meanings[name.str]})"
            self._stack.append(self.read[name])
        else:
            raise _NotConstantError

    def _duplicate(self, _: None) -> None:
        self._stack.append(self._stack[-1])

    def _return(self, _: None) -> None:
        if self._stack != ["MP_ROM_NONE"]:
            raise _NotConstantError  # it returns a cell for `super`

    def _load_nothing(self, _: None) -> None:
        self._stack.append(None)

    def _load_none(self, _: None) -> None:
        self._stack.append("MP_ROM_NONE")

    def _load_true(self, _: None) -> None:
        self._stack.append("MP_ROM_TRUE")

    def _load_false(self, _: None) -> None:
        self._stack.append("MP_ROM_FALSE")

    def _load_int(self, value: Any) -> None:
        self._stack.append(f"MP_ROM_INT({value})")

    def _load_string(self, value: Any) -> None:
        self._stack.append(f"MP_ROM_QSTR({value.qstr_id})")

    def _load_bytes(self, index: int) -> None:
        value = self._code.obj_table[index]
        if not isinstance(value, bytes):
            raise _NotConstantError
        name = f"{self._layout.constants}_{index}" if value else "mp_const_empty_bytes_obj"
        self._stack.append(f"MP_ROM_PTR(&{name})")

    def _build_tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)][::-1]
        self._stack.append(items or "MP_ROM_PTR(&mp_const_empty_tuple_obj)")

    def _make_function(self, index: int) -> None:
        self._stack.append(self._layout.method(self._code.children[index], []))

    def _make_function_with_defaults(self, index: int) -> None:
        keywords, defaults = self._stack.pop(), self._stack.pop()
        if keywords is not None or not isinstance(defaults, list):
            raise _NotConstantError
        self._stack.append(self._layout.method(self._code.children[index], defaults))

    def _call(self, count: int) -> None:
        getter, called = self._pop(), self._pop()
        if count != 1 or called != f"MP_ROM_PTR(&{_PROPERTY_TYPE})":
            raise _NotConstantError
        self._stack.append(self._layout.property(getter))
        self.has_property = True

    _STEPS: ClassVar[dict[str, Callable[["_Body", Any], None]]] = {
        "BUILD_TUPLE": _build_tuple,
        "CALL_FUNCTION": _call,
        "DUP_TOP": _duplicate,
        "LOAD_CONST_FALSE": _load_false,
        "LOAD_CONST_NONE": _load_none,
        "LOAD_CONST_OBJ": _load_bytes,
        "LOAD_CONST_SMALL_INT": _load_int,
        "LOAD_CONST_STRING": _load_string,
        "LOAD_CONST_TRUE": _load_true,
        "LOAD_NAME": _load_name,
        "LOAD_NULL": _load_nothing,
        "MAKE_FUNCTION": _make_function,
        "MAKE_FUNCTION_DEFARGS": _make_function_with_defaults,
        "RETURN_VALUE": _return,
        "STORE_NAME": _store_name,
    }


def _bases_of_classes(instructions: list[tuple[str, Any]]) -> dict[int, list[str]]:
    """Names of the bases of each class that a module makes, by the index of the class's body.

    Without classes in a loop, which makes another one each time.
    """
    bases: dict[int, list[str]] = {}
    loops = [(goal, at) for at, (name, goal) in enumerate(instructions) if name in _JUMPS_BACK]
    for at, (name, _) in enumerate(instructions):
        is_in_loop = any(goal is not None and goal <= at <= end for goal, end in loops)
        if name == "LOAD_BUILD_CLASS" and not is_in_loop:
            # The body's function, the name of the class, then a name for each base.
            rest = instructions[at + 3 :]
            count = next(n for n, (other, _) in enumerate(rest) if other != "LOAD_NAME")
            makes, body = instructions[at + 1]
            if makes == "MAKE_FUNCTION" and rest[count] == ("CALL_FUNCTION", 2 + count):
                bases[body] = [argument.str for _, argument in rest[:count]]
    return bases
