"""The one error of this folder."""


class ClusterError(Exception):
    """A cluster cannot do what was asked; the message is one line and says how to mend it."""
