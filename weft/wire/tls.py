"""Who this process is to the others: mutual TLS by three files, or plain text without them.

Renewed files are taken up while the process runs: by connections that are made from then on, to it
and by it. A process has one identity. It dials with it, serves with it, and trusts only what its
authority signed; so a cluster either speaks TLS throughout or not at all. The Prometheus endpoints
are HTTP and not part of this, and so are the pages unless they are told otherwise (`--https`).
"""

import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from weft.model.errors import InputError

NO_ROLE = "the certificate names no role (weft://ROLE/NAME): `weft certificates` makes it anew"
FLAGS = ("--tls-ca", "--tls-cert", "--tls-key")
VARIABLES = ("WEFT_TLS_CA", "WEFT_TLS_CERT", "WEFT_TLS_KEY")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a part of the cluster shows and trusts: PEM texts."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)
    # The texts were read from `files`.
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    # A server shows it, too.
    serves: bool = field(default=False, repr=False, compare=False)


def read(
    ca: Path | None, cert: Path | None, key: Path | None, *, serves: bool = False
) -> Identity | None:
    """Read the three files and see that they fit together; None when none is given.

    The certificate must do for a client, and also for a server where this process `serves`.
    Raises InputError naming the setting whose file is missing, unreadable, or does not fit.
    """
    files = [None if file is None else Path(file) for file in (ca, cert, key)]
    if not any(files):
        return None
    texts = [_text(flag, file) for flag, file in zip(FLAGS, files, strict=True)]
    given = [Path(file or "") for file in files]
    _check(*given, serves=serves)
    authority, own, key_text = texts
    return Identity(authority, own, key_text, tuple(file.absolute() for file in given), serves)


def from_environment() -> Identity | None:
    """Return the identity that `WEFT_TLS_CA`, `WEFT_TLS_CERT` and `WEFT_TLS_KEY` name, if any."""
    files = [Path(value) if (value := os.environ.get(name)) else None for name in VARIABLES]
    return read(*files)


def server_context(files: tuple[Path, Path, Path], visitors: ssl.VerifyMode) -> ssl.SSLContext:
    """Return TLS for a server that is not gRPC's: authority, certificate and key of `files`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(files, context)
    context.verify_mode = visitors
    return context


def load(files: tuple[Path, Path, Path], context: ssl.SSLContext) -> None:
    """Make a server show from now on what is in the files."""
    authority, cert, key = files
    context.load_cert_chain(cert, key)
    context.load_verify_locations(authority)


# The files are examined for changes at this interval.
LOOK_S = 1.0
_UNSET = object()
_identity: object = _UNSET
# This is how the files were when last examined, and when that was.
_seen: tuple[object, float] = ((), 0.0)


def use(identity: Identity | None) -> None:
    """Use this identity for connections and servers that are made from now on."""
    global _identity, _seen  # noqa: PLW0603 - a process has one identity
    _identity = identity
    _seen = (_stamps(identity), time.monotonic())


def current() -> Identity | None:
    """Return what this process is: as `use` was told, by its files now, else the environment."""
    global _seen  # noqa: PLW0603
    found = _identity if _identity is not _UNSET else from_environment()
    assert found is None or isinstance(found, Identity)
    now_s = time.monotonic()
    if found is None or found is not _identity or now_s - _seen[1] < LOOK_S:
        return found
    stamps = _stamps(found)
    if stamps == _seen[0]:
        _seen = (stamps, now_s)
        return found
    _seen = (_seen[0], now_s)
    try:
        fresh = read(*found.files, serves=found.serves)
    except InputError:
        # The files are half written, so the good ones are used until these fit.
        return found
    use(fresh)
    return fresh


def _stamps(identity: Identity | None) -> object:
    """Return what tells files from those that replaced them; empty where one is not there."""
    try:
        found = [file.stat() for file in (identity.files if identity is not None else ())]
    except OSError:
        return ()
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


@contextmanager
def using(identity: Identity | None) -> Iterator[None]:
    """Use an identity for a while: for tests, and programs that talk to more than one cluster."""
    global _identity  # noqa: PLW0603
    before = _identity
    use(identity)
    try:
        yield
    finally:
        _identity = before


def _text(flag: str, file: Path | None) -> bytes:
    if file is None:
        raise InputError(flag, f"is needed too: TLS takes {', '.join(FLAGS)} together")
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise InputError(flag, f"no such file: {file}") from None
    except OSError as error:
        raise InputError(flag, f"cannot read {file}: {error.strerror}") from None


def _check(ca: Path, cert: Path, key: Path, *, serves: bool) -> None:
    """Shake hands with ourselves: what fails here would fail, in worse words, with every peer."""
    ends: list[ssl.SSLContext] = []
    for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        end = ssl.SSLContext(side)
        # Whoever dials checks names.
        end.check_hostname = False
        # Certificates of users are for clients only: a client would refuse one that a server shows.
        checked = serves or side is ssl.PROTOCOL_TLS_SERVER
        end.verify_mode = ssl.CERT_REQUIRED if checked else ssl.CERT_NONE
        try:
            end.load_verify_locations(ca)
        except ssl.SSLError:
            raise InputError("--tls-ca", f"{ca} holds no certificate") from None
        try:
            end.load_cert_chain(cert, key, password=lambda: "")
        except ssl.SSLError as error:
            raise _unfit(cert, key, error) from None
        ends.append(end)
    try:
        _shake_hands(*ends)
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            "--tls-cert", f"{cert} does not hold against {ca}: {_why(error)}"
        ) from None
    except ssl.SSLError as error:
        raise InputError("--tls-cert", f"{cert} cannot be used: {error.reason}") from None


def _unfit(cert: Path, key: Path, error: ssl.SSLError) -> InputError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return InputError("--tls-key", f"{key} is not the key of {cert}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except ssl.SSLError:
        return InputError("--tls-cert", f"{cert} holds no certificate")
    return InputError("--tls-key", f"{key} holds no private key without a password")


def _why(error: ssl.SSLCertVerificationError) -> str:
    if "issuer" in error.verify_message or "self-signed" in error.verify_message:
        return "another authority signed it"
    return error.verify_message


def _shake_hands(client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_side=False)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    # A handshake takes two turns for each end.
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
