# Sourced by the scripts in this directory. Changes to the project root and provides ensure_environment, which creates .venv and
# installs the packages of pyproject.toml. It reinstalls them when pyproject.toml has changed, and recreates .venv when its Python
# no longer runs.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The scripts start many Python processes. Without bytecode files each of them compiles all modules again.
unset PYTHONDONTWRITEBYTECODE

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python 3.11 or newer found: install it (for example the packages python3.11 and python3.11-venv), or set PYTHON to its path" >&2
    return 1
}

ensure_environment() {
    if .venv/bin/python -c '' 2>/dev/null; then
        cmp --silent pyproject.toml .venv/installed-from && return
    else
        create_environment || return 1
    fi
    echo "installing the packages of pyproject.toml into .venv; this can take a few minutes" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' >&2 || {
        echo "cannot install the packages; see the output of pip above" >&2
        return 1
    }
    cp pyproject.toml .venv/installed-from
}

create_environment() {
    local python
    python="$(find_python)" || return 1
    echo "creating .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv || {
        echo "$python cannot create a virtual environment: install its venv module (on Debian and Ubuntu the package python3-venv)" >&2
        return 1
    }
}
