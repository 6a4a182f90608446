"""The judges of a lowered kernel: its accesses, its asynchronous protocol, its certificate."""
