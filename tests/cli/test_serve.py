import socket


def test_a_port_that_is_taken_is_a_users_mistake(autoplan, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = autoplan("serve", "--port", port, "--database", f"sqlite:///{tmp_path}/plans.db", "--json")
    assert answer.status == 2
    assert str(port) in answer.json["error"]["message"]


def test_opening_to_other_machines_needs_a_word(autoplan):
    answer = autoplan("serve", "--host", "0.0.0.0")
    assert answer.status == 2
    assert "AUTOPLAN_ALLOW_REMOTE" in answer.err
