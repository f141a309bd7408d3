"""A Mosquitto that lets not everybody in: own CA, password file, client certificates."""

import datetime
import ipaddress
import shutil
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drupelet_tools.sim.broker import Mosquitto

PASSWORD = "two words, and an @"
Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def sign(name: str, by: Signed | None = None) -> Signed:
    """A certificate for this machine, or of an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(by is None, None), critical=True)
    )
    if by is not None:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), loopback])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(by[1] if by else key, hashes.SHA256()), key


def put(folder: Path, name: str, signed: Signed) -> None:
    """NAME.pem and NAME.key."""
    form = serialization.Encoding.PEM
    (folder / f"{name}.pem").write_bytes(signed[0].public_bytes(form))
    key = signed[1].private_bytes(
        form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(key)
    (folder / f"{name}.key").chmod(0o600)


def login(path: Path, user: str = "gate", password: str = PASSWORD) -> Path:
    path.write_text(f"{user}\n{password}\n")
    path.chmod(0o600)
    return path


class Guarded:
    """A broker's files, and the broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = sign("an authority of our own")
        put(folder, "ca", authority)
        put(folder, "other", sign("somebody else"))
        put(folder, "server", sign("localhost", authority))
        put(folder, "client", sign("gate", authority))
        login(folder / "login")
        program = shutil.which("mosquitto_passwd") or "/usr/bin/mosquitto_passwd"
        command = [program, "-c", "-b", str(folder / "users"), "gate", PASSWORD]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        self.tls = (
            f"cafile {folder}/ca.pem", f"certfile {folder}/server.pem",
            f"keyfile {folder}/server.key",
        )  # fmt: skip
        self.users = ("allow_anonymous false", f"password_file {folder}/users")
        self.broker: Mosquitto | None = None

    def start(self, *options: str) -> int:
        self.broker = Mosquitto(self.folder, *options)
        self.broker.start()
        return self.broker.port

    def table(self, url: str, **files: str) -> str:
        rows = "".join(f'{key} = "{self.folder}/{name}"\n' for key, name in files.items())
        return f'\n[[brokers]]\nurl = "{url}"\n{rows}'
