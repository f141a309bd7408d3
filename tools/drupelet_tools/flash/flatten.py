"""Joins the modules that a board always loads into one, for images whose code runs in place.

There the heap holds no code, but each module still costs an object, a dictionary of its own, and
an entry in it for every name that it imports. Joined they are one dictionary without imports.
What is loaded only when a configuration asks for it, or is let go after the boot, stays a module
(`apart` in sets.toml) and imports from the joined one. So does machine code: in a module with
many names it reads wrong ones on ARMv6-M (MicroPython 1.25). Each joined module is still found
under its own name: a stub, which takes no heap before somebody imports it.

Lines of the joined module count through all that it was made of, one after the other; `sources`
says where each begins, so that a traceback still leads to its source (`trace.py`).
"""

import ast
import io
import re
import symtable
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.nodes import parsed, walk

JOINED = "drupelet_set"
# What a build leaves beside its modules for who reads a traceback (`trace.py`).
TRACE = "trace.json"


@dataclass(frozen=True)
class Flat:
    """A set with its joined module."""

    texts: dict[str, str]  # by dotted name; JOINED is one of them
    sources: list[tuple[int, str]]  # first line of each module within JOINED, and its name
    names: dict[str, str]  # what was renamed, for two modules had it: its name now -> before


def flatten(texts: Mapping[str, str], roots: Iterable[str], apart: Collection[str]) -> Flat:
    """Join `roots` and what they import at their top, but those in `apart`.

    Raises BuildError for what cannot be joined: a module that stays apart and imports from joined
    ones, but is imported at the top of one of them.
    """
    order = _in_order(texts, roots, apart)
    while objects := _used_as_objects(texts, order):
        order = [name for name in order if name not in objects]
    names = _Names({name: texts[name] for name in order})
    lines: list[str] = []
    sources = []
    seen: set[str] = set()
    for name in order:
        sources.append((len(lines) + 1, name))
        lines += _joined_text(name, texts[name], names, seen).split("\n")
    rest = {
        name: _stub(text, name, names) if name in names.final else _apart_text(name, text, names)
        for name, text in texts.items()
    }
    renamed = {
        now: before
        for of_module in names.final.values()
        for before, now in of_module.items()
        if now != before
    }
    return Flat({JOINED: "\n".join(lines), **rest}, sources, renamed)


def _stub(text: str, module: str, names: "_Names") -> str:
    """A joined module under its own name, for whoever asks for it from outside of the set: at the
    prompt, or in a program of the owner's. It has what the module defines, and what it imports."""
    exported = dict(names.final[module])
    for node in parsed(text).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                own = alias.asname or alias.name
                joined = node.module in names.final
                if f"{node.module}.{alias.name}" not in names.final:
                    exported[own] = names.of(node.module or "", alias.name) if joined else own
    shown = [
        now if now == name else f"{now} as {name}"
        for name, now in exported.items()
        if not name.startswith("_")
    ]
    return f"from {JOINED} import {', '.join(shown)}\n" if shown else "\n"


def put_instead(lines: list[str], node: ast.stmt, statements: list[str]) -> None:
    """Put other statements where one was; the count of lines stays, or grows."""
    texts = [line for statement in statements for line in statement.split("\n")]
    indent = " " * node.col_offset
    room = (node.end_lineno or node.lineno) - node.lineno + 1
    lines[node.lineno - 1 : node.end_lineno] = [indent + line for line in texts] + [""] * (
        room - len(texts)
    )


# --- which modules, in what order ---


def is_machine_code(text: str) -> bool:
    """True for a module that is compiled for a processor."""
    return re.search(r"^@micropython\.(viper|native)$", text, re.M) is not None


def top_imports(text: str, known: Collection[str]) -> list[str]:
    """The modules of the set that a module imports when it is loaded, in order."""
    imported = []
    for node in parsed(text).body:
        if isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            imported += [name for name in whole if name in known]
            imported += [name for name in (node.module or "",) if name in known]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names if alias.name in known]
    return imported


def _in_order(texts: Mapping[str, str], roots: Iterable[str], apart: Collection[str]) -> list[str]:
    """The modules to join, each after those that it imports. Packages are not joined."""
    order: list[str] = []
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name in visited:
            return
        visited.add(name)
        imported = top_imports(texts[name], texts)
        for other in imported:
            if other in apart:
                raise BuildError(f"{name} imports {other} at its top, which is to stay apart")
            visit(other)
        if is_machine_code(texts[name]):
            if imported:
                raise BuildError(f"{name} is machine code and imports {imported[0]}")
        elif not any(other.startswith(name + ".") for other in texts):
            order.append(name)

    for root in roots:
        if root not in apart:
            visit(root)
    return order


