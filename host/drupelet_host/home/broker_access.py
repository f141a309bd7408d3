"""How this host gets into its brokers: the [[brokers]] tables of `drupelet.toml`.

    [[brokers]]
    url = "mqtts://broker.example:8883"    # host and port; without a prefix: it holds for all
    ca_file = "ca.pem"                     # who signed its certificate, if not a public authority
    certificate_file = "gate.pem"          # our own, where the broker wants one
    key_file = "gate.key"                  # its key, mode 0600
    login_file = "broker.login"            # mode 0600: the user's line, then the password's

A relative path begins at the home. The files are read when a connection is first wanted, and
nothing of them is in a message.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drupelet.base.errors import DrupeletError
from drupelet_host.home import private_files
from drupelet_host.home.toml_table import Table, shown
from drupelet_transports.common.url import Url, parse_url

if TYPE_CHECKING:
    from drupelet_transports.host.mqtt_access import Access

# Every peer may be behind a broker of its own.
BROKERS_MAX = 32
# A user and a password of MQTT may have 65,535 bytes each; nobody has typed these.
LOGIN_SIZE_MAX = 1024
# What parse_url asks for behind a port.
_ANY_PREFIX = "-"
_FILES = ("ca_file", "certificate_file", "key_file", "login_file")


@dataclass(frozen=True)
class BrokerSettings:
    """One table; files that it does not name are None."""

    url: str
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    login_file: Path | None = None

    @property
    def parsed(self) -> Url:
        """The URL taken apart; its path means nothing."""
        return parse_url(f"{self.url.rstrip('/')}/{_ANY_PREFIX}")

    def files(self) -> list[tuple[str, Path]]:
        """The keys of the files that it names, each with its path."""
        named = [(key, getattr(self, key)) for key in _FILES]
        return [(key, path) for key, path in named if path is not None]

    @property
    def secrets(self) -> list[Path]:
        """The files that nobody else may read."""
        key_file = self.key_file or self.certificate_file
        return [path for path in (key_file, self.login_file) if path is not None]


def key_of(url: Url) -> tuple[str, int, bool]:
    """What tells brokers apart: what was said of one over TLS does not hold without it."""
    return (url.host, url.port, url.tls)


def read_table(part: Table, home: Path) -> BrokerSettings:
    """One [[brokers]] table; raises ConfigError."""
    text = part.text("url")
    files = {key: _file(part, key, home) for key in _FILES}
    settings = BrokerSettings(text, **files)
    try:
        url = settings.parsed
    except DrupeletError as error:
        raise part.wrong("url", str(error)) from None
    if url.scheme != "mqtt" or url.path != _ANY_PREFIX:
        raise part.wrong(
            "url",
            "must be a broker without a prefix, as in mqtts://broker.example:8883,"
            f" not {shown(text)}",
        )
    for key in _FILES[:-1]:
        if files[key] is not None and not url.tls:
            raise part.wrong(key, f"is for TLS; write mqtts://{text.partition('://')[2]}")
    if settings.key_file is not None and settings.certificate_file is None:
        raise part.wrong("key_file", "needs the certificate_file that it belongs to")
    part.end()
    return settings


def _file(part: Table, key: str, home: Path) -> Path | None:
    if not part.has(key):
        part.take(key)  # so that it is known to exist
        return None
    return home / Path(part.text(key)).expanduser()


def access(brokers: tuple[BrokerSettings, ...], url: Url) -> "Access":
    """What the broker of a URL asks for. Raises PrivateError, StorageError or TransportError."""
    from drupelet_transports.host.mqtt_access import Access, tls_context

    broker = next((row for row in brokers if key_of(row.parsed) == key_of(url)), None)
    if broker is None:
        return Access(context=tls_context(url.host) if url.tls else None)
    for path in broker.secrets:
        private_files.check(path)
    user, password = _login(broker.login_file) if broker.login_file is not None else ("", "")
    if not url.tls:
        return Access(user, password)
    context = tls_context(url.host, broker.ca_file, broker.certificate_file, broker.key_file)
    return Access(user, password, context)


def _login(path: Path) -> tuple[str, str]:
    """User and password; raises PrivateError or StorageError."""
    try:
        lines = private_files.read(path, LOGIN_SIZE_MAX).decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) != 2 or not all(lines):
        raise private_files.PrivateError(
            f"{path}: must be two lines of text, the user's name and the password"
        )
    return lines[0], lines[1]
