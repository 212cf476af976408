import pytest

from api.settings import read_settings
from autoplan.errors import InputError


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return monkeypatch


def test_defaults_listen_on_loopback_and_keep_the_database_in_the_users_data_folder(tmp_path):
    settings = read_settings()
    assert settings.host == "127.0.0.1"
    assert settings.database_url == f"sqlite:///{tmp_path}/autoplan/autoplan.db"


def test_the_environment_is_read_and_what_is_given_goes_before_it(environment):
    environment.setenv("AUTOPLAN_PORT", "9000")
    assert read_settings().port == 9000
    assert read_settings(port=9001).port == 9001


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_an_address_that_others_reach_is_refused_unless_it_is_allowed(host):
    with pytest.raises(InputError, match=r"AUTOPLAN_HOST.*AUTOPLAN_ALLOW_REMOTE"):
        read_settings(host=host)
    assert read_settings(host=host, allow_remote=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_addresses_are_allowed(host):
    assert read_settings(host=host).host == host


def test_a_wrong_value_names_its_variable(environment):
    environment.setenv("AUTOPLAN_WORKERS", "0")
    with pytest.raises(InputError) as caught:
        read_settings()
    assert caught.value.where == "AUTOPLAN_WORKERS"
