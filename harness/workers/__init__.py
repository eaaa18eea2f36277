"""Scripts that run in another Python environment, for tools that cannot share one with this package.

They are started by `harness.quantize.worker` with that environment's interpreter and import nothing from here.
"""
