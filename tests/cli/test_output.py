import re
from pathlib import Path

import pytest
from rich.table import Table

from autoplan.cli.output import check_writable, console, write_text


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "plan.json"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_left_when_writing_fails(tmp_path):
    path = tmp_path / "plan.json"
    write_text(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_what_can_be_written_is_not_made_yet(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    for path in (kept, tmp_path / "new", tmp_path / "some" / "folder" / "new", Path("/dev/null")):
        check_writable(path)
    assert kept.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("name", ["", "file/new", "file/folder/new", "x" * 300])
def test_what_cannot_be_written_is_named(name, tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / name
    for write in (check_writable, lambda path: write_text(path, "one")):
        with pytest.raises(OSError, match=re.escape(str(path))):
            write(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_file_gets_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    write_text(tmp_path / "plan.json", "one")
    assert (tmp_path / "plan.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(capsys):
    out = console()
    out.print("word " * 100)
    table = Table("name", "figure", box=None, padding=(0, 2, 0, 0))
    table.add_row("a", "1")
    out.print(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [("word " * 100).rstrip(), "name  figure", "a     1"]
