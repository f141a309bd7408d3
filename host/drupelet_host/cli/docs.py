"""Writes docs/cli.md from what `--help` says: `python -m drupelet_host.cli.docs > docs/cli.md`."""

from drupelet_host.cli import app, command_tree, exit_codes

_HEAD = """# The `drupelet` command

Made by `python -m drupelet_host.cli.docs > docs/cli.md`; a test compares it with the program.
`drupelet man` prints the same as a man page, `drupelet completion SHELL` what a shell needs to
complete commands. `--json` prints the same facts for programs. The keys of `drupelet.toml` stand
in [configuration.md](configuration.md).

Whatever fails says so in one line on standard error. The exit status tells scripts what to do:

| exit status | meaning |
|---|---|
{statuses}"""


def render() -> str:
    """The whole page, the same bytes whatever the terminal."""
    app.load_commands()
    statuses = "".join(f"| {status} | {text} |\n" for status, text in exit_codes.table())
    pages = [_HEAD.replace("{statuses}", statuses)]
    pages += [
        _page(words, command.get_help(context))
        for words, command, context in command_tree.walk(app.app)
    ]
    return "".join(pages)


def _page(name: str, text: str) -> str:
    return f"\n## {name}\n\n```\n{text.strip()}\n```\n"


if __name__ == "__main__":
    print(render(), end="")
