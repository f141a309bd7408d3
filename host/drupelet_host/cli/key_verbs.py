"""Commands about keys and what they protect: id, provision, peers, rotate, revoke, backup,
restore, doctor."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli import exit_codes
from drupelet_host.cli.common import (
    Again,
    AsJson,
    Home,
    PeerName,
    Tag,
    ask_agent,
    home_of,
    table,
)
from drupelet_host.home import config
from drupelet_host.home.config import Config
from drupelet_host.requests.shapes import ChangeKeys

if TYPE_CHECKING:
    from drupelet_host.keys.overview import ChainEpochs

# What the two sides of a chain class are called in a table.
_CLASS_HEADS = ("live out/in", "stick out/in")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (id, provision, peers, rotate, revoke, backup, restore, doctor):
        app.command()(command)


def id(
    qr: Annotated[bool, typer.Option("--qr", help="Draw it as a QR code.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show what another member may know of this one: id, name, group. No keys."""
    settings = config.load(home_of(home))
    fact = pairing_fact(settings)
    if as_json:
        output.print_json(
            {"id": settings.id.hex(), "name": settings.name, "group": settings.group, "pair": fact}
        )
        return
    output.line(f"{settings.id.hex()}  {settings.name} in group {settings.group}")
    print(fact)
    if qr:
        import segno

        segno.make(fact, error="m").terminal(out=sys.stdout, compact=True)


def pairing_fact(settings: Config) -> str:
    """What `drupelet peer add` at the other end needs: id, name, group; nothing secret."""
    from urllib.parse import quote

    group = quote(settings.group, safe="")
    return f"drupelet:{settings.id.hex()}?name={settings.name}&group={group}"


WithTo = Annotated[
    str,
    typer.Option(
        "--with-to", metavar="DIR|serial:...", help="As --to, of the other device.",
        show_default=False,
    ),
]  # fmt: skip


BoardEnd = Annotated[
    str,
    typer.Option(
        "--link", metavar="URL", show_default=False,
        help="A blank board's end of the link, as in uart:1?tx=4&rx=5; else its console.",
    ),
]  # fmt: skip


