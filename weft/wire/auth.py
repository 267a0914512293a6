"""Who calls: read from the peer's certificate, and held against `weft.protocol.access.TABLE`.

A server of a cluster with mutual TLS admits a call by the roles in the caller's certificate before
anything of it is read. Without TLS everybody on the wire is trusted, as on one's own machine.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio

from weft.model.errors import InputError
from weft.model.ids import NodeId
from weft.protocol import access
from weft.protocol.access import ANY_NODE, TRUSTED, Caller, Role
from weft.wire.handlers import EVERY, OURS, Interceptor, quiet
from weft.wire.tls import NO_ROLE

UserOf = Callable[[str], tuple[Role, str]]
# Metadata names the user for whom a gateway calls, or has that user's token as text.
USER_KEY = "weft-user"
TOKEN_KEY = "weft-token"
SAN = "x509_subject_alternative_name"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a call. `known`: it had to say so.

    `user` is the one for whom it calls.
    """

    known: bool = False
    roles: tuple[tuple[Role, str], ...] = ()
    user: str = field(default="")

    def has(self, role: Role) -> bool:
        """Return whether its certificate says this role."""
        return any(own is role for own, _ in self.roles)

    @property
    def caller(self) -> Caller:
        """Client as the Resource Manager's core sees it."""
        if not self.known:
            return TRUSTED
        if self.has(Role.GATEWAY) and self.user:
            return Caller(self.user)
        if self.has(Role.ADMIN) or self.has(Role.GATEWAY):
            return TRUSTED
        return Caller(next((name for role, name in self.roles if role is Role.CLIENT), ""))

    @property
    def is_user(self) -> bool:
        """Whether it is a user and nothing more."""
        return self.known and not (self.has(Role.ADMIN) or self.has(Role.GATEWAY))

    def may_be(self, node: NodeId) -> bool:
        """Return whether it may speak for this node."""
        if not self.known:
            return True
        return any(role is Role.NODE and name in (node, ANY_NODE) for role, name in self.roles)

    def __str__(self) -> str:
        if not self.known:
            return "anybody"
        return ", ".join(f"{role.value} {name}" for role, name in self.roles) or "nobody"


ANYBODY = Peer()
_peer: ContextVar[Peer] = ContextVar("peer", default=ANYBODY)


def peer() -> Peer:
    """Return who made the call that this task serves."""
    return _peer.get()


@lru_cache(1_000)
def _roles(names: tuple[bytes, ...]) -> tuple[tuple[Role, str], ...]:
    found = (access.role_of(name.decode("utf-8", "replace")) for name in names)
    return tuple(one for one in found if one is not None)


def peer_of(context: Any, *, known: bool, users: UserOf | None = None) -> Peer:
    """Return who is at the other end; `known`: the transport made it show a certificate.

    `users` says whose a user's token is. Raises InputError for a token that is not true.
    """
    metadata = dict(context.invocation_metadata() or ())
    if not known:
        if users is None or TOKEN_KEY not in metadata:
            return ANYBODY
        # A caller that shows a token acts as the token's user only.
        return Peer(True, (users(str(metadata[TOKEN_KEY])),))
    roles = _roles(tuple(context.auth_context().get(SAN, ())))
    peer = Peer(True, roles, str(metadata.get(USER_KEY, "")))
    if TOKEN_KEY not in metadata or not peer.has(Role.GATEWAY):
        return peer
    if users is None:
        raise InputError("token", "is asked of the Resource Manager alone")
    role, name = users(str(metadata[TOKEN_KEY]))
    return Peer(True, roles, "" if role is Role.ADMIN else name)


class Admission(Interceptor):
    """Refuses calls of peers that may not make them; the others find out who calls by `peer()`.

    Health and reflection answer everybody.
    """

    of = EVERY

    def __init__(self, known: bool, users: UserOf | None = None) -> None:
        """`known`: every peer shows a certificate of the cluster's authority."""
        super().__init__()
        self._known = known
        self._users = users

    def wrapped(self, method: str, handler: Any) -> Any:
        """Return the handler that serves a method instead of this one."""
        if not method.startswith(OURS):
            return quiet(handler, lambda serve: serve)
        roles = access.roles_for(method)

        def admitted(serve: Callable[[Any, Any], Awaitable[Any]]) -> Any:
            async def answer(request: Any, context: Any) -> Any:
                try:
                    who = peer_of(context, known=self._known, users=self._users)
                except InputError as error:
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the {error}")
                if who.known and not any(role in roles for role, _ in who.roles):
                    if not who.roles:
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, NO_ROLE)
                    text = f"{who} may not call {method.rpartition('/')[2]}"
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
                _peer.set(who)
                return await serve(request, context)

            return answer

        return quiet(handler, admitted)
