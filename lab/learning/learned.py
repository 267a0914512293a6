"""A matcher that was learned: it serves the candidate that a small network scores highest.

    weft simulate jobs.json --cluster c.yaml --matcher learned --set matcher.weights=policy.json
    weft up --matcher learned --set matcher.weights=policy.json

`python -m lab.learning.train` trains one in the environment of `lab.learning.gym`, where it sees
the same numbers and decides the same. Without `weights` it is the one that Weft comes with.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.choice_kernels import FEATURES
from rm.match.choices import Choices
from rm.match.protocol import BaseMatcher, Match
from weft.model.dag import Floats
from weft.model.errors import InputError

HIDDEN = 8
SHIPPED = Path(__file__).with_name("learned.json")


@dataclass(frozen=True, slots=True)
class Network:
    """Scores candidates: a tanh layer of `HIDDEN` units beside a linear one.

    Features are rounded to 32 bits, as an agent of the environment sees them.

    `parameters` is flat, as `size` counts them.
    """

    parameters: Floats

    @staticmethod
    def size() -> int:
        """Return how many parameters there are."""
        return len(FEATURES) * (HIDDEN + 1) + 2 * HIDDEN

    def scores(self, features: Floats) -> Floats:
        """Return the score of each candidate, shape (k,), of features (k, len(FEATURES))."""
        f, h, flat = len(FEATURES), HIDDEN, self.parameters
        layer, bias = flat[: f * h].reshape(f, h), flat[f * h : f * h + h]
        out, straight = flat[f * h + h : f * h + 2 * h], flat[f * h + 2 * h :]
        scores: Floats = np.tanh(features @ layer + bias) @ out + features @ straight
        return scores

    def choose(self, features: Floats, may: Bools) -> int:
        """Return the candidate with the highest score among those that `may` (k,) allows."""
        among = np.flatnonzero(may)
        return int(among[np.argmax(self.scores(features[among].astype(np.float32)))])


def save(path: Path, network: Network, told: dict[str, Any]) -> None:
    """Write a network as JSON, with what is `told` about its training."""
    values = [round(float(value), 5) for value in network.parameters]
    data = {"features": list(FEATURES), "hidden": HIDDEN, "trained": told, "parameters": values}
    path.write_text(json.dumps(data, indent=1) + "\n")


def load(path: Path) -> Network:
    """Read a network; raises InputError where the file is none, or one for other features."""
    try:
        data = json.loads(path.read_text())
        parameters = np.array(data["parameters"], dtype=np.float64)
        kind = (data["features"], data["hidden"])
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(str(path), f"is no learned policy: {error!r}") from error
    if kind != (list(FEATURES), HIDDEN):
        raise InputError(str(path), "was trained on other features: train it again")
    if parameters.shape != (Network.size(),) or not np.isfinite(parameters).all():
        raise InputError(str(path), f"expected {Network.size()} finite parameters")
    return Network(parameters)


class Learned(BaseMatcher):
    """Serves what a trained network scores highest, one container at a time."""

    name = "learned"

    def __init__(self, weights: str = "") -> None:
        self.network = load(Path(weights) if weights else SHIPPED)

    def match(self, view: View, node: int, now: float) -> Match:
        """Pick the candidate with the highest score again and again while something fits."""
        choices = Choices(view, node, now)
        while choices.count:
            choices.pick(self.network.choose(choices.features(), choices.open))
        return choices.match()
