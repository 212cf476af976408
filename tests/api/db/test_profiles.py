from dataclasses import replace

import pytest

from api.db import profiles
from api.db.engine import Database
from autoplan.spec import Profile
from autoplan.spec.codec import from_jsonable


@pytest.fixture
def database(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/autoplan.db")
    yield database
    database.close()


@pytest.fixture
def value(profile):
    return from_jsonable(Profile, profile, where="test")


def test_a_profile_is_stored_once(database, value):
    first, new = database.call(profiles.add_profile, value)
    again, known = database.call(profiles.add_profile, value)
    assert (new, known) == (True, False)
    assert first.id == again.id
    assert database.call(profiles.get_profile, first.id) == value


def test_the_newest_is_the_one_that_was_stored_last(database, value):
    assert database.call(profiles.get_newest_profile) is None
    other = replace(value, optimizer_bytes_per_second=1e9)
    for profile in (value, other):
        row, _ = database.call(profiles.add_profile, profile)
    assert database.call(profiles.get_newest_profile) == (row.id, other)
    assert [row.num_devices for row in database.call(profiles.list_profiles, limit=5, before=None)] == [2, 2]
