"""Exceptions that are told without a traceback."""


class UserError(ValueError):
    """Bad input: the message names the field or file, what was found, and the way out. Shown without a traceback."""


class NonFiniteError(ArithmeticError):
    """Activations or logits that are not finite; no score is made of them."""
