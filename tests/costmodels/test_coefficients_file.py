import json

import pytest

from autoplan.errors import CoefficientsError
from autoplan.spec.codec import to_json, to_jsonable
from costmodels.coefficients import Coefficients, fitted_coefficients
from costmodels.coefficients_file import load_coefficients

WHOLE = to_jsonable(fitted_coefficients())


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.json"


def refused(file, text):
    file.write_text(text)
    with pytest.raises(CoefficientsError) as failure:
        load_coefficients(file)
    assert failure.value.where == str(file)
    return failure.value.message


def changed(**parts):
    return json.dumps(WHOLE | parts)


def spread(**parts):
    return changed(spread=WHOLE["spread"] | parts)


@pytest.mark.parametrize("coefficients", [fitted_coefficients(), Coefficients()])
def test_what_calibrate_writes_comes_back(file, coefficients):
    file.write_text(to_json(coefficients) + "\n")
    assert load_coefficients(file) == coefficients


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(CoefficientsError, match=r"none\.json: no such file"):
        load_coefficients(tmp_path / "none.json")
    with pytest.raises(CoefficientsError, match=r"Is a directory"):
        load_coefficients(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "malformed JSON at line 1, column 1"),
        ("[]", "must be a JSON object, as `autoplan calibrate --out` writes it"),
        ("{}", "coefficient 'products' is missing: calibrate again"),
        ('{"memory": 0.8, "memory": 0.9}', "malformed JSON: key 'memory' is given twice"),
        (changed(product=0.9), "unknown coefficient 'product'. did you mean"),
        (changed(memory=-0.8), "memory: Input should be greater than 0"),
        (changed(memory=0), "memory: Input should be greater than 0"),
        (changed(memory=True), "memory: Input should be a valid number"),
        (changed(memory="0.8"), "memory: Input should be a valid number"),
        (changed(memory=None), "memory: Input should be a valid number"),
        (changed(memory=float("nan")), "malformed JSON: NaN is not a JSON number"),
        (changed(memory=0.8).replace('"memory": 0.8', '"memory": 1e999'), "memory: Input should be a finite number"),
        (changed(memory=1e-300), "memory: 1e-300 is not between 1e-06 and 1e+06"),
        (changed(jitter=1e300), "jitter: 1e+300 is not between"),
        (changed(architectures={"hopper": 1.0}), "architectures: 'hopper' is not COEFFICIENT.ARCHITECTURE"),
        (changed(architectures={"speed.hopper": 1.0}), "architectures: 'speed.hopper' is not"),
        (changed(architectures={"hidden_data.hopper": 1.0}), "architectures: 'hidden_data.hopper' is not"),
        (changed(architectures={"products.hoper": 1.0}), "architectures: 'products.hoper' is not"),
        (changed(hidden_expert=1.5), "hidden_expert: 1.5 is more than all, 1"),
        (changed(products=1e6), "products: 1e+06 is more than all, 1"),
        (changed(architectures={"products.hopper": 1e9}), "products.hopper: 1e+09 is not between"),
        (changed(spread={}), "spread 'between' is missing"),
        (spread(between={"luck": 0.1}), "spread.between: unknown direction 'luck'. Known: attention, "),
        (spread(quantile=1e300), "spread.quantile: 1e+300 is more than 10"),
        (spread(between={"host": 1e6}), "spread.between.host: 1e+06 is more than 10"),
    ],
)
def test_a_file_that_is_no_whole_set_of_coefficients_is_refused(file, text, message):
    assert refused(file, text).startswith(message)
