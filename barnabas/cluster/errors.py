"""Core: the errors of this folder."""


class ClusterError(Exception):
    """A cluster cannot do what was asked; the message is one line and says how to mend it."""


class WrongArgument(ClusterError):
    """What was asked makes no sense for this cluster: an unknown node, a bad setting. Nothing was done."""
