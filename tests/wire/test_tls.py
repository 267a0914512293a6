"""Mutual TLS: parts of one authority talk, everybody else is refused in words that help."""

import asyncio
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner
from cryptography import x509

from lab.cli import weft
from weft.client.certificates import make
from weft.model.errors import InputError, WeftError
from weft.protocol.access import Caller
from weft.protocol.requests import Done, KillApplication
from weft.wire import tls
from weft.wire.client import ManagerConnection
from weft.wire.connections import tracker_stream
from weft.wire.server import Server
from weft.wire.services import add_client_service, add_tracker_service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities: `ours` with hosts n1 and n2, `theirs` with n1."""
    made = tmp_path_factory.mktemp("tls")
    make(made / "ours", ["n1", "n2,10.1.2.3"], others={"admin": ["n1"]})
    make(made / "theirs", ["n1"], others={"admin": ["n1"]})
    return made


def identity(folder: Path, ca: str = "ours", own: str = "ours") -> tls.Identity:
    """What a host would be that trusts `ca` and shows a certificate of `own`."""
    return tls.Identity(
        (folder / ca / "ca.pem").read_bytes(),
        (folder / own / "n1.pem").read_bytes(),
        (folder / own / "n1-key.pem").read_bytes(),
    )


async def killed(request: Any, caller: Caller) -> Any:
    return Done("KILLED")


async def no_facts() -> AsyncIterator[list[str]]:
    return
    yield []


def talk(server: tls.Identity | None, client: tls.Identity | None, host: str = "127.0.0.1") -> Any:
    """What a client is answered by a server; raises what the client would see."""

    async def main() -> Any:
        with tls.using(server):
            service = Server(host, 0)
        add_client_service(service, killed, no_facts)
        with tls.using(server):
            address = await service.start()
        try:
            with tls.using(client):
                connection = ManagerConnection(address, patience_s=0.0)
                try:
                    return await connection.ask(KillApplication(1))
                finally:
                    await connection.close()
        finally:
            await service.stop(0)

    return asyncio.run(main())


def test_parts_of_one_authority_talk(folder: Path) -> None:
    assert talk(identity(folder), identity(folder)) == Done("KILLED")


@pytest.mark.parametrize(
    ("server", "client", "says"),
    [
        (("ours", "ours"), None, r"it hung up: does it want TLS \(--tls-ca"),
        (None, ("ours", "ours"), "it does not speak TLS, and --tls-ca asks for it"),
        (("ours", "ours"), ("theirs", "ours"), "another authority than --tls-ca signed"),
        (("ours", "ours"), ("ours", "theirs"), "does its authority know our certificate"),
    ],
    ids=["plain to TLS", "TLS to plain", "wrong authority", "foreign certificate"],
)
def test_everybody_else_is_refused_in_one_clear_line(
    folder: Path,
    server: tuple[str, str] | None,
    client: tuple[str, str] | None,
    says: str,
) -> None:
    ends = [identity(folder, *end) if end else None for end in (server, client)]
    with pytest.raises(WeftError, match=rf"^no Resource Manager at [\d.:]+: .*{says}") as error:
        talk(*ends)
    assert "\n" not in str(error.value)


def test_a_certificate_for_another_host_is_refused(folder: Path) -> None:
    with pytest.raises(WeftError, match="its certificate is for another host"):
        talk(identity(folder), identity(folder), host="127.0.0.2")


def test_a_client_that_shows_no_certificate_is_refused(folder: Path) -> None:
    """Trusting the authority is not enough: the server asks who is there."""

    async def main() -> None:
        with tls.using(identity(folder)):
            service = Server("127.0.0.1", 0)
            address = await service.start()
        credentials = grpc.ssl_channel_credentials((folder / "ours" / "ca.pem").read_bytes())
        try:
            async with grpc.aio.secure_channel(address, credentials) as channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check")
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await check(b"", timeout=30)
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            await service.stop(0)

    asyncio.run(main())


def test_a_stream_says_why_it_is_not_let_in(folder: Path) -> None:
    """A node manager that was given no certificates logs the reason, and goes on trying."""

    async def main() -> None:
        with tls.using(identity(folder)):
            service = Server("127.0.0.1", 0)
            add_tracker_service(service, lambda lane, batch: None, lambda lane: None)
            address = await service.start()
        said: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()
        with tls.using(None):
            stream = tracker_stream(
                address, lambda batch: None, lambda up, reason: said.put_nowait((up, reason))
            )
            running = asyncio.create_task(stream.run())
            try:
                for _ in range(2):
                    up, reason = await asyncio.wait_for(said.get(), 60)
                    assert not up
                    assert "does it want TLS" in reason
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await service.stop(0)

    asyncio.run(main())


# -- the three files -------------------------------------------------------------------------------


def test_three_files_or_none(folder: Path) -> None:
    ours = folder / "ours"
    assert tls.read(None, None, None) is None
    assert tls.read(ours / "ca.pem", ours / "n1.pem", ours / "n1-key.pem") == identity(folder)
    with pytest.raises(InputError, match="--tls-key: is needed too"):
        tls.read(ours / "ca.pem", ours / "n1.pem", None)


def test_a_user_s_certificate_does_for_a_client_and_not_for_a_server(tmp_path: Path) -> None:
    make(tmp_path, ["n1"], others={"client": ["alice"], "admin": ["root"]})
    for name in ("alice", "root"):
        files = tmp_path / "ca.pem", tmp_path / f"{name}.pem", tmp_path / f"{name}-key.pem"
        assert tls.read(*files)
        with pytest.raises(InputError, match=r"--tls-cert: .*unsuitable certificate purpose"):
            tls.read(*files, serves=True)
    assert tls.read(tmp_path / "ca.pem", tmp_path / "n1.pem", tmp_path / "n1-key.pem", serves=True)


def test_a_server_takes_no_user_s_certificate_when_its_files_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    make(tmp_path, ["n1"], others={"client": ["alice"]})
    files = tmp_path / "ca.pem", tmp_path / "n1.pem", tmp_path / "n1-key.pem"
    with tls.using(tls.read(*files, serves=True)):
        before = tls.current()
        for part in ("", "-key"):
            shutil.copy(tmp_path / f"alice{part}.pem", tmp_path / f"n1{part}.pem")
        assert tls.current() == before
    with tls.using(tls.read(*files)):
        assert tls.current() != before


def test_the_key_never_shows() -> None:
    assert "secret" not in repr(tls.Identity(b"ca", b"cert", b"secret"))


@pytest.mark.parametrize(
    ("ca", "cert", "key", "says"),
    [
        ("ours/none.pem", "ours/n1.pem", "ours/n1-key.pem", r"--tls-ca: no such file: .*none\.pem"),
        ("ours/ca.pem", "ours", "ours/n1-key.pem", "--tls-cert: cannot read .*directory"),
        ("ours/ca.pem", "ours/n1.pem", "ours/n2-key.pem", "--tls-key: .* is not the key of"),
        ("ours/n1-key.pem", "ours/n1.pem", "ours/n1-key.pem", "--tls-ca: .* holds no certificate"),
        ("ours/ca.pem", "ours/n1-key.pem", "ours/n1-key.pem", "--tls-cert: .* no certificate"),
        ("ours/ca.pem", "ours/n1.pem", "ours/n1.pem", "--tls-key: .* holds no private key"),
        ("theirs/ca.pem", "ours/n1.pem", "ours/n1-key.pem", "--tls-cert: .*another authority"),
    ],
)
def test_files_that_do_not_fit_are_named(
    folder: Path, ca: str, cert: str, key: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as error:
        tls.read(folder / ca, folder / cert, folder / key)
    assert "\n" not in str(error.value)


def test_a_certificate_that_has_ended_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.client import certificates

    class LongAgo(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "LongAgo":
            return cls.fromtimestamp(datetime.now(UTC).timestamp() - 60 * 86_400, UTC)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", LongAgo)
        make(tmp_path, ["n1"], days=30)
    with pytest.raises(InputError, match="certificate has expired"):
        tls.read(tmp_path / "ca.pem", tmp_path / "n1.pem", tmp_path / "n1-key.pem")
    (again,) = make(tmp_path, ["n1"])
    assert again.fresh
    assert tls.read(tmp_path / "ca.pem", tmp_path / "n1.pem", tmp_path / "n1-key.pem")


# -- certificates ----------------------------------------------------------------------------------


def test_making_again_keeps_what_still_fits(tmp_path: Path) -> None:
    first = {one.name: one for one in make(tmp_path, ["n1", "n2"])}
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = {one.name: one for one in make(tmp_path, ["n1", "n2,10.0.0.2", "n3"])}
    assert {name: one.fresh for name, one in first.items()} == {"n1": True, "n2": True}
    assert {name: one.fresh for name, one in again.items()} == {
        "n1": False,
        "n2": True,
        "n3": True,
    }
    kept = {path.name for path in tmp_path.iterdir() if before.get(path.name) == path.read_bytes()}
    assert kept == {"ca.pem", "ca-key.pem", "n1.pem", "n1-key.pem"}


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    make(tmp_path, ["n1"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "n1.pem": 0o644, "n1-key.pem": 0o600}


def test_a_lost_authority_is_not_replaced_in_silence(tmp_path: Path) -> None:
    make(tmp_path, ["n1"])
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(InputError, match="without the other half"):
        make(tmp_path, ["n2"])


def test_the_certificate_of_another_authority_is_made_again(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "ours", tmp_path / "mixed")
    shutil.copy(folder / "theirs" / "n1.pem", tmp_path / "mixed")
    (made,) = make(tmp_path / "mixed", ["n1"])
    assert made.fresh


def test_the_command_makes_what_a_part_takes(tmp_path: Path) -> None:
    done = CliRunner().invoke(weft, ["certificates", str(tmp_path), "--host", "n1,10.9.8.7"])
    assert done.exit_code == 0, done.output
    assert "made" in done.output
    found = x509.load_pem_x509_certificate((tmp_path / "n1.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1", "localhost"]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["10.9.8.7", "127.0.0.1", "::1"]
    assert found.not_valid_after_utc - datetime.now(UTC) > timedelta(days=300)
    assert tls.read(tmp_path / "ca.pem", tmp_path / "n1.pem", tmp_path / "n1-key.pem")


@pytest.mark.slow
def test_the_package_that_makes_certificates_is_named_where_it_is_missing(tmp_path: Path) -> None:
    """TLS itself needs it not: only whoever makes certificates does."""
    code = (
        "import sys; sys.modules['cryptography'] = None; import weft.wire.tls, weft.wire.server;"
        f"sys.argv = ['weft', 'certificates', {str(tmp_path)!r}];"
        "from lab.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "weft: a certificate needs cryptography: pip install 'weft-rm[tls]'\n"


@pytest.mark.parametrize("host", ["", "n1,", "a/b", "../x", ".hidden", "-x", "ca", "ü"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="--host"):
        make(tmp_path / "new", [host])
    assert not (tmp_path / "new").exists()


def test_other_libraries_take_the_certificates(folder: Path) -> None:
    """The system's own TLS, with names checked, and strict about what RFC 5280 asks."""
    client = ssl.create_default_context(cafile=folder / "ours" / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "ours" / "n2.pem", folder / "ours" / "n2-key.pem")

    async def main() -> None:
        served = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=server)
        port = served.sockets[0].getsockname()[1]
        for name in ("n2", "10.1.2.3", "localhost"):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client, server_hostname=name
            )
            writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="n1")
        served.close()

    asyncio.run(main())
