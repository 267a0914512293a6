"""The live shell: mailbox, timers, settings, logs and the Prometheus endpoint."""
