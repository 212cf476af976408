"""Request bodies are read as strictly as files: a key given twice, NaN or broken text is a problem (400)."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.problems import ProblemError, from_status
from autoplan.errors import InputError
from autoplan.readers.documents import parse_json


class StrictRoute(APIRoute):
    """A route whose JSON body, where it has one, must be well formed to the letter."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads the body strictly before anything else."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            if self.body_field is not None:
                _require_json(request)
                _parse(await request.body())
            return await handle(request)

        return handle_strictly


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        detail = f"send the body with Content-Type: application/json, not {media_type or 'without a type'}"
        raise ProblemError(from_status(415, detail, where="header Content-Type"))


def _parse(body: bytes) -> None:
    try:
        _refuse_surrogates(parse_json(body.decode(), where="body", error=InputError))
    except (InputError, UnicodeDecodeError) as error:
        detail = error.message if isinstance(error, InputError) else f"not UTF-8 text at byte {error.start}"
        raise ProblemError(from_status(400, detail, where="body")) from None


def _refuse_surrogates(value: Any) -> None:
    """Raise InputError when a key or string holds half a surrogate pair: no answer and no file could hold it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(error.object[error.start]):04x}"
        raise InputError(f"{code} is half a surrogate pair, which is not a character", where="body") from None
    except RecursionError:
        raise InputError("malformed JSON: nested too deeply", where="body") from None
