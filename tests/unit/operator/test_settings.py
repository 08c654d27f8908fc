"""Settings come from flags and the environment, and what makes no sense is told in a sentence."""

from __future__ import annotations

import argparse

import pytest

from dlop.operator.settings import Settings, SettingsError, add_arguments, table


def parsed(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args(arguments))


def test_a_flag_goes_before_its_variable_and_a_variable_before_the_default() -> None:
    settings = Settings.read(parsed("--workers", "7"), {"DLOP_WORKERS": "5", "DLOP_LOG_LEVEL": "DEBUG"})
    assert settings.workers == 7
    assert settings.log_level == "debug"
    assert settings.writes_in_flight == 64


def test_lists_are_separated_by_commas() -> None:
    assert Settings.read(parsed("--namespaces", "a, b,"), {}).namespaces == ("a", "b")
    assert Settings.read({}, {"DLOP_NAMESPACES": "a,b"}).namespaces == ("a", "b")


def test_lists_can_be_given_one_by_one() -> None:
    assert Settings.read(parsed("--framework", "a:B", "--framework", "c:D"), {}).frameworks == ("a:B", "c:D")


@pytest.mark.parametrize(("given", "expected"), [((), None), (("--leader-election",), True), (("--leader-election", "false"), False)])
def test_a_switch_can_be_left_out_or_given_either_way(given: tuple[str, ...], expected: bool | None) -> None:
    assert Settings.read(parsed(*given), {}).leader_election is expected


def test_a_wrong_value_is_told_with_the_name_of_its_flag_or_variable() -> None:
    with pytest.raises(SettingsError, match="--workers is 'many'"):
        Settings.read(parsed("--workers", "many"), {})
    with pytest.raises(SettingsError, match="DLOP_LOG_FORMAT is 'xml'"):
        Settings.read({}, {"DLOP_LOG_FORMAT": "xml"})


def test_lease_times_that_would_allow_two_leaders_are_refused() -> None:
    with pytest.raises(SettingsError, match="--lease-duration-seconds must be more than --renew"):
        Settings.read(parsed("--lease-duration-seconds", "5"), {})


def test_settings_never_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().workers = 3


def test_every_setting_has_a_flag_a_variable_and_a_meaning() -> None:
    for row in table():
        assert row.flag.startswith("--")
        assert row.variable.startswith("DLOP_")
        assert row.meaning
