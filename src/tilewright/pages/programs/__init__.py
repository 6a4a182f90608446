"""Cache programs: traced from Python, checked for who owns each page; the standard library only."""
