"""Firmware sets (docs/DESIGN.md 16): which modules a board gets for its configuration.

`sets.toml` names the modules that a set begins with and why; their imports come with them. A set
is a closed program, unless it has `everything`: what nothing in it mentions is taken out
(`shake`). Its size is counted in code lines: lines of what is compiled that are not blank, not a
comment and not a docstring.
"""

import ast
import hashlib
import io
import json
import re
import tokenize
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from drupelet_host.home.board_settings import check_modes
from drupelet_tools.bounded import read_bounded
from drupelet_tools.flash.build import (
    ARCHES,
    board_sources,
    clear_folder,
    compile_module,
    dotted,
    folded,
    holds_machine_code,
    texts_of,
)
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import JOINED, TRACE, Flat, flatten, put_instead, top_imports
from drupelet_tools.flash.kept import kept
from drupelet_tools.flash.nodes import parsed, walk, without_collections
from drupelet_tools.flash.shake import shake
from drupelet_tools.flash.shorten import shorten, shorten_parameters

TABLE = Path(__file__).with_name("sets.toml")
_DIGEST_DIGITS = 32
_SETUP, _NO_SET = "boards.setup", "firmware_set = 0"  # which tells the black box what was built
_LAYOUT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What to build; empty profiles and carriers mean the set's first, or all of `full`."""

    name: str
    profiles: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    board: str = ""
    keep: tuple[str, ...] = ()  # names that programs of the owner's call
    lacks: tuple[str, ...] = ()  # modules that the board's MicroPython has not got


@dataclass(frozen=True)
class Built:
    """What a set came to."""

    texts: dict[str, str] = field(repr=False)
    code_lines_max: int
    size: int = 0  # bytes of .mpy

    @cached_property
    def code_lines(self) -> int:
        """Those of `texts`; counting takes a fifth of the time of a build."""
        return sum(map(count_lines, self.texts.values()))

    @property
    def fits(self) -> bool:
        """Whether the code lines are within the set's limit."""
        return self.code_lines <= self.code_lines_max


@cache
def table() -> dict[str, Any]:
    """The content of sets.toml."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def resolve(choice: Choice) -> Choice:
    """The choice with its defaults; BuildError, one line, for what the set has not got."""
    sets = table()["sets"]
    if choice.name not in sets:
        raise BuildError(f"unknown set {choice.name}: one of {', '.join(sets)}")
    row = sets[choice.name]
    parts = {}
    for kind in ("profiles", "carriers"):
        wanted, offered = getattr(choice, kind), row[kind]
        for name in wanted:
            if name not in offered:
                raise BuildError(
                    f"set {choice.name} has no {kind[:-1]} {name}: one of {', '.join(offered)}"
                )
        several = row.get("everything") or kind in row.get("several", ())
        if not wanted:
            wanted = offered if several else offered[:1]
        elif len(wanted) > 1 and not several:
            raise BuildError(
                f"set {choice.name} takes one of the {kind}, not {len(wanted)}: use set full"
            )
        parts[kind] = tuple(wanted)
    for name in choice.lacks:
        if name not in table()["lacks"]:
            known = ", ".join(table()["lacks"])
            raise BuildError(f"nothing stands in for module {name} of a port: one of {known}")
    board = choice.board or row["board"]
    boards = (
        [row["board"]] if row["board"] == "micro" else sorted(table()["boards"].keys() - {"micro"})
    )
    if board not in boards:
        raise BuildError(f"set {choice.name} is for no board {board}: one of {', '.join(boards)}")
    lacks = tuple(dict.fromkeys((*choice.lacks, *table()["boards"][board].get("lacks", ()))))
    return replace(
        choice, board=board, profiles=parts["profiles"], carriers=parts["carriers"], lacks=lacks
    )


_WANTED = "give a board's configuration (docs/boards.md)"


def for_configuration(name: str, path: Path) -> Choice:
    """What a board's configuration file (docs/boards.md) asks of set `name`."""
    try:
        return for_settings(name, json.loads(read_bounded(path)))
    except OSError as error:
        raise BuildError(f"cannot read {path}: {error.strerror}") from None
    except KeyError as error:
        raise BuildError(f"{path} has no {error.args[0]}: {_WANTED}") from None
    except ValueError as error:
        raise BuildError(f"{path}: {error}: {_WANTED}") from None
    except (TypeError, AttributeError):
        raise BuildError(f"{path} has no peers as they should be: {_WANTED}") from None


