from pathlib import Path

from autoplan.cli.sample_text import standard_library_text, training_data


def test_the_text_is_the_standard_librarys_source_every_time():
    text = standard_library_text()
    assert text == standard_library_text()
    assert "class JSONDecoder" in text
    assert len(text) > 2**20


def test_given_data_is_left_alone_and_sample_data_goes():
    with training_data(Path("mine")) as path:
        assert path == Path("mine")
    with training_data(None) as path:
        assert path.is_file()
    assert not path.parent.exists()
