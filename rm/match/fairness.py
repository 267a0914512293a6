"""Dominant resource fairness: shares in closed form and by progressive filling.

Sources: DRF (Ghodsi et al.; closed form by Parkes et
al.); docs/rules.md, rule 64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DrfShares:
    """Dominant resource fairness: `allocation` has shape (jobs, d), absolute units.

    `dominant` (jobs,) is the weighted dominant share of each job, `unallocated` is (d,).
    """

    dominant: Floats
    allocation: Floats
    unallocated: Floats


def drf_closed_form(total: Floats, demand: Floats, weight: Floats | None = None) -> DrfShares:
    """Return x = 1 / max_r sum_i w_i d_ir and A_ir = w_i x d_ir C_r (docs/rules.md, rule 64).

    `demand` has shape (jobs, d): any vector in the direction of the job's demand.
    """
    normal = normalised_demand(total, demand)
    w = np.ones(len(demand)) if weight is None else np.asarray(weight, dtype=np.float64)
    used = (w[:, None] * normal).sum(axis=0)
    x = 1.0 / used.max() if used.size and used.max() > 0 else 0.0
    allocation = w[:, None] * x * normal * total
    dominant = w * x * (normal.max(axis=1) > 0)
    return DrfShares(dominant, allocation, total - allocation.sum(axis=0))


def drf_progressive(
    total: Floats, demand: Floats, weight: Floats | None = None, cap: Floats | None = None
) -> DrfShares:
    """Return DRF shares by progressive filling.

    It knows zero demands, and jobs that need less than their share. All jobs' dominant shares grow
    at the pace of their weights; a job stops when a resource that it demands is used up, or at
    `cap` (jobs,): the dominant share that it can use at most.
    """
    normal = normalised_demand(total, demand)
    jobs = len(normal)
    w = np.ones(jobs) if weight is None else np.asarray(weight, dtype=np.float64)
    limit = np.full(jobs, np.inf) if cap is None else np.asarray(cap, dtype=np.float64)
    dominant = np.zeros(jobs)
    left = np.ones(len(total))
    growing = (normal.max(axis=1, initial=0.0) > 0) & (w > 0) & (limit > 0)
    while growing.any():
        speed = (np.where(growing, w, 0.0)[:, None] * normal).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            to_full = np.where(speed > 0, left / speed, np.inf)
            to_cap = np.where(growing, (limit - dominant) / w, np.inf)
        step = min(float(to_full.min()), float(to_cap.min()))
        dominant[growing] += step * w[growing]
        left = np.maximum(left - step * speed, 0.0)
        full = to_full <= step * (1 + 1e-12)
        left[full] = 0.0
        growing &= ~(normal[:, full] > 0).any(axis=1) & ~(to_cap <= step * (1 + 1e-12))
    allocation = dominant[:, None] * normal * total
    return DrfShares(dominant, allocation, total - allocation.sum(axis=0))


def normalised_demand(total: Floats, demand: Floats) -> Floats:
    """Return d_ir / C_r scaled so that each job's largest is 1; rows of zeros stay; (jobs, d)."""
    share = np.divide(
        np.asarray(demand, dtype=np.float64),
        total,
        out=np.zeros((len(demand), len(total))),
        where=np.asarray(total) > 0,
    )
    top = share.max(axis=1, initial=0.0)
    return np.asarray(share / np.where(top > 0, top, 1.0)[:, None])
