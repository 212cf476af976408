from pathlib import Path

import numpy as np
import pytest

from autoplan.errors import DataError
from autoplan.executor.data.corpus import open_corpus


def write_ids(path: Path, ids: list[int], dtype: str) -> Path:
    np.array(ids, dtype=dtype).tofile(path)
    return path


def test_text_is_bytes_and_any_byte_is_allowed(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\xff\xc3\n")
    corpus = open_corpus(path, vocab_size=256)
    assert (corpus.dtype, corpus.num_tokens) == ("bytes", 4)
    assert corpus.read(0, 4).tolist() == [97, 255, 195, 10]


def test_a_folder_is_its_text_files_in_order(tmp_path):
    for name, content in {"b.txt": b"bb", "a/z.py": b"az", "a.txt": b"", "blob": b"x\0y", ".hidden": b"h"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    corpus = open_corpus(tmp_path, vocab_size=256)
    assert bytes(corpus.read(0, corpus.num_tokens).astype(np.uint8)) == b"azbb"
    assert bytes(corpus.read(1, 2).astype(np.uint8)) == b"zb"


@pytest.mark.parametrize(
    ("name", "dtype", "vocab_size", "ids"),
    [
        ("a.u16.bin", "<u2", 50_000, [1, 2, 49_999]),
        ("a.u32.bin", "<u4", 50_000, [1, 2, 49_999]),
        ("a.bin", "<u2", 50_000, [1, 2, 49_999]),
        ("a.bin", "<u4", 150_000, [1, 2, 149_999]),
    ],
)
def test_the_width_of_ids_is_in_the_name_or_follows_from_the_vocabulary(tmp_path, name, dtype, vocab_size, ids):
    corpus = open_corpus(write_ids(tmp_path / name, ids, dtype), vocab_size=vocab_size)
    assert corpus.read(0, 3).tolist() == ids


def test_a_given_type_wins_over_the_name(tmp_path):
    path = write_ids(tmp_path / "ids.dat", [5, 6], "<u4")
    assert open_corpus(path, vocab_size=10, dtype="uint32").read(0, 2).tolist() == [5, 6]


def test_wide_ids_in_a_plain_bin_are_not_taken_for_narrow_ones(tmp_path):
    path = write_ids(tmp_path / "a.bin", list(range(20)), "<u4")
    with pytest.raises(DataError, match=r"as if the ids had 32 bits"):
        open_corpus(path, vocab_size=100)


def test_an_id_outside_the_vocabulary_names_file_and_position(tmp_path):
    write_ids(tmp_path / "a.u16.bin", [1] * 10, "<u2")
    write_ids(tmp_path / "b.u16.bin", [1, 2, 3, 100, 4], "<u2")
    corpus = open_corpus(tmp_path, vocab_size=100)
    corpus.read(0, 13)
    for read in (corpus.scan, lambda: corpus.read(12, 3)):
        with pytest.raises(DataError, match=r"b\.u16\.bin: token 3 is 100, the vocabulary has 100 entries"):
            read()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no text and no .bin"),
        ({"a.txt": b""}, "holds no tokens"),
        ({"a.u16.bin": b"123"}, "not a multiple of 2"),
        ({"a.u16.bin": b"12", "b.txt": b"text"}, "several kinds"),
    ],
)
def test_unusable_folders_are_refused(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_corpus(tmp_path, vocab_size=256)


def test_missing_data_and_too_small_a_vocabulary_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        open_corpus(tmp_path / "missing", vocab_size=256)
    (tmp_path / "text").write_text("text")
    with pytest.raises(DataError, match="vocabulary of 256 bytes, the model has 255"):
        open_corpus(tmp_path / "text", vocab_size=255)


def test_the_fingerprint_follows_content_names_and_sizes(tmp_path):
    path = tmp_path / "a"

    def fingerprint(content: bytes) -> str:
        path.write_bytes(content)
        return open_corpus(tmp_path, vocab_size=256).fingerprint()

    first = fingerprint(b"x" * 5000)
    assert fingerprint(b"x" * 5000) == first
    assert fingerprint(b"y" + b"x" * 4999) != first
    assert fingerprint(b"x" * 5001) != first
    path.rename(tmp_path / "b")
    assert open_corpus(tmp_path, vocab_size=256).fingerprint() != first


def test_a_file_cut_short_while_open_is_noticed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    corpus = open_corpus(path, vocab_size=256)
    path.write_bytes(b"x" * 50)
    with pytest.raises(DataError, match="shorter"):
        corpus.read(40, 20)
