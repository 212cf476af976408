from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer

from autoplan.cli.groups import with_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    length: Annotated[int, typer.Option("--length", min=1)]
    width: Annotated[int, typer.Option("--width")] = 2


@pytest.fixture
def run(capsys):
    def command(name: Annotated[str, typer.Argument()], *, size: Size, loud: bool = False) -> None:
        """Say it."""
        typer.echo(f"{name} {size} {loud}")

    app = typer.Typer()
    app.command()(with_groups(command))

    def call(*arguments):
        app(list(arguments), standalone_mode=False)
        return capsys.readouterr().out.strip()

    return call


def test_the_fields_of_a_group_are_options_and_come_back_as_the_group(run):
    assert run("box", "--length", "3") == "box Size(length=3, width=2) False"
    assert run("box", "--length", "3", "--width", "5", "--loud") == "box Size(length=3, width=5) True"


@pytest.mark.parametrize("wrong", [(), ("--length", "0"), ("--length", "x"), ("--length", "1", "--size", "1")])
def test_a_field_is_checked_as_any_option_is(wrong, run):
    with pytest.raises(typer.TyperException):
        run("box", *wrong)


def test_fields_take_the_place_of_their_group():
    def command(first: int, *, size: Size, last: int = 1) -> None:
        """Do nothing."""

    assert list(signature(with_groups(command)).parameters) == ["first", "length", "width", "last"]
    assert with_groups(command).__doc__ == "Do nothing."
