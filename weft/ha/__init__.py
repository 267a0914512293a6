"""Several Resource Managers, one of which leads: etcd, and what waits for the lease."""
