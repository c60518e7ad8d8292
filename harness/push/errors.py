"""What goes wrong with a place where runs are sent."""


class PushError(Exception):
    """Why a place could not be read or written, in one line; what was asked may be tried again."""
