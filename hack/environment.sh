# Sourced by the scripts in this folder: goes to the project's root and makes sure that .venv holds what pyproject.toml asks for.
# Packages are installed again when pyproject.toml has changed, and a virtualenv whose Python is gone is made anew.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python 3.11 or newer found: install one (for example the package python3.11 with python3.11-venv), or set PYTHON to it" >&2
    return 1
}

ensure_environment() {
    if .venv/bin/python -c '' 2>/dev/null; then
        cmp --silent pyproject.toml .venv/installed-from && return
    else
        make_environment || return 1
    fi
    echo "installing the packages that pyproject.toml asks for into .venv, which may take a few minutes" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' >&2 || {
        echo "could not install the packages; pip says why above" >&2
        return 1
    }
    cp pyproject.toml .venv/installed-from
}

make_environment() {
    local python
    python="$(find_python)" || return 1
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv || {
        echo "$python cannot make a virtualenv: install its venv module (on Debian and Ubuntu the package python3-venv)" >&2
        return 1
    }
}