def _used_as_objects(texts: Mapping[str, str], joined: Collection[str]) -> set[str]:
    """Those of `joined` that some module hands on as a module: nothing can stand for them."""
    objects = set()
    for text in texts.values():
        tree = parsed(text)
        names = dict(_module_names(tree, joined))
        for node in walk(tree):
            for child in ast.iter_child_nodes(node):
                if (
                    isinstance(child, ast.Name)
                    and child.id in names
                    and not isinstance(node, ast.Attribute)
                ):
                    objects.add(names[child.id])
    return objects


def _module_names(tree: ast.AST, joined: Collection[str]) -> Iterator[tuple[str, str]]:
    """Local name -> module, of each `from package import module`."""
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if f"{node.module}.{alias.name}" in joined:
                    yield alias.asname or alias.name, f"{node.module}.{alias.name}"


# --- names ---


class _Names:
    """What each joined module's own names are called in the joined one."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.final: dict[str, dict[str, str]] = {}
        # What a module imports at its top from a joined one, by its own name for it.
        self._origins: dict[str, dict[str, tuple[str, str]]] = {
            module: {
                alias.asname or alias.name: (node.module or "", alias.name)
                for node in parsed(text).body
                if isinstance(node, ast.ImportFrom) and node.module in texts
                for alias in node.names
            }
            for module, text in texts.items()
        }
        words = {word for text in texts.values() for word, _ in _words(text)}
        kept = {name for module, text in texts.items() for name in _free(module, text)}
        kept |= _imported(texts).keys()
        taken: set[str] = set()
        for module, text in texts.items():
            of_module = {}
            for name in _defined(parsed(text)):
                now = name
                number = 2
                while now in taken or now in kept or (now != name and now in words):
                    now = f"{name}_{number}"
                    number += 1
                of_module[name] = now
                taken.add(now)
            self.final[module] = of_module

    def of(self, module: str, name: str) -> str:
        """The name in the joined module of what `module` defines or imports as `name`."""
        origin = self._origins[module].get(name)
        return self.of(*origin) if origin else self.final[module].get(name, name)


def _defined(tree: ast.Module) -> list[str]:
    """Names that a module gives a value to itself, at its top."""
    names: dict[str, None] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = None
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            for part in walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    names[part.id] = None
    return list(names)


def _imported(texts: Mapping[str, str]) -> dict[str, str]:
    """What joined modules import at their top from others, by the name that they have for it."""
    origins: dict[str, str] = {}
    for module, text in texts.items():
        for node in parsed(text).body:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if _imports_joined(node, texts) or getattr(node, "module", None) in texts:
                continue
            origin = node.module if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                whole = f"{origin}.{alias.name if alias.asname or origin else name}"
                if origins.setdefault(name, whole) != whole:
                    raise BuildError(f"{module} imports another {name} than a module before it")
    return origins


def _free(module: str, text: str) -> set[str]:
    """Names that a module reads and does not bind: the interpreter's."""
    top = symtable.symtable(text, module, "exec")
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    bound |= {symbol.get_name() for symbol in top.get_symbols() if symbol.is_imported()}
    read = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table is top)
        }
    return read - bound


def _words(text: str) -> Iterator[tuple[str, tokenize.TokenInfo]]:
    """Each name in a module that is no attribute, with its token."""
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and before != ".":
            yield token.string, token
        before = token.string


def _rename(module: str, text: str, names: Mapping[str, str]) -> str:
    """Give variables of a module's top other names, wherever they are read or set."""
    names = {before: now for before, now in names.items() if before != now}
    if not names:
        return text
    lines = text.split("\n")
    spots = sorted(_spots(module, parsed(text), names), reverse=True)
    for row, start, name in spots:
        line = lines[row - 1].encode()  # columns are counted in bytes
        at = line.index(name.encode(), start)
        lines[row - 1] = (line[:at] + names[name].encode() + line[at + len(name) :]).decode()
    return "\n".join(lines)


