"""The consumer in share groups (KIP-932): records are acquired for a time, and acknowledged one by one."""
