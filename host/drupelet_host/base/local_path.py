"""Paths that a person gives: of this machine's files and folders, never of a store elsewhere."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from drupelet.base.errors import DrupeletError

# `Path` makes one slash of two, so one is enough. A scheme of one letter would be a drive.
# Without any slash only what nobody calls a folder.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+|(?i:(file|https?|s3[an]?|hdfs|abfss?|gs)):")
_LOCAL_HOST = re.compile(r"(?i:file)://(localhost)?(?=/)|(?i:file):(?=/[^/])")


class NotLocalError(DrupeletError):
    """A URI was given where only a local path will do."""


def local_path(given: str | os.PathLike[str]) -> Path:
    """The path that a text or a `file://` URI names.

    Without this `s3a://bucket/lake` would be a local folder named `s3a:`.

    Raises:
        NotLocalError: a URI of another scheme or host.
    """
    text = os.fspath(given)
    uri = _URI.match(text)
    if uri is None:
        return Path(text)
    if local := _LOCAL_HOST.match(text):
        return Path(unquote(text[local.end() :]))
    # `Path` may have made one slash of two.
    shown = text if "://" in text or not uri[1] else text.replace(":/", "://", 1)
    raise NotLocalError(
        f"{shown}: only files and folders of this machine are read and written, not"
        f" {uri[1] or uri[2]}: URIs; mount it or copy it here, and give its path"
    )