def _spots(module: str, node: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Line, and a column at or before the name, of each place to rename below a node."""
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, ast.Name) and child.id in names:
            yield child.lineno, child.col_offset, child.id
        elif isinstance(child, ast.FunctionDef | ast.ClassDef):
            if isinstance(node, ast.Module) and child.name in names:
                yield child.lineno, child.col_offset + len("def "), child.name
            bound = _bound(child)
            if isinstance(child, ast.ClassDef) and bound & names.keys():
                # Its methods do not see what it binds; what runs in its body does.
                bound = {part.name for part in child.body if isinstance(part, ast.FunctionDef)}
                _refuse(module, _bound(child) - bound, names)
                bound = set()
            inner = {before: now for before, now in names.items() if before not in bound}
        elif isinstance(child, ast.Lambda | ast.comprehension | ast.JoinedStr | ast.Global):
            _refuse(module, _bound(child), names)
        yield from _spots(module, child, inner)


def _refuse(module: str, bound: set[str], names: Mapping[str, str]) -> None:
    if clash := bound.intersection(names):
        raise BuildError(f"{module} uses {min(clash)} in a way that joining cannot rename")


def _bound(node: ast.AST) -> set[str]:
    """Names that a function, a class body or an expression binds, or hides in a string."""
    if isinstance(node, ast.Global):
        return set(node.names)
    if isinstance(node, ast.JoinedStr):
        return {part.id for part in walk(node) if isinstance(part, ast.Name)}
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        parameters = {part.arg for part in walk(node.args) if isinstance(part, ast.arg)}
        return parameters | (_stored(node.body) if isinstance(node.body, list) else set())
    if isinstance(node, ast.ClassDef):
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        values = [part for part in node.body if not isinstance(part, ast.FunctionDef)]
        return methods | _stored(values)
    return _stored([node])


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        part.id
        for node in nodes
        for part in walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


# --- texts ---


def _joined_text(module: str, text: str, names: _Names, seen: set[str]) -> str:
    """A module as part of the joined one: without imports of others of its kind, and of what was
    imported before."""
    tree = parsed(text)
    lines = text.split("\n")
    renames = dict(names.final[module])
    objects = dict(_module_names(tree, names.final))
    for node in walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        at_top = node in tree.body
        whole = ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and node.module in names.final:
            for alias in node.names:
                renames[alias.asname or alias.name] = names.of(node.module, alias.name)
        elif not _imports_joined(node, names.final) and not (at_top and whole in seen):
            seen.update([whole] * at_top)
            continue
        put_instead(lines, node, ["" if at_top else "pass"])
    text = _without_objects("\n".join(lines), objects, names)
    return _rename(module, _loads_joined(text, names.final), renames)


def _imports_joined(node: ast.Import | ast.ImportFrom, joined: Collection[str]) -> bool:
    """True when all that is imported are joined modules themselves."""
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return all(prefix + alias.name in joined for alias in node.names)


def _apart_text(module: str, text: str, names: _Names) -> str:
    """A module that stays one, importing from the joined module."""
    tree = parsed(text)
    lines = text.split("\n")
    objects = dict(_module_names(tree, names.final))
    wanted: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in names.final:
            imported = [
                (names.of(node.module, alias.name), alias.asname or alias.name)
                for alias in node.names
            ]
            shown = ", ".join(now if now == own else f"{now} as {own}" for now, own in imported)
            put_instead(lines, node, [f"from {JOINED} import {shown}"])
        elif isinstance(node, ast.ImportFrom) and _imports_joined(node, names.final):
            for part in walk(tree):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    target = objects.get(part.value.id)
                    if target:
                        wanted[names.of(target, part.attr)] = ""
            shown = ", ".join(sorted(wanted))
            put_instead(lines, node, [f"from {JOINED} import {shown}"])
        elif isinstance(node, ast.Import) and _imports_joined(node, names.final):
            put_instead(lines, node, ["" if node in tree.body else "pass"])
    words = {word for word, _ in _words(text)}
    if clash := words.intersection(wanted):
        raise BuildError(f"{module} has a name of its own that a joined module has: {min(clash)}")
    return _loads_joined(_without_objects("\n".join(lines), objects, names), names.final)


def _without_objects(text: str, objects: Mapping[str, str], names: _Names) -> str:
    """`module.name` of a joined module is `name`."""
    lines = text.split("\n")
    spots = [
        node
        for node in walk(parsed(text))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in objects
    ]
    for node in sorted(spots, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        assert isinstance(node.value, ast.Name)
        line = lines[node.lineno - 1].encode()
        now = names.of(objects[node.value.id], node.attr)
        end = node.end_col_offset
        lines[node.lineno - 1] = (line[: node.col_offset] + now.encode() + line[end:]).decode()
    return "\n".join(lines)


def _loads_joined(text: str, joined: Collection[str]) -> str:
    """Have `__import__("a joined module")`, which loads it early, load the joined one."""
    for node in walk(parsed(text)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "__import__"
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value in joined
        ):
            text = text.replace(ast.unparse(node.args[0]).replace("'", '"'), f'"{JOINED}"')
    return text
