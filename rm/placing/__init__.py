"""From a matcher's answer to grants: gangs, reservations, preemption, and what fits anywhere."""
