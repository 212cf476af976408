"""`autoplan serve`: the planning service."""

import json
from typing import Annotated

import typer

EXAMPLE = "autoplan serve --port 8000"


def command(
    *,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one. Default: 8000.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", help="SQLAlchemy URL. Default: SQLite in the user's data folder."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout: the URL, in a line, once it answers.")
    ] = False,
) -> None:
    """Serve plans over HTTP until Ctrl-C or SIGTERM.

    What has no option here is set by environment variables: AUTOPLAN_ALLOW_REMOTE, AUTOPLAN_WORKERS, and so on.
    """
    from api.serve import serve
    from api.settings import read_settings

    given = {"host": host, "port": port, "database_url": database}
    settings = read_settings(**{name: setting for name, setting in given.items() if setting is not None})
    if as_json:
        serve(settings, on_listening=lambda url: typer.echo(json.dumps({"url": url})))
    else:
        serve(settings)
