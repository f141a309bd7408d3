"""A lake and inputs on object storage: the tables of a local lake, whatever goes wrong."""

import itertools

import pytest

from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry import compact, job
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.place import create, place
from telemetry import s3_server
from telemetry.lake_content import content

PLACES = ("'file'", "'offset'")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    made = s3_server.S3Server()
    yield made
    made.close()


@pytest.fixture
def bucket(server, monkeypatch):
    """The URI of an empty bucket, and what the tools must know to find it."""
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    return server.make_bucket(f"bucket-{next(_numbers)}")


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """A damaged corpus in many packs, and what is in a lake of it."""
    folder = tmp_path_factory.mktemp("boxes")
    corpus_files.write(folder / "in", corpus_files.Corpus(30_000, 6, 8, damage=True, seed=6))
    ingest([folder / "in"], folder / "lake")
    return sorted((folder / "in").glob("*.dbxpack")), tables_of(folder / "lake")


def ingest(paths, root):
    return job.ingest([place(path) for path in paths], place(root), {}, None, events=True)


def upload(paths, folder):
    """Put files into a folder of the store."""
    for path in paths:
        with create(place(folder) / path.name) as out:
            out.write(path.read_bytes())
    return folder


def tables_of(root):
    """All rows of all tables, wherever the files were."""
    tables = content(place(root))
    tables["quarantine"] = sorted(
        ", ".join(part for part in row.split(", ") if not part.startswith(PLACES))
        for row in tables["quarantine"]
    )
    return tables


def test_inbox_and_lake_there_give_the_tables_of_a_local_lake(boxes, bucket, tmp_path):
    packs, wanted = boxes
    inbox = upload(packs[:5], f"{bucket}/inbox")
    root = f"{bucket}/a lake/of mine"
    assert ingest([inbox, *packs[5:7]], root)["new"] > 0
    again = ingest([f"{inbox}/{packs[0].name}", *packs], root)
    assert again["new"] > 0 and again["repeated"] > 0
    assert tables_of(root) == wanted
    assert ingest([bucket, *packs], root)["new"] == 0, "its own packs are no input"
    assert compact.compact(place(root)).files == 2
    assert tables_of(root) == wanted
    assert ingest([f"{root}/packs"], tmp_path / "lake")["new"] > 0
    ingest([inbox, *packs[5:]], tmp_path / "lake")
    assert tables_of(tmp_path / "lake") == wanted


@pytest.mark.parametrize(
    "fault",
    [
        s3_server.every(3, s3_server.BROKEN, "PUT", "GET", "HEAD"),
        s3_server.every(2, s3_server.BUSY, "PUT", "GET", "POST"),
        s3_server.every(3, s3_server.CUT, "GET"),
        s3_server.every(3, s3_server.LOST, "PUT", "GET"),
    ],
    ids=["broken", "busy", "cut", "lost"],
)
def test_what_partly_fails_changes_nothing(boxes, bucket, server, fault):
    packs, wanted = boxes
    inbox = upload(packs, f"{bucket}/inbox")
    root = f"{bucket}/lake"
    ingest(packs[:1], root)
    refused = 0
    with server.failing(fault):
        for some in (packs[:3], [inbox], packs[2:]):
            try:
                ingest(some, root)
            except TelemetryError as told:
                refused += 1
                print(told)
        try:
            compact.compact(place(root))
        except TelemetryError as told:
            print(told)
    print(refused, server.faults)
    ingest(packs, root)
    assert tables_of(root) == wanted
