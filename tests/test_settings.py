"""Settings: from a file and the environment, every name checked."""

from pathlib import Path

import pytest

from foldlog.settings import Settings, SettingsError, load


def test_without_any_the_defaults_hold() -> None:
    assert load(environment={"PATH": "/bin"}) == Settings()


def test_the_environment_outweighs_the_file(tmp_path: Path) -> None:
    file = tmp_path / "foldlog.toml"
    file.write_text('url = "nats://a:1"\nport = 4222\n')
    environment = {"FOLDLOG_URL": "nats://b:2", "FOLDLOG_CONFIG": str(file)}
    assert load(environment=environment) == Settings(url="nats://b:2", port=4222)
    assert load(file, environment={}).url == "nats://a:1"


def test_names_that_tests_use_are_no_settings() -> None:
    assert load(environment={"FOLDLOG_EXAMPLES": "5", "FOLDLOG_CORPUS": "x"}) == Settings()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FOLDLOG_TENNANT": "x"}, "sets FOLDLOG_TENNANT.*did you mean FOLDLOG_TENANT?"),
        ({"FOLDLOG_QQQ": "x"}, "sets FOLDLOG_QQQ.*known are url, data"),
        ({"FOLDLOG_PORT": "many"}, r"the environment: .*\$\.port"),
        ({"FOLDLOG_PORT": "65536"}, r"65536 is not in 0 to 65535 - `\$\.port`"),
        ({"FOLDLOG_LOG_LEVEL": "loud"}, r"\$\.log_level"),
    ],
)
def test_what_cannot_be_set_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(environment=environment)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tennant = 'x'", "sets tennant.*did you mean tenant?"),
        ("port = [1]", r"foldlog.toml: .*\$\.port"),
        ("port =", "is no TOML"),
        ("\ud800", "is no UTF-8 text"),
    ],
)
def test_a_faulty_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "foldlog.toml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(SettingsError, match=said):
        load(file, environment={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read: No such file"):
        load(tmp_path / "none.toml", environment={})
