"""Translation validation: the compiler's output against the Transport IR that was proved. ``recipe`` checks the launch
recipe."""
