"""Pictures and HTML reports of data that other rooms return."""
