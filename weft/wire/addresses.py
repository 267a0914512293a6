"""The addresses of a service that one of several processes gives: tried in turn."""

from weft.model.errors import InputError


def places(text: str) -> tuple[str, ...]:
    """Return the host:port of a list that commas part; raises InputError where there is none."""
    found = tuple(place.strip() for place in text.split(",") if place.strip())
    if not found:
        raise InputError("address", "expected HOST:PORT, or several with commas between")
    return found


class Newest:
    """Which manager's words count: the newest life of one that was heard.

    A manager that was replaced may say something yet: it was paused with messages half sent. Lives
    count up over all managers of a cluster (`cluster_ts`), so what an earlier one says is told by
    its number. A cluster that was begun anew counts anew.
    """

    def __init__(self) -> None:
        self.cluster_ts = 0
        self.life = 0

    def counts(self, cluster_ts: int, life: int) -> bool:
        """Return whether a manager's words count; 0 and 0 of one that does not say who it is."""
        if not life:
            return True
        if cluster_ts == self.cluster_ts and life < self.life:
            return False
        self.cluster_ts, self.life = cluster_ts, life
        return True
