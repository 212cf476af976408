"""The `autoplan` command: one file per verb, and the one place where an error becomes an exit status."""

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from autoplan import __version__
from autoplan.cli import calibrate, demo, diff, estimate, explain, plan, profile, serve, trace, validate
from autoplan.cli import run as run_verb
from autoplan.cli.failures import close_stdout, report
from autoplan.cli.groups import with_groups
from autoplan.cli.output import say

app = typer.Typer(
    name="autoplan",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (profile, plan, estimate, explain, diff, trace, run_verb, validate, calibrate, serve, demo):
    app.command(verb.__name__.rpartition(".")[2], epilog=f"Example:  {verb.EXAMPLE}")(with_groups(verb.command))


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Describe a model and a cluster, get the fastest training plan that fits, and run it."""


def run() -> NoReturn:
    """Run the command line of this process and leave with its exit status."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Run `arguments` and return the exit status; a user's mistake is reported, a bug keeps its traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        try:
            status = app(list(arguments), prog_name="autoplan", standalone_mode=False)
        except SystemExit as ended:
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            return close_stdout()  # typer and rich would end with a status that says failure
        except Exception as error:
            reported = report(error, as_json="--json" in arguments)
            if reported is None:
                raise
            return reported
    return status if isinstance(status, int) else 0


def _say_warning(message: Warning | str, *_where: Any, **_more: Any) -> None:
    say(f"warning: {message}")
