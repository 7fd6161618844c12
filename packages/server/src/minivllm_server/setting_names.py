"""What settings are called where a user gave them: their flags and their variables."""

import re
from collections.abc import Collection

from minivllm_server.settings import ENV_PREFIX


def flag_of(setting: str) -> str:
    """Returns the flag of a setting or of another parameter of a command."""
    return f"--{setting.replace('_', '-')}"


def variable_of(setting: str) -> str:
    """Returns the variable of a setting."""
    return ENV_PREFIX + setting.upper()


class SettingNames:
    """Puts the user's names into messages.

    Args:
        settings: All there are.
        from_variables: Those of them that a variable gave; the others are called by their flags.
    """

    def __init__(self, settings: Collection[str], from_variables: Collection[str]) -> None:
        self._settings = settings
        self._from_variables = from_variables

    def of(self, setting: str) -> str:
        """Returns the name of one setting."""
        return variable_of(setting) if setting in self._from_variables else flag_of(setting)

    def in_message(self, message: str, subject: str | None = None) -> str:
        """Returns `message` with the user's names in it.

        Args:
            message: Calls settings by their own names.
            subject: The parameter the message is about, if it is about one. A name that is an ordinary word, such as
                `device`, is only taken for a setting where it is the subject and begins the message.
        """
        if subject is not None:
            message = re.sub(rf"^{subject}\b", self.of(subject), message)
        names = [name for name in (*self._settings, subject or "") if "_" in name]
        # Neither in quotes, nor in a path, nor as an assignment: that is a value, or the syntax of a file.
        words = rf"(?<![\w'/.-])(?:{'|'.join(names)})(?![\w'/=])"
        return re.sub(words, lambda match: self.of(match[0]), message)
