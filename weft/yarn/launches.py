"""What a container is to run, from YARN's launch context to what the launcher on the node reads."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from weft.yarn.errors import yarn
from weft.yarn.tokens import Credential, read_credentials, write_credentials

KINDS = {1: "archive", 2: "file", 3: "pattern"}
VISIBILITIES = {1: "public", 2: "private", 3: "application"}
# YARN's name of the auxiliary service that serves the outputs of MapReduce and Tez.
SHUFFLE = "mapreduce_shuffle"
MASTER_ALIAS = "org.apache.hadoop.yarn.AMRMToken"
# What a node runs for a foreign container: the Python that runs the node can import this package,
# wherever it is installed there.
COMMAND = ("sh", "-c", 'exec "$WEFT_PYTHON" -m weft.yarn.launcher')


def data_of(context: Any, user: str) -> dict[str, Any]:
    """Return a launch context as plain data; raises HadoopError for what cannot be launched."""
    resources = []
    for one in context.local_resources:
        url = one.value.resource
        resources.append(
            {
                "name": one.key,
                "url": address_of(url),
                "size": one.value.size,
                "timestamp_ms": one.value.timestamp,
                "kind": KINDS.get(one.value.type, "file"),
                "visibility": VISIBILITIES.get(one.value.visibility, "application"),
            }
        )
    try:
        read_credentials(context.tokens)
    except ValueError as error:
        raise yarn(f"the credentials of the launch context: {error}") from None
    return {
        "user": user,
        "environment": {one.key: one.value for one in context.environment},
        "commands": list(context.command),
        "resources": resources,
        "tokens": b64encode(context.tokens).decode(),
        "services": {one.key: b64encode(one.value).decode() for one in context.service_data},
    }


def with_master_token(tokens: bytes, credential: Credential) -> bytes:
    """Return a credentials file with the token by which a master registers put in."""
    found, secrets = read_credentials(tokens)
    found[MASTER_ALIAS] = credential
    return write_credentials(found, secrets)


def address_of(url: Any) -> str:
    """Return a URL message as text; without a host, a path alone."""
    host = url.host + (f":{url.port}" if url.port > 0 else "")
    if url.user_info:
        host = f"{url.user_info}@{host}"
    return f"{url.scheme or 'file'}://{host}{url.file}"


def environment(gateway: str, ticket: str, more: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what a node's process is told so that its launcher finds the rest."""
    return (("WEFT_HADOOP", gateway), ("WEFT_HADOOP_TICKET", ticket), *more.items())
