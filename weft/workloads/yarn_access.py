"""Who may do what in YARN's queues: the lists of both schedulers' files, by one rule."""

# What root's lists are where a file has none, as in YARN (QueueACLs of both schedulers).
EVERYBODY = ("*",)


def who_may(
    said: str | None, above: tuple[str, ...], place: str, left_out: dict[str, str], *, root: bool
) -> tuple[str, ...]:
    """Return who may do what in a queue by its list and by those `above` it.

    `said` is `user,user group,group`. As in YARN, who may in a queue may in those below it, and
    root lets everybody unless it has a list of its own. `left_out` is told of groups, which are not
    known, by `place`.
    """
    if said is None:
        return above
    users, _, groups = said.partition(" ")
    if groups.strip():
        left_out[place] = f"groups are not known: {groups.strip()}"
    own = tuple(user.strip() for user in users.split(",") if user.strip())
    return tuple(dict.fromkeys((*own, *(() if root else above))))
