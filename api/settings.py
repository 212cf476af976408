"""Settings of the service, read from the environment: `AUTOPLAN_HOST`, `AUTOPLAN_PORT`, and so on.

The database is a SQLite file in the user's data folder (``$XDG_DATA_HOME/autoplan/autoplan.db``, by default
``~/.local/share/autoplan/autoplan.db``) unless `AUTOPLAN_DATABASE_URL` names another one.
"""

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from autoplan.errors import InputError

Count = Annotated[int, Field(ge=1)]


def default_database_url() -> str:
    """Return the URL of the SQLite file in the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return f"sqlite:///{Path(home) / 'autoplan' / 'autoplan.db'}"


class Settings(BaseSettings):
    """What the service can be told; each field is also the environment variable `AUTOPLAN_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="AUTOPLAN_", extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    allow_remote: bool = Field(
        default=False,
        description="Allow an address that other machines reach. The service asks nobody for a password.",
    )
    database_url: str = Field(default_factory=default_database_url, description="SQLAlchemy URL of the database.")
    workers: Count = Field(
        default_factory=lambda: max(1, (os.cpu_count() or 1) // 2), description="Searches that run at once."
    )
    max_queued: Count = Field(32, description="Searches that may wait for a worker before new ones get a 503.")
    max_wait_seconds: int = Field(60, ge=0, description="The longest time that `Prefer: wait` is granted.")
    search_time_limit_seconds: float = Field(
        600.0, gt=0, allow_inf_nan=False, description="Time limit of a search that asks for none, or for more."
    )
    max_body_bytes: Count = Field(2**20, description="Size of the largest request body.")

    @model_validator(mode="after")
    def _refuse_open_door(self) -> "Settings":
        if not self.allow_remote and not _is_loopback(self.host):
            raise ValueError(
                f"host {self.host} opens a service without passwords to other machines; "
                "set AUTOPLAN_ALLOW_REMOTE=true if that is meant"
            )
        return self


def read_settings(**given: Any) -> Settings:
    """Read the settings from the environment; what is `given` goes before it.

    Raises InputError that names the environment variable.
    """
    try:
        return Settings(**given)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        field = str(first["loc"][0]) if first["loc"] else "host"
        raise InputError(first["msg"].removeprefix("Value error, "), where=f"AUTOPLAN_{field.upper()}") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
