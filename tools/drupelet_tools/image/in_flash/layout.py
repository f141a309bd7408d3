# ruff: noqa: ANN401 - the classes of mpy-tool.py have no types
"""Lays functions and classes of frozen modules out in flash, as C tables.

Frozen bytecode lies in flash, but the objects around it do not: when MicroPython runs a module,
each `def` takes 16 bytes of heap, and each name in a class 8 bytes and more. All of them are known
when the image is built. So MicroPython's mpy-tool.py calls `emit` behind the bytecode that it
writes: it prints function objects and the namespaces of classes as constants, and in_flash.c.inc
hands them out where MicroPython would make them.

A class is laid out if its body only defines functions and properties and sets constants, and if it
has no base, or one that is laid out itself. Any other class is made at run time as always, and the
functions that it makes are in flash. A class in flash is like one of MicroPython's own: nobody can
set an attribute of it. It has no `__module__` and no `__qualname__`.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
# A function in C: that of MicroPython's mp_obj_fun_bc_t, with its default arguments.
_FUNCTION = """static const struct {{
    mp_obj_base_t base; const mp_module_context_t *context; const void *children;
    const byte *bytecode; mp_rom_obj_t defaults[{count}];
}} {name} = {{
    {{&{type}}}, IN_FLASH_CONTEXT({module}), {children}, fun_data_{code}, {{{defaults}}},
}};"""
_PROPERTY = """static const struct {{ mp_obj_base_t base; mp_rom_obj_t functions[3]; }} {name} = {{
    {{&mp_type_property}}, {{{getter}, MP_ROM_NONE, MP_ROM_NONE}},
}};"""
_NAMESPACE = """static const mp_rom_map_elem_t names_{name}_table[{size}] = {{
{rows}
}};
static const mp_obj_dict_t names_{name} = {{
    {{&mp_type_dict}},
    {{.all_keys_are_qstrs = 1, .is_fixed = 1, .used = {used}, .alloc = {size},
      .table = (mp_map_elem_t *)names_{name}_table}},
}};"""
_CLASS = """{names}
static MP_DEFINE_CONST_OBJ_TYPE(
    {name}, {qstr}, IN_FLASH_FLAGS{flags}, make_new, mp_obj_instance_make_new,
    print, instance_print, call, mp_obj_instance_call, unary_op, instance_unary_op,
    binary_op, instance_binary_op, attr, mp_obj_instance_attr, subscr, instance_subscr,
    iter, mp_obj_instance_getiter, buffer, instance_get_buffer,{base}
    locals_dict, &names_{name});"""
_HEAD = """
#include "py/in_flash.h"
#include "py/objfun.h"
#include "py/objtype.h"
#define IN_FLASH_CONTEXT(module) ((mp_module_context_t *)MP_STATE_VM(in_flash_contexts) + module)
// What MicroPython gives a class. IS_SUBCLASSED, which it would set later, says that nobody may
// give the class special methods any more.
#define IN_FLASH_FLAGS (MP_TYPE_FLAG_EQ_NOT_REFLEXIVE | MP_TYPE_FLAG_EQ_CHECKS_OTHER_TYPE \\
    | MP_TYPE_FLAG_EQ_HAS_NEQ_TEST | MP_TYPE_FLAG_ITER_IS_GETITER | MP_TYPE_FLAG_INSTANCE_TYPE \\
    | MP_TYPE_FLAG_IS_SUBCLASSED)
