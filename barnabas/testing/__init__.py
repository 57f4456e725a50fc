"""Clusters for tests: real ones that can be broken in every way, and simulated ones that are there at once.

The fixtures of the pytest plug-in (`barnabas_pytest.py`) stand on this; it can be used without them, too.
"""
