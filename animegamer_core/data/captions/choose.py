"""Captioners by name, as the command line and the nodes choose them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...endpoint import EndpointModel, EndpointSettings
from .captioner import Captioner, ModelCaptioner
from .local import LocalModel, LocalSettings
from .script import ScriptCaptioner

Options = Mapping[str, Any]


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _model_captioner(settings: type, model: type, options: Options) -> Captioner:
    """A ModelCaptioner; options of its model go to the settings of that model."""
    of_model = {name: value for name, value in options.items() if name in _fields(settings)}
    own = {name: value for name, value in options.items() if name not in of_model}
    return ModelCaptioner(model(settings(**of_model)), **own)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A row of the table: the options that a captioner takes and needs, and the function that makes it."""

    takes: tuple[str, ...]
    needs: tuple[str, ...]
    make: Callable[[Options], Captioner | None]


CAPTIONERS = {
    "none": _Kind((), (), lambda options: None),
    "endpoint": _Kind(
        (*_fields(EndpointSettings), "tries", "price_in", "price_out"),
        ("url", "model"),
        partial(_model_captioner, EndpointSettings, EndpointModel),
    ),
    "transformers": _Kind(
        (*_fields(LocalSettings), "tries"), ("model",), partial(_model_captioner, LocalSettings, LocalModel)
    ),
    "script": _Kind(("sidecars",), ("sidecars",), lambda options: ScriptCaptioner(**options)),
}


def open_captioner(name: str, **options: Any) -> Captioner | None:
    """The captioner of a name: none (None), endpoint, transformers or script. Options of None are ignored.

    endpoint: url, model and the other fields of EndpointSettings; transformers: model (a folder) and those of
    LocalSettings; both: tries; endpoint: price_in, price_out. script: sidecars {film: path}.
    ValueError: an unknown name or option, a missing option, a setting out of range, a model that cannot be opened.
    """
    if name not in CAPTIONERS:
        raise ValueError(f"unknown captioner {name!r}; choose one of {', '.join(CAPTIONERS)}")
    kind = CAPTIONERS[name]
    given = {option: value for option, value in options.items() if value is not None}
    unknown = [option for option in given if option not in kind.takes]
    if unknown:
        raise ValueError(
            f"captioner {name!r} has no option {unknown[0]!r}; it takes {', '.join(kind.takes) or 'no options'}"
        )
    missing = [option for option in kind.needs if option not in given]
    if missing:
        raise ValueError(f"captioner {name!r} needs {missing[0]!r}")
    return kind.make(given)
