"""The live shell: what turns a core into a process.

`shell` is the mailbox and the timers of any number of cores; `process` starts and ends a role;
`settings` and `role_settings` read flags, environment and files; `tape` records every event for
`sim.replay`. Imports no role and knows no gRPC.
"""
