"""What leaves the compiler against the Transport IR that was proved. ``recipe``: what a launch is told to do."""
