"""The ops of the ``transport`` dialect, one module per kind."""
