"""Commands whose options are the fields of a dataclass, so that what they work with is one value."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")


def command(options: type[Options], run: Callable[[Options], None]) -> Callable[..., None]:
    """A function for typer: its parameters are the fields of `options`, its help that of `run`.

    Args:
        options: A dataclass; each field's annotation carries its `typer.Option`.
        run: Called with the options of the command line.
    """

    def parsed(**values: Any) -> None:
        run(options(**values))

    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(options)  # type: ignore[arg-type]
    ]
    parsed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    parsed.__annotations__ = hints
    parsed.__doc__ = run.__doc__
    return parsed
