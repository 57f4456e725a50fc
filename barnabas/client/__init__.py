"""The client: a producer, a consumer and an administrator over one view of the cluster.

The outside world comes from a `runtime.world.World`, so the same client talks to real and to simulated brokers.
"""