typedef struct {
    const void *body; const mp_obj_type_t *type; const mp_obj_type_t *base;
} in_flash_class_t;
"""
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
        if name in names:
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
    for layout in chosen.values():
        for body, name, base in layout.classes:
            print(f"    {{&{body}, &{name}, {base}}},")
    print("    {NULL, NULL, NULL}\n};")
    print((_HERE / "in_flash.c.inc").read_text("utf-8"))


class _Layout:
    """The tables of one module. index: its place among all."""

    def __init__(self, tool: Any, index: int, compiled: Any) -> None:
        self._tool = tool
        self._index = index
        self.tables: list[str] = []
        self.functions: list[str] = []  # those without default arguments
        # Functions of bodies, their classes, and the bases of these or NULL, each in C.
        self.classes: list[tuple[str, str, str]] = []
        self._has_accessors = {"mp_type_object": False}  # of each class in flash, by its name in C
        self._values = {"object": "mp_type_object"}  # what names of the module mean, in C
        self._constants = f"const_obj_{compiled.escaped_name}"
        self._types = {
            tool.MP_CODE_BYTECODE: "mp_type_fun_bc",
            tool.MP_CODE_NATIVE_VIPER: "mp_type_fun_viper",
        }
        self._add_module(compiled)

    def _add_module(self, compiled: Any) -> None:
        """Lay out all functions that the module's own code makes, and its classes."""
        instructions = self._instructions(compiled.raw_code)
        bases = _bases_of_classes(instructions)
        names = Counter(argument.str for name, argument in instructions if name == "STORE_NAME")
        for at, (name, argument) in enumerate(instructions):
            following, target = instructions[min(at + 1, len(instructions) - 1)]
            if name == "MAKE_FUNCTION":
                code = compiled.raw_code.children[argument]
                self._add_code(code, bases.get(argument))
                if names[code.simple_name.str] == 1 and argument not in bases:
                    self._values[code.simple_name.str] = f"function_{code.escaped_name}"
            elif (
                name == "LOAD_NAME" and argument.str in self._values and following == "STORE_NAME"
            ):
                self._values[target.str] = self._values[argument.str]
            elif name in ("MAKE_FUNCTION_DEFARGS", "MAKE_CLOSURE", "MAKE_CLOSURE_DEFARGS"):
                self._add_code(compiled.raw_code.children[argument])

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
            names = dict(self._namespace(code))
            base = "".join(self._values.get(name, name) for name in bases)
            if base and base not in self._has_accessors:
                raise _NotConstantError
        except _NotConstantError:
            del self.tables[before[0] :], self.functions[before[1] :]
            return False
        name = f"class_{code.escaped_name}"
        self._has_accessors[name] = self._has_accessors.get(base, False) or any(
            value.startswith("MP_ROM_PTR(&property_") for value in names.values()
        )
        self._values[code.simple_name.str] = name
        self.tables.append(
            _CLASS.format(
                name=name,
                names=self._names(name, names),
                qstr=code.simple_name.qstr_id,
                flags=" | MP_TYPE_FLAG_HAS_SPECIAL_ACCESSORS" * self._has_accessors[name],
                base=f" parent, &{base}," if base else "",
            )
        )
        self.classes.append(
            (f"function_{code.escaped_name}", name, f"&{base}" if base else "NULL")
        )
        return True

    def _instructions(self, code: Any) -> list[tuple[str, Any]]:
        """Names of opcodes with their arguments; a qstr as an object of mpy-tool.py."""
        tool = self._tool
        at = code.offset_opcodes
        instructions: list[tuple[str, Any]] = []
        while at < len(code.fun_data):
            kind, size, argument, _ = tool.mp_opcode_decode(code.fun_data, at)
            if kind == tool.MP_BC_FORMAT_QSTR:
                argument = code.qstr_table[argument]
            # A small constant is part of the opcode, as in "LOAD_CONST_SMALL_INT 3".
            name, _, constant = tool.Opcode.mapping[code.fun_data[at]].partition(" ")
            instructions.append((name, constant or argument))
            at += size
        return instructions

    def _namespace(self, code: Any) -> Iterator[tuple[Any, str]]:
        """Names of a class in the order in which its body sets them, each with a value in C."""
        stack: list[Any] = []
        for name, argument in self._instructions(code):
            if name == "STORE_NAME":
                value = stack.pop()
                if argument.str in ("__module__", "__qualname__"):
                    continue
                value = self._known(value)
                if not isinstance(value, str) or argument.str in _SPECIAL:
                    raise _NotConstantError
                yield argument, value
            elif name == "DUP_TOP":
                stack.append(stack[-1])
            elif name == "RETURN_VALUE":
                if stack != ["MP_ROM_NONE"]:
                    raise _NotConstantError  # it needs a cell for `super`
            else:
                stack.append(self._value(code, name, argument, stack))

    def _known(self, value: Any) -> Any:
        """A value in C, where that of a name is known; else what it was."""
        if isinstance(value, list) and value[0] in self._values:
            return f"MP_ROM_PTR(&{self._values[value[0]]})"
        return "MP_ROM_PTR(&mp_const_empty_tuple_obj)" if value == () else value

    def _value(self, code: Any, name: str, argument: Any, stack: list[Any]) -> Any:
        """What an instruction leaves on the stack: a value in C, or what it makes one of."""
        if name == "MAKE_FUNCTION":
            return self._method(code.children[argument], [])
        if name == "MAKE_FUNCTION_DEFARGS":
            keywords, defaults = stack.pop(), stack.pop()
            if keywords is not None or not isinstance(defaults, tuple):
                raise _NotConstantError
            return self._method(code.children[argument], list(defaults))
        if name == "BUILD_TUPLE":
            items = tuple(self._known(stack.pop()) for _ in range(argument))[::-1]
            if not all(isinstance(item, str) for item in items):
                raise _NotConstantError
            return items
        if name == "CALL_FUNCTION" and argument == 1:
            getter, called = stack.pop(), stack.pop()
            if called != ["property"]:
                raise _NotConstantError
            table = f"property_{self._index}_{len(self.tables)}"
            self.tables.append(_PROPERTY.format(name=table, getter=getter))
            return f"MP_ROM_PTR(&{table})"
        if name == "LOAD_NAME":
            return [argument.str]
        if name == "LOAD_NULL":
            return None
        if name == "LOAD_CONST_STRING":
            return f"MP_ROM_QSTR({argument.qstr_id})"
        if name == "LOAD_CONST_SMALL_INT":
            return f"MP_ROM_INT({argument})"
        if name in ("LOAD_CONST_NONE", "LOAD_CONST_TRUE", "LOAD_CONST_FALSE"):
            return name.replace("LOAD_CONST", "MP_ROM")
        if name == "LOAD_CONST_OBJ" and isinstance(code.obj_table[argument], bytes):
            is_empty = code.obj_table[argument] == b""
            name = "mp_const_empty_bytes_obj" if is_empty else f"{self._constants}_{argument}"
            return f"MP_ROM_PTR(&{name})"
        raise _NotConstantError

    def _method(self, code: Any, defaults: list[str]) -> str:
        """Lay a method out, and what its own code makes."""
        if code.code_kind not in self._types:
            raise _NotConstantError
        for child in code.children:
            self._add_code(child)
        return f"MP_ROM_PTR(&{self._function(code, defaults)})"

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

    def _names(self, name: str, values: dict[Any, str]) -> str:
        """The namespace of a class, as MicroPython searches it: by hash, with open addressing."""
        size = len(values) * 5 // 4 + 1
        rows: dict[int, str] = {}
        for key, value in values.items():
            slot = self._hash(key.str) % size
            while slot in rows:
                slot = (slot + 1) % size
            rows[slot] = f"    [{slot}] = {{MP_ROM_QSTR({key.qstr_id}), {value}}},"
        lines = "\n".join(rows[slot] for slot in sorted(rows))
        return _NAMESPACE.format(name=name, size=size, used=len(values), rows=lines)

    def _hash(self, name: str) -> int:
        size = self._tool.config.MICROPY_QSTR_BYTES_IN_HASH
        assert size  # else MicroPython computes another hash when it looks a name up
        return int(self._tool.qstrutil.compute_hash(name.encode(), size))


def _bases_of_classes(instructions: list[tuple[str, Any]]) -> dict[int, list[str]]:
    """Names of the bases of each class that a module makes, by the index of the class's body."""
    bases: dict[int, list[str]] = {}
    for at, (name, _) in enumerate(instructions):
        if name == "LOAD_BUILD_CLASS" and instructions[at + 1][0] == "MAKE_FUNCTION":
            # Behind the body's function is the name of the class, then a name for each base.
            rest = instructions[at + 3 :]
            count = next(n for n, (other, _) in enumerate(rest) if other != "LOAD_NAME")
            if rest[count] == ("CALL_FUNCTION", 2 + count):
                bases[instructions[at + 1][1]] = [argument.str for _, argument in rest[:count]]
    return bases
