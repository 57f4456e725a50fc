"""Core: checkers, which judge the history of a run by itself."""
