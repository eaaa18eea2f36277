"""Which sub-layer costs a quantized model which capability, at which precision and group size, and how sure that is."""

__version__ = "0.1.0"