def provision(
    name: PeerName,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR|serial:...", show_default=False,
            help="Its home, the cable to it, or flash:DIR, the folder of a board's flash.",
        ),
    ],
    with_name: Annotated[
        str,
        typer.Option(
            "--with", metavar="NAME", show_default=False,
            help="Pair it with this device instead of us.",
        ),
    ] = "",
    with_to: WithTo = "",
    tag: Tag = 8,
    again: Again = False,
    link: BoardEnd = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Give a device keys of its own: random, written, proved by reading them back.

    Behind a cable the board must have no keys yet; one on an image of ours that has no
    configuration either gets that first. A folder that is no home is a board's flash
    only if `board` in drupelet.toml, or flash: before it, says so.
    """
    from drupelet_host.keys.provision import provision_pair, provision_peer

    if bool(with_name) != bool(with_to):
        raise typer.BadParameter("--with and --with-to go together")
    settings = config.load(home_of(home))
    if with_name:
        kid = provision_pair(settings, (name, with_name), (to, with_to), tag, again)
        done = f"{name} and {with_name} have keys for each other; nothing of them is kept here"
    else:
        kid = provision_peer(settings, name, to, tag, again, link)
        done = f"{name} has keys; they were read back and proved, the root is forgotten"
        _complain_of_revocation(settings, name)
    if as_json:
        output.print_json({"peer": name, "with": with_name or settings.name, "kid": f"{kid:04x}"})
    else:
        print(done)


def _complain_of_revocation(settings: Config, name: str) -> None:
    """A device with new keys that others are still to be told not to trust."""
    from drupelet_host.keys.provision import revocation_waits

    if waiting := revocation_waits(settings, name):
        output.complain(
            f"{', '.join(waiting)}: still to be told that {name} was revoked, which ends their"
            f" keys with it; `drupelet provision {name} --with ...` here makes new ones that stay"
        )


def peers(home: Home = None, as_json: AsJson = False) -> None:
    """Show every peer and how its links are sealed; no keys are shown."""
    from drupelet_host.keys.overview import peer_rows, waiting_rows

    settings = config.load(home_of(home))
    rows = peer_rows(settings) + waiting_rows(settings)
    if as_json:
        output.print_json(rows)
        return
    cells: list[tuple[str, ...]] = []
    for row in rows:
        epochs = [_epochs(row["classes"].get(name)) for name in ("live", "bundle")]
        cells.append(
            (row["name"], row["id"], row["carrier"], row["keys"], row["kid"] or "-",
             str(row["generation"]), *epochs, row["note"])
        )  # fmt: skip
    table(("peer", "id", "carrier", "keys", "key id", "gen", *_CLASS_HEADS, "note"), cells)


def _epochs(chain: "ChainEpochs | None") -> str:
    return "-" if chain is None else f"{chain['out_epoch']}/{chain['in_epoch']}"


def rotate(name: PeerName, home: Home = None, as_json: AsJson = False) -> None:
    """Give a peer a new root over the links there are, a one-way stick included."""
    done = _change("rotate", name, home)
    if as_json:
        output.print_json(done)
    else:
        print(f"{name}: generation {done['generation']} goes out with the next frames; the old"
              " keys go once the peer is heard under the new")  # fmt: skip


def revoke(name: PeerName, home: Home = None, as_json: AsJson = False) -> None:
    """Refuse a peer from now on: its keys are wiped here, and the other peers are told."""
    done = _change("revoke", name, home)
    if as_json:
        output.print_json(done)
    else:
        nobody = "nobody yet" if done["untold"] else "nobody else has keys of ours"
        print(f"{name}: refused from now on; to be told: {', '.join(done['told']) or nobody}")
    if done["untold"]:
        first, why = next(iter(done["untold"].items()))
        many = len(done["untold"]) - 1
        more = f" (and {many} more)" if many else ""
        raise DrupeletError(
            f"{first}{more}: cannot be told that {name} was revoked: {why}; then repeat"
            f" `drupelet revoke {name}`"
        )


def _change(kind: str, name: str, home: Path | None) -> dict[str, Any]:
    """By the agent if one runs: it holds the chains."""
    from drupelet_host.keys import rotate_revoke
    from drupelet_host.keys.sealing import Sealing

    settings = config.load(home_of(home))
    action = {"rotate": rotate_revoke.rotate, "revoke": rotate_revoke.revoke}[kind]
    try:
        with config.lock(settings.home):
            sealing = Sealing(settings, 0)
            try:
                done = action(settings, sealing, name)
            finally:
                sealing.close()
    except config.LockedError:
        done = ask_agent(settings, ChangeKeys(kind, name), name)
    return done


def backup(
    file: Annotated[Path, typer.Argument(help="A file that is not there.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Write configuration, store, channels and keys to one file (mode 0600).

    Keep it as safe as the home.
    """
    from drupelet_host.member.backup import back_up

    count = back_up(home_of(home), file)
    if as_json:
        output.print_json({"file": str(file), "files": count})
    else:
        print(f"{file}: {output.counted(count, 'file')}; whoever reads it can be this member")


def restore(
    file: Annotated[Path, typer.Argument(help="What `backup` wrote.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a new home from a backup; the member that it was must not run any more.

    Peers show again what was acknowledged since; no key of the old member's is used twice.
    """
    from drupelet_host.member import backup as backups

    folder = home_of(home)
    settings = backups.restore(file, folder)
    if as_json:
        output.print_json({"home": str(folder), "id": settings.id.hex(), "name": settings.name})
    else:
        print(f"{folder}: is {settings.name} ({settings.id.hex()}) again, with a new store_gen")


def doctor(home: Home = None, as_json: AsJson = False) -> None:
    """Look at everything: who can read what, locks, keys, store, sticks, clock.

    Each check is ok, warn or fail; exit status 1 if one fails.
    """
    from drupelet_host.view import doctor as doctors

    checks = doctors.examine(home_of(home))
    state = doctors.worst(checks)
    if as_json:
        output.print_json({"state": state, "checks": [check.fields() for check in checks]})
    else:
        for check in checks:
            output.line(f"{check.state:<5} {check.name}: {check.text}")
            if check.remedy:
                output.line(f"      -> {check.remedy}")
    if state == doctors.FAIL:
        raise typer.Exit(exit_codes.REFUSED)
