def test_json_compares_with_neighbours_and_the_pins(plan_file, autoplan):
    answer = autoplan("explain", plan_file, "--why-not", "tp=4,pp=1", "--json")
    assert answer.status == 0
    assert answer.json["why_not"]["pins"] == {"tp": 4, "pp": 1}
    assert answer.json["why_not"]["configuration"]["tp"] == 4
    assert {"tp": 2} in [other["pins"] for other in answer.json["neighbours"]]


def test_the_text_says_what_binds(plan_file, autoplan):
    text = autoplan("explain", plan_file, "--why-not", "tp=4").out
    for word in ("sets the pace", "memory", "why not tp 4", "with instead", "recompute full", "not modelled"):
        assert word in text


def test_wrong_pins_name_the_flag(plan_file, autoplan):
    answer = autoplan("explain", plan_file, "--why-not", "width=3")
    assert answer.status == 2
    assert "--why-not width=3" in answer.err


def test_a_plan_that_was_altered_is_refused(plan_file, autoplan):
    plan_file.write_text(plan_file.read_text().replace('"seq_len": 1024', '"seq_len": 512'))
    answer = autoplan("explain", plan_file)
    assert answer.status == 2
    assert "does not match the content" in answer.err


def test_no_row_is_shown_twice(plan_file, autoplan):
    lines = autoplan("explain", plan_file).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("with instead"))
    rows = [line for line in lines[start + 1 :] if not line.startswith(("no plan with", "not modelled"))]
    assert len(rows) > 3
    assert len(set(rows)) == len(rows)
