"""The time machine: recorded runs verified, continued, predicted and looked at again.

`verify` feeds a tape to fresh cores, which must decide the same; `rebuild` makes a recorded cluster
as it stood at a time, `fork` continues it in the simulator, `whatif` under other settings,
`predict` many times; `recorded_run`, `timeline` and `candidate_scores` are what the player shows.
"""
