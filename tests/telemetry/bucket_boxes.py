"""What tests of object storage share: a bucket on loopback, and black boxes to put into it."""

import itertools

import pytest

from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.base.place import create, place
from drupelet_tools.telemetry.intake import job
from telemetry import s3_server
from telemetry.lake_content import content

PLACES = ("'file'", "'offset'")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    running = s3_server.S3Server()
    yield running
    running.close()


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
