"""Pages that report runs: HTML from values. A run of the laboratory and of `barnabas check` have it in common."""
