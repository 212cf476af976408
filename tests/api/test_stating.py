from api.stating import stated


def test_nothing_is_stated_of_a_request_that_left_nothing_open():
    assert stated({}, []) == {}


def test_defaults_are_a_structured_dictionary():
    defaults = {"cluster": "cpu:1x2", "workload": {"global_batch": 16, "precision": "bf16"}}
    assert stated(defaults, ()) == {
        "Autoplan-Defaults": 'cluster="cpu:1x2", workload.global_batch=16, workload.precision="bf16"'
    }


def test_notices_stay_one_header_of_printable_characters():
    headers = stated({}, ['model: "a"\r\nSet-Cookie: x', "è"])
    assert headers == {"Autoplan-Notices": '"model: \\"a\\"??Set-Cookie: x", "?"'}
