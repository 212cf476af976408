from dataclasses import fields
from inspect import signature

import pytest

from autoplan.cli.configuration_options import ConfigurationOptions
from autoplan.cli.options import AskedOptions
from autoplan.cli.plan_options import OptimizerSettings, SearchFlags
from autoplan.errors import ConfigurationError
from autoplan.planner import Asked, make_problem
from autoplan.spec import Configuration
from solver.assemble import default_optimizer
from solver.options import SearchOptions


def test_what_is_asked_has_the_same_names_and_defaults_everywhere():
    usual = {name: each.default for name, each in signature(make_problem).parameters.items()}
    assert set(usual) == {"model", "cluster", *(item.name for item in fields(AskedOptions))}
    assert set(Asked.__annotations__) == set(usual) - {"model"}
    given = AskedOptions(global_batch=8, seq_len=64)
    for name in ("optimizer", "precision", "profile", "coefficients"):
        assert getattr(given, name) == usual[name]
    assert given.stack == usual["stack"].name


def test_the_options_of_a_configuration_are_its_fields_with_their_defaults():
    assert [item.name for item in fields(ConfigurationOptions)] == [item.name for item in fields(Configuration)]
    assert ConfigurationOptions().read() == Configuration()
    assert ConfigurationOptions(tp=4, schedule="gpipe").read() == Configuration(tp=4, schedule="gpipe")


def test_a_degree_that_is_too_large_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="tp"):
        ConfigurationOptions(tp=2**40).read()


def test_without_flags_the_search_has_its_defaults():
    assert SearchFlags().read() == SearchOptions()


def test_pins_of_fields_and_of_layers_are_told_apart():
    read = SearchFlags(fix=["tp=2", "layers[0].recompute=full"], forbid=["pp>2"], top=1, time_limit=3.0).read()
    assert (read.fix, read.pins) == ({"tp": 2}, {"layers[0].recompute": "full"})
    assert (read.forbid, read.top, read.time_limit_seconds) == (("pp>2",), 1, 3.0)


def test_settings_of_the_optimizer_replace_the_usual_ones():
    usual = default_optimizer("adamw")
    assert OptimizerSettings().of("adamw") == usual
    assert OptimizerSettings(lr=1.0).of("adamw").learning_rate == 1.0
    assert OptimizerSettings(warmup_steps=0).of("adamw").warmup_steps == 0
