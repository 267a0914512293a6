"""The walk of YARN's Capacity Scheduler, rule by rule, as Hadoop 3.5 decides."""
