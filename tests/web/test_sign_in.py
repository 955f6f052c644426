"""Guessing passwords costs time, for every process together; whoever may sign in is told when."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from tests.web.pages import page
from workspaces.actions.signin import forget_old_tries, try_to_sign_in
from workspaces.domain.throttle import PATIENCE, WINDOW_S, counted_address, wait_s
from workspaces.models import SignInCounter, User

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery"
FREE = PATIENCE["name and address"].free


@pytest.fixture(autouse=True)
def quick_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", password=PASSWORD)


def post(password: str, name: str = "ann", address: str = "10.0.0.1") -> Any:
    return Client(REMOTE_ADDR=address).post("/sign-in/", {"username": name, "password": password})


def time_passes(seconds: float) -> None:
    for row in SignInCounter.objects.all():
        row.last_at -= timedelta(seconds=seconds)
        row.until -= timedelta(seconds=seconds)
        row.save()


def test_the_wait_doubles_up_to_its_limit() -> None:
    patience = PATIENCE["name and address"]
    assert [wait_s(tries, patience) for tries in range(FREE + 4)] == [0] * FREE + [2, 4, 8, 16]
    assert wait_s(10_000, patience) == patience.longest_s


def test_after_some_tries_even_the_right_password_has_to_wait(ann: User) -> None:
    for _ in range(FREE):
        assert post("wrong").status_code == 200
    refused = post(PASSWORD)
    assert refused.status_code == 429
    assert 1 <= int(refused["Retry-After"]) <= 2
    seen = page(refused)
    assert f"Wait {refused['Retry-After']} s" in seen.text(".notice-error")
    assert "not looked at" in seen.text(".notice-error")
    assert seen.one("#id_username")["value"] == "ann", "what was typed stays"
    time_passes(3)
    assert post(PASSWORD).status_code == 302
    assert post("wrong").status_code == 200, "after a success it begins anew"


def test_a_wait_is_not_made_longer_by_tries_within_it(ann: User) -> None:
    for _ in range(FREE + 20):
        last = post("wrong")
    assert last.status_code == 429
    assert int(last["Retry-After"]) <= 2


def test_another_address_or_another_name_need_not_wait(ann: User) -> None:
    for _ in range(FREE + 1):
        post("wrong")
    assert post("wrong", name="ben").status_code == 200
    assert post(PASSWORD, address="10.0.0.2").status_code == 302


def test_the_addresses_of_one_ipv6_network_are_one(ann: User) -> None:
    for last in range(FREE):
        post("wrong", address=f"2001:db8:0:1::{last}")
    assert post(PASSWORD, address="2001:db8:0:1:ffff::9").status_code == 429
    assert post(PASSWORD, address="2001:db8:0:2::1").status_code == 302
    assert counted_address("::ffff:10.0.0.1") == counted_address("10.0.0.1")
    assert counted_address("") == ""


def test_a_name_nobody_has_waits_as_one_that_exists() -> None:
    assert [post("wrong", name="nobody").status_code for _ in range(FREE + 1)] == [200] * FREE + [429]


def test_a_name_guessed_from_many_addresses_waits_a_little(ann: User) -> None:
    for number in range(PATIENCE["name"].free):
        assert try_to_sign_in("ann", f"10.1.0.{number}") is None
    until = try_to_sign_in("ANN ", "10.2.0.1")
    assert until is not None


def test_an_address_that_tries_many_names_waits() -> None:
    for number in range(PATIENCE["address"].free):
        assert try_to_sign_in(f"name{number}", "10.0.0.9") is None
    assert try_to_sign_in("one more", "10.0.0.9") is not None
    assert try_to_sign_in("one more", "10.0.0.8") is None


def test_many_tries_at_once_gain_nothing(ann: User) -> None:
    looked_at: list[bool] = []
    together = threading.Barrier(20)

    def guess() -> None:
        together.wait(30)
        looked_at.append(try_to_sign_in("ann", "10.0.0.1") is None)
        connection.close()

    threads = [threading.Thread(target=guess) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert looked_at.count(True) == FREE


def test_old_counters_are_forgotten_and_begin_anew(ann: User) -> None:
    for _ in range(FREE + 1):
        post("wrong")
    time_passes(WINDOW_S + 1)
    assert post("wrong").status_code == 200
    assert {row.tries for row in SignInCounter.objects.all()} == {1}
    assert forget_old_tries() == 0
    time_passes(WINDOW_S + 1)
    assert forget_old_tries() == 3


def test_neither_name_nor_password_lies_in_the_counters(ann: User) -> None:
    post("hunter2", name="my password by mistake")
    stored = "".join(SignInCounter.objects.values_list("key", flat=True))
    assert all(char in "0123456789abcdef" for char in stored)


def test_the_records_have_no_door_of_their_own(ann: User) -> None:
    answer = Client().get("/admin/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/sign-in/?next=")
    assert Client().post("/admin/login/", {"username": "ann", "password": PASSWORD}).status_code == 302
    assert not SignInCounter.objects.exists()
