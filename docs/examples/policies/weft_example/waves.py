"""An asker: no stage of a job has more than `most` tasks running or asked for at a time."""

from collections import Counter

import numpy as np

from am.ask.view import JobView, Wanted, Wish


class Waves:
    """Asks for what is ready, stage by stage in waves of `most`."""

    follows_share = True  # asked whenever a task starts or ends, not only when some become ready

    def __init__(self, most: int = 1000) -> None:
        self.most = most

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """Answer how many containers are wanted for each group."""
        left = Counter({group.stage: self.most for group in view.groups})
        left.subtract(task.stage for task in view.running)
        rows = []
        for group in view.groups:  # the identical tasks of a stage
            wanted = min(len(group.ready), max(left[group.stage], 0))
            left[group.stage] -= wanted
            rows.append(Wanted(group.number, wanted))
        return Wish(rows)
