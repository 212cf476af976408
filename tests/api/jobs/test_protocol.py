import io

from api.jobs.protocol import encode, read_message


def test_messages_come_back_one_after_the_other():
    stream = io.BytesIO(encode({"a": "é\n"}) + encode({"b": [1.5, None]}))
    assert [read_message(stream), read_message(stream), read_message(stream)] == [
        {"a": "é\n"},
        {"b": [1.5, None]},
        None,
    ]


def test_a_message_that_is_cut_off_is_the_end():
    whole = encode({"a": 1})
    assert all(read_message(io.BytesIO(whole[:size])) is None for size in range(len(whole)))
