"""A small certificate authority: what a cluster's parts need to know each other by mutual TLS.

A folder holds `ca.pem` and `ca-key.pem`, and for each host `NAME.pem` and `NAME-key.pem`. A host
gets its own two files and `ca.pem`, never `ca-key.pem`: a user who has that is the authority. Run
again with the same folder, the authority stays, and so does every certificate that says the right
names and roles and lasts for long enough; so this may stand in a script that runs every day.

What its holder may do is in the certificate, as names of the form `weft://ROLE/NAME`
(`weft.protocol.access.Role`).
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weft.model.errors import InputError
from weft.protocol.access import ANY_NODE, URI

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
# Browsers and libraries accept no longer lifetime.
HOST_DAYS = 397
# A certificate with less of its life left is made again.
RENEWAL_LIFE_FRACTION = 0.25
# The maker's clock and a host's may differ so much.
CLOCK_SKEW_MAX = timedelta(hours=1)
# What runs on a host dials its services so.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Made:
    """One certificate of the folder; `fresh` where it was made just now.

    `roles` are as weft://node/n1.
    """

    name: str
    certificate: Path
    key: Path
    names: tuple[str, ...]
    fresh: bool
    roles: tuple[str, ...] = ()


# An option of `weft certificates` gives these roles to what it names, {} being the name.
KINDS: dict[str, tuple[str, ...]] = {
    "host": ("node/{}", "am/{}"),
    "manager": ("rm/{}", "am/{}", "gateway/{}"),
    "emulator": (f"node/{ANY_NODE}", "am/{}"),
    "client": ("client/{}",),
    "admin": ("admin/{}",),
}
# People dial and are not dialled.
PERSON_KINDS = ("client", "admin")


def make(
    folder: Path,
    hosts: Sequence[str],
    days: int = HOST_DAYS,
    others: Mapping[str, Sequence[str]] | None = None,
) -> list[Made]:
    """Make the authority, if there is none, and a certificate for each of `hosts` and `others`.

    A host is `NAME` or `NAME,OTHER,...`: the file's name, then other names and addresses by which
    the host is dialled. `others` are by kind (`KINDS`). A name of several kinds gets one
    certificate with all their roles. Raises InputError for a name that cannot be one.
    """
    wanted: dict[str, _Wanted] = {}
    for kind, texts in {"host": hosts, **(others or {})}.items():
        for text in texts:
            names = _names(text, f"--{kind}")
            one = wanted.setdefault(names[0], _Wanted([], [], kind in PERSON_KINDS))
            one.person &= kind in PERSON_KINDS
            one.names += [name for name in names if name not in one.names]
            roles = [f"{URI}{role.format(names[0])}" for role in KINDS[kind]]
            one.roles += [role for role in roles if role not in one.roles]
    folder.mkdir(parents=True, exist_ok=True)
    authority, key = _authority(folder)
    return [_host(folder, one, authority, key, days) for one in wanted.values()]


@dataclass(slots=True)
class _Wanted:
    """A certificate to make: a person's names no host."""

    names: list[str]
    roles: list[str]
    person: bool

    def alternatives(self) -> list[x509.GeneralName]:
        """Return the names that the certificate says."""
        every = [] if self.person else dict.fromkeys([*self.names, *LOOPBACK])
        roles = [x509.UniformResourceIdentifier(role) for role in self.roles]
        return [*(_alternative(name) for name in every), *roles]


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        good = bool(name) and all(c.isalnum() or c in "-._:" for c in name) and name.isascii()
        if not good or name.startswith((".", "-")):
            raise InputError(option, f"{name!r} is neither a host's name nor an address")
    if names[0] == AUTHORITY:
        raise InputError(option, f"{AUTHORITY!r} is the authority's own file")
    return names


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate_path, key_path = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}-key.pem"
    if certificate_path.exists() != key_path.exists():
        there = certificate_path if certificate_path.exists() else key_path
        raise InputError(str(folder), f"has {there.name} without the other half of the authority")
    if certificate_path.exists():
        return _read(certificate_path), _read_key(key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Weft cluster authority")])
    builder = _builder(name, name, key, AUTHORITY_DAYS)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
    _write(certificate_path, key_path, certificate, key)
    return certificate, key


def _host(
    folder: Path,
    wanted: _Wanted,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> Made:
    name, alternatives = wanted.names[0], wanted.alternatives()
    certificate_path = folder / f"{name}.pem"
    key_path = folder / f"{name}-key.pem"
    every = tuple(dict.fromkeys([*wanted.names, *(() if wanted.person else LOOPBACK)]))
    roles = tuple(wanted.roles)
    kept = certificate_path.exists() and key_path.exists()
    if kept and _lasts(_read(certificate_path), alternatives, authority):
        return Made(name, certificate_path, key_path, every, False, roles)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = _builder(subject, authority.subject, key, days)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not wanted.person:
        # Every part both serves and dials.
        uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    _write(certificate_path, key_path, certificate, key)
    return Made(name, certificate_path, key_path, every, True, roles)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW_MAX)
        .not_valid_after(now + timedelta(days=days))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _lasts(
    found: x509.Certificate, names: list[x509.GeneralName], authority: x509.Certificate
) -> bool:
    """Return whether a certificate says these names, is this authority's and lasts on."""
    begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
    if ends - datetime.now(UTC) < (ends - begins) * RENEWAL_LIFE_FRACTION:
        return False
    try:
        found.verify_directly_issued_by(authority)
        said = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:
        # It is of another authority, or none of ours; the errors are of several types without a
        # common one.
        return False
    return set(said) == set(names)


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise InputError(str(path), "is no certificate") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise InputError(str(path), "is no private key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(str(path), "is no key of an authority that this command made")
    return key


def _write(
    certificate_path: Path,
    key_path: Path,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    """Write the key first, readable by its owner only from its first byte on."""
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _replace(key_path, secret, 0o600)
    _replace(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _replace(path: Path, data: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)
