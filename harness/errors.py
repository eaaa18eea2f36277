"""The one exception for a user's mistake."""


class UserError(ValueError):
    """Bad input: the message names the field or file, what was found, and the way out. Shown without a traceback."""
