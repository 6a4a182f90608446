"""Pictures: other rooms return data, this one draws it."""
