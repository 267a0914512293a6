"""The Node Manager: heartbeats, containers, emulated and real."""
