"""Transport IR to regions of events, a file per subject."""
