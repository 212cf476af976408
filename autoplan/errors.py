"""Every error that autoplan raises on purpose.

::

    AutoplanError
    ├── InputError (also ValueError)     exit status 2, HTTP 4xx: the user can mend it
    │   ├── ModelError                   a model argument: unknown family, missing or contradictory field
    │   ├── ClusterError                 a cluster argument or cluster file
    │   ├── WorkloadError                batch, sequence length, optimizer, precision
    │   ├── ConfigurationError           degrees or pins that break a rule
    │   ├── ProfileError                 a profile file, or a profile of another device
    │   ├── CoefficientsError            a file of fitted coefficients, or other ones than a plan was made with
    │   ├── PlanError                    a plan file: wrong hash, wrong shape, not runnable here
    │   ├── DataError                    training data or a file of measured rows
    │   └── CheckpointError              a checkpoint that is missing, damaged or of another model
    ├── NoPlanError                      exit status 3, HTTP 422: nothing fits, with numbered remedies
    └── RunError                         exit status 4: a run or a measurement failed, with rank and cause
"""

from dataclasses import dataclass


class AutoplanError(Exception):
    """The root of the tree. `exit_status` is what a command returns."""

    exit_status = 1


class InputError(AutoplanError, ValueError):
    """Something the user gave is wrong; `where` names the field, file and line, or flag."""

    exit_status = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message if where is None else f"{where}: {message}")
        self.message = message
        self.where = where


class ModelError(InputError):
    """A model argument that cannot be read."""


class ClusterError(InputError):
    """A cluster argument that cannot be read."""


class WorkloadError(InputError):
    """A batch, sequence length, optimizer or precision that makes no sense."""


class ConfigurationError(InputError):
    """Degrees or pins that break a rule of the plan space."""


class ProfileError(InputError):
    """A profile that cannot be read, or one of another device."""


class CoefficientsError(InputError):
    """Coefficients that cannot be read, or other ones than a plan was made with."""


class PlanError(InputError):
    """A plan that cannot be read, was altered, or cannot run here."""


class DataError(InputError):
    """Training data or measured rows that cannot be used."""


class CheckpointError(InputError):
    """A checkpoint that is missing, damaged, or belongs to another model."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that would make a plan fit, with what it costs, in words and numbers."""

    action: str
    effect: str


class NoPlanError(AutoplanError):
    """No plan fits, or none was found within the limits; `remedies` say what would change that."""

    exit_status = 3

    def __init__(self, message: str, *, remedies: tuple[Remedy, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedies = remedies


class RunError(AutoplanError):
    """A run failed; `rank` names the first rank that failed where it is known."""

    exit_status = 4

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message if rank is None else f"rank {rank}: {message}")
        self.message = message
        self.rank = rank
