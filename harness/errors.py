"""The one exception that means 'the user can mend this': the command line prints it as one line and exits with 2."""


class UserError(Exception):
    """What is wrong, where (file, line or field), and what to do, in one line."""
