"""Clusters of processes on this machine."""

from barnabas.rooms import FOR_CLUSTERS, refuse_strangers

refuse_strangers(FOR_CLUSTERS)
