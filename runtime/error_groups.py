"""Core: the error inside of the groups that nurseries make."""

from __future__ import annotations


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of nested groups; the group itself if there are several."""
    if len(group.exceptions) > 1:
        return group
    error = group.exceptions[0]
    return only_error(error) if isinstance(error, BaseExceptionGroup) else error
