"""`weft play`: the pages of a cluster over runs that have ended.

`runs` reads or makes what is played, `views` answers what the pages ask of a run, `server` serves.
"""

# The server listens here unless `--port` names another port.
PORT = 8090
