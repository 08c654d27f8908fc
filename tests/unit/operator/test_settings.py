"""Settings are read from flags and the environment; errors name the flag or variable."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dlop.api.types import ForceDeletion
from dlop.frameworks.registry import Registry, load_registry
from dlop.operator.main import make_options
from dlop.operator.settings import Settings, SettingsError, add_arguments, list_settings, load_framework_flags, with_framework_flags
from tests.unit.operator.ring_flags import RingFlags


def parse(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Settings)
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


def test_pods_are_force_deleted_only_if_a_flag_asks_for_it() -> None:
    assert Settings.load({}, {}).force_deletion is ForceDeletion.NEVER
    settings = Settings.load(parse("--force-deletion", "node-down"), {})
    assert make_options(settings, Registry([])).force_deletion is ForceDeletion.NODE_DOWN


def test_the_image_that_clones_git_repositories_is_set_with_a_flag() -> None:
    settings = Settings.model_validate({"git_sync_image": "registry.example.org/git-sync:v4"})
    assert make_options(settings, Registry([])).git_sync_image == "registry.example.org/git-sync:v4"
    assert make_options(Settings(), Registry([])).git_sync_image == ""


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().workers = 3


def test_every_setting_has_a_flag_a_variable_and_a_description() -> None:
    for setting in list_settings(with_framework_flags(load_registry().flags)):
        assert setting.flag.startswith("--")
        assert setting.variable.startswith("DLOP_")
        assert setting.description


# --- flags of frameworks ------------------------------------------------------------------------------------------------

WITH_RING = with_framework_flags([RingFlags])


def test_flags_of_a_framework_are_read_like_those_of_the_operator(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, WITH_RING)
    (tmp_path / "order").write_text("a b c")
    arguments = parser.parse_args(["--ring-size", "7", "--ring-order-file", str(tmp_path / "order")])
    loaded = WITH_RING.load(vars(arguments), {"DLOP_RING_SIZE": "5", "DLOP_RING_IMAGE": "ring:1"})
    assert load_framework_flags(loaded, [RingFlags]) == (RingFlags(ring_size=7, ring_image="ring:1", ring_order_file="a b c"),)


def test_flags_that_are_not_set_have_the_defaults_of_the_framework() -> None:
    assert load_framework_flags(WITH_RING.load({}, {}), [RingFlags]) == (RingFlags(),)


def test_an_invalid_flag_of_a_framework_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="DLOP_RING_SIZE: invalid value '0': must be greater than or equal to 1"):
        WITH_RING.load({}, {"DLOP_RING_SIZE": "0"})
    missing = tmp_path / "missing"
    with pytest.raises(SettingsError, match=f"--ring-order-file: {missing} cannot be read: No such file or directory"):
        load_framework_flags(WITH_RING.load({}, {"DLOP_RING_ORDER_FILE": str(missing)}), [RingFlags])
    (tmp_path / "empty").write_text(" ")
    with pytest.raises(SettingsError, match=f"--ring-order-file: {tmp_path / 'empty'} is invalid: names no peer"):
        load_framework_flags(WITH_RING.load({}, {"DLOP_RING_ORDER_FILE": str(tmp_path / "empty")}), [RingFlags])
