"""The language: decorators, annotations, the values a kernel's body handles, and the ``Schedule`` value."""
