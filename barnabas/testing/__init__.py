"""Clusters for tests: real ones with every kind of fault, and simulated ones.

The fixtures of the pytest plug-in (`barnabas.pytest_plugin`) use this package; it can be used without them, too.
"""
