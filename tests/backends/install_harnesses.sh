#!/bin/sh
# Installs the harnesses that tests run, into the folder given (.venv/harnesses): mini by pip, the others by npm.
# 1.7 GB; a minute or two. Nothing outside the folder changes; what is there already is left alone.
set -eu

folder=${1:-.venv/harnesses}
python=${PYTHON:-python3}

mkdir -p "$folder"
npm_install() {
    npm install --prefix "$folder" --no-audit --no-fund --no-save --loglevel=error "$@"
}
basic="@mariozechner/pi-coding-agent@0.73.1 @openai/codex@0.171.0"
# npm drops what a later call does not name: all at once, or without those that do not run on every machine.
npm_install $basic @anthropic-ai/claude-code@2.1.197 @qwen-code/qwen-code@0.15.10 opencode-ai@1.18.33 ||
    npm_install $basic

# Its own requirements bring a training stack: these are what it needs to run.
[ -x "$folder/mini/bin/python" ] || "$python" -m venv "$folder/mini"
"$folder/mini/bin/pip" install --quiet --no-deps mini-swe-agent==2.4.6
"$folder/mini/bin/pip" install --quiet litellm==1.110.2 typer rich pyyaml jinja2 platformdirs python-dotenv \
    tenacity requests pydantic prompt_toolkit textual
