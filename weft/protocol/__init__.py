"""What the roles say to each other and to their shells.

Pure; imports `weft.model` only. Start with `messages` (between roles) and `effects` (what a core
orders its shell to do); `event_unions` lists what each core takes. `requests` are a client's,
`facts` what a core notes about itself, `outbox` repeats what was not acknowledged, `access` says
who may call what.
"""
