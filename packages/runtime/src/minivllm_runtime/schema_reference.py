"""References of a JSON schema to places in it."""

import re
from urllib.parse import unquote

_INDEX = re.compile("0|[1-9][0-9]{0,5}")


def follow(reference: str, schema: object) -> object:
    """What a reference leads to (RFC 6901, section 6); None if that is nothing."""
    place = schema
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(name)
        elif isinstance(place, list):
            index = int(name) if _INDEX.fullmatch(name) else len(place)
            place = place[index] if index < len(place) else None
        else:
            return None
    return place


def escaped(name: str) -> str:
    """A name as a JSON pointer has it (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")
