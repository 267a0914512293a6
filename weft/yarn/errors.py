"""Errors as Hadoop's clients know them: the name of the Java class is the interface."""

from typing import Final

# An error repeats so many characters of what a peer sent.
REPEATED_CHARACTERS_MAX = 200
_YARN: Final = "org.apache.hadoop.yarn.exceptions."
_IPC: Final = "org.apache.hadoop.ipc."
ACCESS_CONTROL: Final = "org.apache.hadoop.security.AccessControlException"
_TOKEN: Final = "org.apache.hadoop.security.token.SecretManager$InvalidToken"


class HadoopError(Exception):
    """A refused call: the client raises `java_class` with `text`; the connection goes on.

    `detail` is the transport's own error code (1: of the application, 2: no such method,
    3: no such protocol, 4: of the server).
    """

    def __init__(self, java_class: str, text: str, detail: int = 1) -> None:
        self.java_class = java_class
        self.text = text
        self.detail = detail
        super().__init__(f"{java_class.rpartition('.')[2]}: {text}")


class FatalError(Exception):
    """A peer that cannot be talked to: it is told once, then the connection is closed."""

    def __init__(self, java_class: str, text: str, detail: int) -> None:
        self.java_class = java_class
        self.text = text
        self.detail = detail
        super().__init__(text)


def yarn(text: str) -> HadoopError:
    """Return a plain YarnException: the request makes no sense or was refused."""
    return HadoopError(_YARN + "YarnException", text)


def invalid_resource_request(what: str) -> HadoopError:
    """Return the error for a request for containers that no cluster could grant."""
    return HadoopError(_YARN + "InvalidResourceRequestException", what)


def no_application(what: str) -> HadoopError:
    """Return the error for an application that the manager does not know."""
    return HadoopError(_YARN + "ApplicationNotFoundException", what)


def no_attempt(what: str) -> HadoopError:
    """Return the error for an attempt that is over or never was."""
    return HadoopError(_YARN + "ApplicationAttemptNotFoundException", what)


def no_service(name: str) -> HadoopError:
    """Return the error for an auxiliary service that a node does not have."""
    text = f"The auxService:{name[:REPEATED_CHARACTERS_MAX]} does not exist"
    return HadoopError(_YARN + "InvalidAuxServiceException", text)


def no_container(what: str) -> HadoopError:
    """Return the error for a container that the manager does not know."""
    return HadoopError(_YARN + "ContainerNotFoundException", what)


def not_registered(what: str) -> HadoopError:
    """Return the error after which a master registers again and says all its requests."""
    return HadoopError(_YARN + "ApplicationMasterNotRegisteredException", what)


def invalid_master_request(what: str) -> HadoopError:
    """Return the error for a registration or a response id that does not fit."""
    return HadoopError(_YARN + "InvalidApplicationMasterRequestException", what)


def unsupported(method: str) -> HadoopError:
    """Return the error for what YARN has and Weft has not."""
    return HadoopError(
        "java.lang.UnsupportedOperationException", f"{method} is not supported by this manager"
    )


def _cut(name: str) -> str:
    """Return a name that a peer said, as much as is told to it again."""
    return name if len(name) <= REPEATED_CHARACTERS_MAX else f"{name[:REPEATED_CHARACTERS_MAX]}..."


def no_method(method: str, protocol: str) -> HadoopError:
    """Return the transport's error for an unknown method."""
    return HadoopError(
        _IPC + "RpcNoSuchMethodException", f"{_cut(protocol)} has no method {_cut(method)}", 2
    )


def no_protocol(protocol: str) -> HadoopError:
    """Return the transport's error for a protocol that this port does not speak."""
    return HadoopError(_IPC + "RpcNoSuchProtocolException", f"unknown protocol {_cut(protocol)}", 3)


def server_error(text: str) -> HadoopError:
    """Return the error for a fault of this server: the caller may try again."""
    return HadoopError("java.io.IOException", text, 4)


def not_allowed(text: str) -> HadoopError:
    """Return the error for a call that its caller may not make."""
    return HadoopError(ACCESS_CONTROL, text)


def unauthorized(text: str) -> FatalError:
    """Return the end of a connection whose caller could not prove who it is."""
    return FatalError(ACCESS_CONTROL, text, 15)


def invalid_token(text: str) -> FatalError:
    """Return the end of a connection with a token that is forged, old or of another cluster."""
    return FatalError(_TOKEN, text, 15)
