"""YARN's own wire: foreign clients and masters (Spark, Flink, the YARN command line) run on Weft.

One more client of the cluster: it speaks gRPC to the Resource Manager and the Node Managers, and
Hadoop's RPC to what was written for YARN. It imports no role.
"""
