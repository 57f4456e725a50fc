"""Core: the errors of this folder."""


class ClusterError(Exception):
    """A cluster cannot do what was asked; the message is one line with a remedy."""


class WrongArgument(ClusterError):
    """An argument is invalid for this cluster: an unknown node, a bad setting. Nothing was done."""
