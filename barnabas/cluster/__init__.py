"""Clusters of processes on this machine."""

from barnabas.shadowed_packages import FOR_CLUSTERS, refuse_shadowed_packages

refuse_shadowed_packages(FOR_CLUSTERS)
