"""torchrun with a report: runs `torch.distributed.run` and writes how its workers ended.

    python -P -m autoplan.executor.launch.agent REPORT.json TORCHRUN_ARGUMENTS…

torchrun prints how its workers failed; the launcher needs that rank by rank, and says it once.
"""

import logging
import sys
from contextlib import suppress
from pathlib import Path

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from autoplan.errors import RunError
from autoplan.executor.files import write_atomically
from autoplan.executor.launch.failure import AgentReport
from autoplan.executor.launch.process import die_with_parent
from autoplan.spec.codec import to_json


def main() -> None:
    """Run torchrun; exit with 1 when a worker failed."""
    die_with_parent()
    report, arguments = Path(sys.argv[1]), sys.argv[2:]
    logging.disable(logging.ERROR)
    try:
        torchrun.run(torchrun.parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        exit_codes = {rank: failure.exitcode for rank, failure in sorted(error.failures.items())}
        with suppress(RunError):  # on a full disk the launcher goes by what the ranks reported
            write_atomically(report, to_json(AgentReport(exit_codes=exit_codes, error=None)))
        sys.exit(1)
    except SignalException:
        sys.exit(0)


if __name__ == "__main__":
    main()
