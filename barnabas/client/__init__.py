"""The client: a producer, a consumer and an administrator over one view of the cluster.

Everything outside comes from a `runtime.world.World`, so the same client talks to real brokers and to
simulated ones.
"""