def for_settings(name: str, settings: Mapping[str, Any]) -> Choice:
    """What a board's configuration asks of set `name`; KeyError or its like for none."""
    check_modes(settings)
    peers = [(peer.get("profile", "bsp-1"), peer["url"]) for peer in settings["peers"]]
    choice = resolve(
        Choice(
            name,
            tuple(dict.fromkeys(profile for profile, _ in peers)),
            tuple(dict.fromkeys(_carrier(url) for _, url in peers)),
        )
    )
    if settings.get("rows") and "boards.rows" not in reasons(choice):
        raise BuildError(f"set {name} has no boards.rows, which replays rows: use set full")
    return choice


def _carrier(url: str) -> str:
    """The carrier in sets.toml that a peer's URL asks for."""
    scheme = url.partition(":")[0]
    if scheme in ("serial", "uart", "console"):
        return "serial" if "plain=1" in url else "serial-sealed"
    return scheme


def reasons(choice: Choice) -> dict[str, str]:
    """Dotted name of each module that the choice begins with -> why."""
    choice = resolve(choice)
    row = table()["sets"][choice.name]
    own = table()["boards"][choice.board]
    reasons_by_name = {**row["modules"], **own["modules"]}
    if not row.get("built_in"):
        for kind in ("profiles", "carriers"):
            for name in getattr(choice, kind):
                reasons_by_name |= table()[kind][name]
        for name in choice.carriers:
            reasons_by_name |= own.get("carriers", {}).get(name.removesuffix("-sealed"), {})
    return reasons_by_name


@without_collections()
def texts(choice: Choice, arch: str) -> dict[str, str]:
    """Dotted name -> folded text of each module that the choice has on `arch`."""
    if arch not in ARCHES:
        raise BuildError(f"unknown architecture {arch}: one of {', '.join(ARCHES)}")
    choice = resolve(choice)
    is_native = bool(ARCHES[arch][0])
    parts = (repr(choice), str(is_native), json.dumps(table()), *texts_of(choice.board))
    return dict(kept("set", parts, lambda: _texts(choice, is_native)))


def _texts(choice: Choice, is_native: bool) -> dict[str, str]:
    sources = {dotted(path): source for source, path in board_sources(choice.board)}
    skipped = {
        name for name, source in sources.items() if not is_native and holds_machine_code(source)
    }
    roots = reasons(choice)
    if unknown := roots.keys() - sources.keys():
        raise BuildError(f"no module {', '.join(sorted(unknown))} for board {choice.board}")
    row = table()["sets"][choice.name]
    of_board = texts_of_port(choice.board, choice.lacks, frozenset(skipped))
    names = {word for text in of_board.values() for word in re.findall(r"\w+", text)}
    if missing := set(choice.keep) - names:
        raise BuildError(f"--keep {', '.join(sorted(missing))}: no such name in the firmware")
    chosen = _closure(of_board, roots, skipped)
    while not row.get("everything"):
        shaken = shake(chosen, (*choice.keep, *table()["boards"][choice.board].get("keep", ())))
        smaller = _closure(shaken, roots, skipped)
        if smaller == chosen:
            break
        chosen = smaller
    _check_lazy(choice, chosen, row)
    if _SETUP in chosen:
        chosen[_SETUP] = chosen[_SETUP].replace(_NO_SET, f"firmware_set = {row['number']}")
    return chosen


