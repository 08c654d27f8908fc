"""Settings are read from flags and the environment; errors name the flag or variable."""

from __future__ import annotations

import argparse

import pytest

from dlop.operator.settings import Settings, SettingsError, add_arguments, list_settings


def parse(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args(arguments))


def test_a_flag_takes_precedence_over_its_variable_and_a_variable_over_the_default() -> None:
    settings = Settings.load(parse("--workers", "7"), {"DLOP_WORKERS": "5", "DLOP_LOG_LEVEL": "DEBUG"})
    assert settings.workers == 7
    assert settings.log_level == "debug"
    assert settings.writes_in_flight == 64


def test_lists_are_comma_separated() -> None:
    assert Settings.load(parse("--namespaces", "a, b,"), {}).namespaces == ("a", "b")
    assert Settings.load({}, {"DLOP_NAMESPACES": "a,b"}).namespaces == ("a", "b")


def test_a_list_flag_can_be_repeated() -> None:
    assert Settings.load(parse("--framework", "a:B", "--framework", "c:D"), {}).frameworks == ("a:B", "c:D")


@pytest.mark.parametrize(("arguments", "expected"), [((), None), (("--leader-election",), True), (("--leader-election", "false"), False)])
def test_a_boolean_flag_is_unset_true_or_false(arguments: tuple[str, ...], expected: bool | None) -> None:
    assert Settings.load(parse(*arguments), {}).leader_election is expected


def test_an_invalid_value_is_reported_with_the_name_of_its_flag_or_variable() -> None:
    with pytest.raises(SettingsError, match="--workers: invalid value 'many'"):
        Settings.load(parse("--workers", "many"), {})
    with pytest.raises(SettingsError, match="DLOP_LOG_FORMAT: invalid value 'xml'"):
        Settings.load({}, {"DLOP_LOG_FORMAT": "xml"})


def test_lease_durations_that_would_allow_two_leaders_are_rejected() -> None:
    with pytest.raises(SettingsError, match="--lease-duration-seconds must be greater than --renew"):
        Settings.load(parse("--lease-duration-seconds", "5"), {})


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().workers = 3


def test_every_setting_has_a_flag_a_variable_and_a_description() -> None:
    for setting in list_settings():
        assert setting.flag.startswith("--")
        assert setting.variable.startswith("DLOP_")
        assert setting.description
