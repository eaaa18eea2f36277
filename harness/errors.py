"""Exceptions that are told without a traceback."""


class UserError(ValueError):
    """Bad input: the message names the field or file, what was found, and the way out. Shown without a traceback."""


class TooLongError(UserError):
    """A text of a task that has more tokens than the model has positions."""


class NonFiniteError(ArithmeticError):
    """Activations or logits that are not finite; no score is made of them."""
