"""Where a model's parameters, bytes, FLOPs and milliseconds sit, from its config alone.

python -m harness.ledger model=llama2_7b
python -m harness.ledger model=llama2_7b +model.config.intermediate_size=4096
python -m harness.ledger model=hf model.path=HUB_ID_OR_FOLDER        model=gguf model.path=FILE.gguf
python -m harness.ledger model=shape model.shape.layers=118 model.shape.d_model=18432 model.shape.ratio=4
python -m harness.ledger family "model.members=[[12,768],[24,1536]]"
python -m harness.ledger model=mixtral_8x7b ledger.format=json       table, csv or json
python -m harness.ledger model=llama2_7b ledger.picture=llama2       writes llama2.png and llama2.svg
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import OmegaConf

from harness.errors import UserError
from harness.ledger.config import Format, LedgerConfig, LedgerOptions
from harness.ledger.presets import choices, nearest, preset, shape_of

if TYPE_CHECKING:
    from harness.ledger.build import Ledger


def compose(arguments: Sequence[str]) -> LedgerConfig:
    """The typed config of a command line in Hydra's grammar. UserError in one line for what it does not know."""
    from hydra import compose as hydra_compose
    from hydra import initialize
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = [_checked(argument) for argument in arguments]
    store = ConfigStore.instance()
    before = dict(store.repo.get("model", {}))
    try:
        store.store(name="ledger", node=LedgerConfig)
        for name, choice in choices().items():
            store.store(group="model", name=name, node=choice)
        with initialize(version_base="1.3", config_path=None):
            config = OmegaConf.to_object(hydra_compose("ledger", overrides=overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_reason(error)) from error
    finally:
        store.repo["model"] = before  # the process may compose runs as well, whose models have the same names
    assert isinstance(config, LedgerConfig)
    return config


def _checked(argument: str) -> str:
    """An override whose preset or setting exists. A field of the model's own config needs no `+`."""
    field, _, value = argument.lstrip("+").partition("=")
    if field == "model":
        preset(value, "model")
    schema: Any = LedgerConfig
    for depth, part in enumerate(field.split(".")):
        known = [f.name for f in fields(schema) if f.name != "defaults"]
        if part not in known:
            raise UserError(f"{argument}: there is no setting {field.split('.')[depth]}. {nearest(part, known)}")
        schema = get_type_hints(schema)[part]
        if not is_dataclass(schema):
            break
    return f"++{argument.lstrip('+')}" if field.startswith("model.config.") else argument


def _reason(error: BaseException | None) -> str:
    """Hydra's and OmegaConf's words for a wrong value in one line, without their bookkeeping."""
    lines: list[str] = []
    while error is not None:
        lines += [line.strip() for line in str(error).splitlines()]
        error = error.__cause__
    noise = ("full_key", "reference_type", "object_type", "See http")
    return ". ".join(dict.fromkeys(line for line in lines if line and not line.startswith(noise)))


def run(arguments: Sequence[str]) -> None:
    """Compose, work out, print; draw where asked."""
    from harness.ledger.build import build
    from harness.ledger.render import as_csv, as_json, print_tables

    config = compose(arguments)
    ledger = build(config)
    pictures = draw(config, ledger) if config.ledger.picture else []
    if config.ledger.format is Format.table:
        print_tables(ledger)
    else:
        sys.stdout.write(as_json(ledger) if config.ledger.format is Format.json else as_csv(ledger))
    for path in pictures:
        print(f"wrote {path}", file=sys.stderr)


def draw(config: LedgerConfig, ledger: Ledger) -> list[Path]:
    """The picture of a model's plans, or of several models' shares."""
    from harness.ledger import picture

    if ledger.shape is None:
        raise UserError("ledger.picture: a family has no single picture. Choose one model.")
    if config.ledger.beside:
        shapes = [ledger.shape, *(shape_of(preset(name, "ledger.beside")) for name in config.ledger.beside)]
        figure = picture.draw(picture.share_bars(shapes), "% of all parameters", "Parameters by role")
    else:
        bars = picture.plan_bars(ledger.shape, config.ledger)
        figure = picture.draw(bars, "GB", f"{ledger.model}: weight bytes by role")
    try:
        return picture.save(figure, config.ledger.picture)
    except OSError as error:
        raise UserError(f"ledger.picture={config.ledger.picture}: cannot be written there ({error}).") from error


def usage() -> str:
    """The command lines, presets and settings."""
    settings = OmegaConf.to_yaml(OmegaConf.structured(LedgerOptions))
    indented = "".join(f"    {line}\n" for line in settings.splitlines())
    return f"{__doc__}\nmodel: {', '.join(choices())}\n\nledger:\n{indented}"


def main() -> int:
    """Entry point: 0, or 2 with a line on stderr for a user's mistake."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(usage())
        return 0
    for library in ("TRANSFORMERS", "HF_HUB"):  # their notes on defaults and retries would mix with ours
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    try:
        run(["model=family" if argument == "family" else argument for argument in sys.argv[1:]])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
