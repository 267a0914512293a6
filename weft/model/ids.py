"""Ids are small integers inside the cores and YARN's strings on every face.

An application is numbered from 1; an attempt packs (application, attempt); a container packs
(application, attempt, container). Packing keeps them hashable, ordered and free to send.
`cluster_ts` is the start of the Resource Manager in ms since the epoch (0 in the simulator).
"""

import re

from weft.model.errors import InputError

AppId = int
AttemptId = int
ContainerId = int
# A node's id is its host's name, unique in the cluster.
NodeId = str

ATTEMPT_BITS = 8
CONTAINER_BITS = 32
# Above EPOCH_BITS a container's number has the life of the manager that granted it, modulo EPOCHS.
EPOCH_BITS = 24
EPOCHS = 1 << 8


def attempt_id(app: AppId, attempt: int) -> AttemptId:
    """Pack application and attempt number (1, 2, ...)."""
    return app << ATTEMPT_BITS | attempt


def app_of_attempt(attempt: AttemptId) -> AppId:
    """Return the application of an attempt."""
    return attempt >> ATTEMPT_BITS


def number_of_attempt(attempt: AttemptId) -> int:
    """Return 1 for an application's first attempt, 2 for its second."""
    return attempt & ((1 << ATTEMPT_BITS) - 1)


def container_id(attempt: AttemptId, number: int) -> ContainerId:
    """Pack an attempt and the container's number in it; number 1 is the master's own container."""
    return attempt << CONTAINER_BITS | number


def attempt_of_container(container: ContainerId) -> AttemptId:
    """Return the attempt that a container was granted to."""
    return container >> CONTAINER_BITS


def app_of_container(container: ContainerId) -> AppId:
    """Return the application that a container was granted to."""
    return container >> (CONTAINER_BITS + ATTEMPT_BITS)


def number_of_container(container: ContainerId) -> int:
    """Return the container's number in its attempt."""
    return container & ((1 << CONTAINER_BITS) - 1)


def number_in_life(epoch: int, number: int) -> int:
    """Return a container's number in its attempt: `number` of this life of the manager."""
    return (epoch % EPOCHS) << EPOCH_BITS | number


def life_of_container(container: ContainerId) -> int:
    """Return the life of the manager that granted a container, modulo `EPOCHS`."""
    return number_of_container(container) >> EPOCH_BITS


def granted_before(container: ContainerId, epoch: int) -> bool:
    """Return whether a container was granted in a life of the manager before the one after `epoch`.

    Lives are counted modulo `EPOCHS`, so what is fewer than half of them behind is earlier.
    """
    # This is `life_of_container` written out, which saves two calls.
    behind = (epoch - (container >> EPOCH_BITS)) % EPOCHS
    return 0 < behind < EPOCHS // 2


def first_number(epoch: int) -> int:
    """Return the first number of a batch that no life of the manager before `epoch` gave."""
    return (epoch << CONTAINER_BITS) + 1


def format_app(cluster_ts: int, app: AppId) -> str:
    """Return `application_<cluster_ts>_<nnnn>`, as YARN writes it."""
    return f"application_{cluster_ts}_{app:04d}"


def format_attempt(cluster_ts: int, attempt: AttemptId) -> str:
    """Return `appattempt_<cluster_ts>_<nnnn>_<nnnnnn>`, as YARN writes it."""
    app, number = app_of_attempt(attempt), number_of_attempt(attempt)
    return f"appattempt_{cluster_ts}_{app:04d}_{number:06d}"


def format_container(cluster_ts: int, container: ContainerId) -> str:
    """Return `container_<cluster_ts>_<nnnn>_<nn>_<nnnnnn>`, as YARN writes it."""
    attempt = attempt_of_container(container)
    return (
        f"container_{cluster_ts}_{app_of_attempt(attempt):04d}_{number_of_attempt(attempt):02d}"
        f"_{number_of_container(container):06d}"
    )


def format_containers(cluster_ts: int, first: ContainerId, count: int) -> list[str]:
    """Return `format_container` of so many containers of one attempt, in a row."""
    begin, number = format_container(cluster_ts, first)[:-6], number_of_container(first)
    if number + count > 1_000_000:
        # Seven digits and more are no longer padded to one length.
        return [format_container(cluster_ts, first + place) for place in range(count)]
    return [f"{begin}{each:06d}" for each in range(number, number + count)]


# Digits of a number in an id: no id has more, and Python reads no number of thousands.
DIGITS = "[0-9]{1,19}"
_APP = re.compile(rf"(?:application_({DIGITS})_)?({DIGITS})")


def is_app(text: str) -> bool:
    """Return whether a text is an application's id or number."""
    return _APP.fullmatch(text.strip()) is not None


def parse_app(text: str) -> AppId:
    """Read `application_<ts>_<nnnn>` or a bare number; raises InputError."""
    match = _APP.fullmatch(text.strip())
    if match is None:
        raise InputError("application id", f"{text!r} is not application_<timestamp>_<number>")
    return int(match[2])


def cluster_of(text: str) -> int | None:
    """Return the cluster's timestamp that an application id names; None for a bare number."""
    match = _APP.fullmatch(text.strip())
    return None if match is None or match[1] is None else int(match[1])