@cache
def texts_of_port(
    board: str, lacks: tuple[str, ...] = (), skipped: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Every module of a board, as a port has it that lacks these modules, and a set that skips
    those."""
    return {name: _of_port(text, lacks, skipped) for name, text in folded(board).items()}


def _of_port(text: str, lacks: Collection[str], skipped: Collection[str]) -> str:
    """A module without the ways that this port never takes: those of other interpreters, and of
    each `try` whose first line imports what some ports lack, its body or its handler. As many
    lines as before.
    """
    tree = parsed(text)
    lines = text.split("\n")
    changed = False
    for node in reversed(tree.body):
        kept = _way(node, lacks, skipped)
        if kept is not None:
            changed = True
            put_instead(lines, node, [ast.unparse(each) for each in kept])
    after = "\n".join(lines)
    if any(map(_asks_what_runs_it, tree.body)):
        after = re.sub(r"\bON_BOARD\b", "True", after)
    return _of_port(after, lacks, skipped) if changed else after


def _way(
    node: ast.stmt, lacks: Collection[str], skipped: Collection[str]
) -> list[ast.stmt] | None:
    """What stays of a statement, of which a board takes one way; None for any other."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("ON_BOARD", "not ON_BOARD"):
        return node.body if isinstance(node.test, ast.Name) else node.orelse
    if isinstance(node, ast.ImportFrom) and _asks_what_runs_it(node):
        others = [alias for alias in node.names if alias.name != "ON_BOARD"]
        return [ast.ImportFrom(node.module, others, 0)] if others else []
    if isinstance(node, ast.Try) and isinstance(node.body[0], ast.ImportFrom):
        module = node.body[0].module or ""
        if module in lacks or module in skipped:
            return node.handlers[0].body
        if module.startswith("drupelet.") or module in (*table()["lacks"], "micropython"):
            return node.body
    return None


def _asks_what_runs_it(node: ast.stmt) -> bool:
    """Whether this imports `ON_BOARD` of drupelet.base.compat."""
    return isinstance(node, ast.ImportFrom) and "ON_BOARD" in [each.name for each in node.names]


def _closure(folded: Mapping[str, str], roots: Iterable[str], skipped: set[str]) -> dict[str, str]:
    """`roots`, what they import at their top, and the packages around them."""
    texts: dict[str, str] = {}
    queue = list(roots)
    while queue:
        name = queue.pop()
        if name in texts or name not in folded or name in skipped:
            continue
        texts[name] = folded[name]
        queue += imports_on_board(parsed(folded[name]).body, folded, skipped)
        queue += [name.rpartition(".")[0]] if "." in name else []
    return dict(sorted(texts.items()))


def imports_on_board(
    body: list[ast.stmt], known: Mapping[str, str], skipped: set[str]
) -> Iterator[str]:
    """Modules that a board imports when this body runs; of a `try`, the way that works."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported(node, known)
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)
            if test not in ("not ON_BOARD", "0", "TYPE_CHECKING"):
                yield from imports_on_board(node.body, known, skipped)
            if test != "ON_BOARD":
                yield from imports_on_board(node.orelse, known, skipped)
        elif isinstance(node, ast.Try):
            wanted = list(imports_on_board(node.body, known, skipped))
            yield from wanted
            if any(name in skipped for name in wanted):
                for handler in node.handlers:
                    yield from imports_on_board(handler.body, known, skipped)


def _imported(node: ast.ImportFrom, known: Mapping[str, str]) -> Iterator[str]:
    yield node.module or ""
    for alias in node.names:
        if f"{node.module}.{alias.name}" in known:
            yield f"{node.module}.{alias.name}"


def modules(name: str, board: str) -> set[str]:
    """Dotted names of all sources that a set needs on a port, with every profile and carrier.

    As sources they import their constants, too, and the port may or may not have viper.
    """
    row = table()["sets"][name]
    roots: dict[str, str] = {}
    for profile in row["profiles"]:
        for carrier in row["carriers"]:
            roots |= reasons(Choice(name, (profile,), (carrier,), board))
    for lacking in resolve(Choice(name, board=board)).lacks:
        roots |= table()["lacks"][lacking]
    sources = {dotted(path): source for source, path in board_sources(board)}
    texts = {name: source.read_text("utf-8") for name, source in sources.items()}
    native = {name for name, source in sources.items() if holds_machine_code(source)}
    return {*_closure(texts, roots, set()), *_closure(texts, roots, native)}


def _check_lazy(choice: Choice, texts: Mapping[str, str], row: Mapping[str, Any]) -> None:
    """Each import inside a function is a decision: sets.toml has to hold it."""
    known = {dotted(path): "" for _, path in board_sources(choice.board)}
    decided = set(texts) | row.get("without", {}).keys()
    for kind in ("profiles", "carriers"):
        decided.update(*(names for names in table()[kind].values()))
    own = table()["boards"][choice.board]
    decided.update(own["modules"], own.get("without", ()), *own.get("carriers", {}).values())
    for name, text in texts.items():
        for node in walk(parsed(text)):
            wanted: list[str] = []
            if isinstance(node, ast.ImportFrom):
                wanted = list(_imported(node, known))
            elif isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            for lazy in wanted:
                if lazy in known and lazy not in decided and not _other_way(lazy):
                    raise BuildError(
                        f"{name} imports {lazy} when it is asked for: say in sets.toml whether"
                        f" set {choice.name} has it"
                    )


def _other_way(name: str) -> bool:
    """Whether a module stands in for another one, on another machine."""
    return name.rpartition(".")[2].startswith("_")


def count_lines(text: str) -> int:
    """Code lines: not blank, not a comment, not a docstring."""
    docstrings: set[int] = set()
    for node in walk(parsed(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def measure(choice: Choice, arch: str) -> Built:
    """What a set has, without compiling it."""
    return Built(texts(choice, arch), table()["sets"][choice.name]["code_lines_max"])


@without_collections()
def build_set(target: Path, arch: str, choice: Choice, *, in_place: bool = False) -> Built:
    """Compile a set for `arch` into `target`, as `build` does. Raises BuildError.

    in_place: for an image whose code runs where it lies, frozen or ROMFS. What each boot loads is
    joined, and the tables of line numbers stay, which cost no heap there. `trace.json` in `target`
    says what a traceback's names and lines stand for.
    """
    built = measure(choice, arch)
    choice = resolve(choice)
    paths = {dotted(path): path for _, path in board_sources(choice.board)}
    paths[JOINED] = Path(f"{JOINED}.py")
    clear_folder(target)
    size = 0
    parts = (repr(choice), json.dumps(table()), json.dumps(built.texts), str(in_place))
    texts, names, joined = kept("shape", parts, lambda: _shape(built, choice, in_place))
    sources = [(first, paths[name].as_posix()) for first, name in joined]
    for name, text in texts.items():
        path = paths[name]
        output = (target / path).with_suffix(".mpy")
        output.parent.mkdir(parents=True, exist_ok=True)
        compile_module(text, path, output, ARCHES[arch][0], with_lines=in_place)
        size += output.stat().st_size
    if names or sources:
        # It stays with whoever built the board: `drupelet flash trace` reads it.
        trace = {"names": names, "sources": sources}
        (target / TRACE).write_text(json.dumps(trace, indent=0, sort_keys=True), "utf-8")
    return replace(built, size=size)


def _shape(
    built: Built, choice: Choice, in_place: bool
) -> tuple[dict[str, str], dict[str, str], list[tuple[int, str]]]:
    """Texts as they are compiled, what their short names stand for, and first lines of the modules
    that were joined."""
    texts = dict(built.texts)
    names: dict[str, str] = {}
    joined: list[tuple[int, str]] = []
    if not table()["sets"][choice.name].get("everything"):
        texts, names = shorten(built.texts)
        texts = shorten_parameters(texts, choice.keep)
    if in_place:
        flat = flattened(choice, texts)
        texts, joined = flat.texts, flat.sources
        names |= {now: names.get(before, before) for now, before in flat.names.items()}
    return texts, names, joined


def flattened(choice: Choice, texts: Mapping[str, str]) -> Flat:
    """Join what this set loads at every boot.

    That is what the modules import that every boot runs: the one that starts the board, and the
    one that sets it up; and of a set with one profile and carrier what it begins with.
    """
    row = table()["image"]
    roots = [] if table()["sets"][choice.name].get("everything") else list(reasons(choice))
    for name in row["at_boot"]:
        roots += top_imports(texts[name], texts) if name in texts else []
    return flatten(texts, roots, (*row["apart"], *row["at_boot"]))


def modules_in(target: Path) -> dict[str, bytes]:
    """What `build_set` left in `target`: path below it -> content."""
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in sorted(target.rglob("*.mpy"))
    }


def digest_of(modules: Mapping[str, bytes]) -> str:
    """What names a compiled set: the same modules have the same one."""
    digest = hashlib.sha256()
    for path, content in sorted(modules.items()):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_DIGEST_DIGITS]
