"""Several Resource Managers, one of which leads.

`etcd` is a client of the store that they share, `electing` says who leads, `leading` lets no
message out unless the lease holds, `local_etcd` starts a store for a cluster on one machine. The
manager's own half is `rm.process.etcd_store`, which keeps the journal.
"""

# It says how gRPC logs, before that is loaded.
import weft.wire  # noqa: F401
