"""Random kernels over the language: drawn, written as Python, evaluated by NumPy, and run every way there is."""
