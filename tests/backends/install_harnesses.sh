#!/bin/sh
# Installs agent harnesses for the tests into the folder given (.venv/harnesses), mini by pip and the others by npm.
# Those that every run of the tests uses (pi, codex, mini-swe-agent): 860 MB, a minute. With `all` as second argument
# also those that run on demand (claude-code, qwen-code, opencode): 650 MB more. Nothing outside the folder changes.
set -eu

folder=${1:-.venv/harnesses}
python=${PYTHON:-python3}

mkdir -p "$folder"
packages="@mariozechner/pi-coding-agent@0.73.1 @openai/codex@0.171.0"
# npm drops what a later call does not name: those that are there are named again.
if [ "${2:-}" = all ] || [ -e "$folder/node_modules/.bin/claude" ]; then
    packages="$packages @anthropic-ai/claude-code@2.1.197 @qwen-code/qwen-code@0.15.10 opencode-ai@1.18.33"
fi
npm install --prefix "$folder" --no-audit --no-fund --no-save --loglevel=error $packages

# Its own requirements bring a training stack: these are what it needs to run.
[ -x "$folder/mini/bin/python" ] || "$python" -m venv "$folder/mini"
"$folder/mini/bin/pip" install --quiet --no-deps mini-swe-agent==2.4.6
"$folder/mini/bin/pip" install --quiet litellm==1.110.2 typer rich pyyaml jinja2 platformdirs python-dotenv \
    tenacity requests pydantic prompt_toolkit textual
