#!/usr/bin/env bash
# Writes manual pages and shell completions of bin/everynode, which has been built for this
# machine. Usage: hack/manual.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "$1"/{man,completion}
bin/everynode manual "$1/man"
gzip -9 -n "$1"/man/*.1
bin/everynode completion bash >"$1/completion/everynode.bash"
bin/everynode completion zsh >"$1/completion/_everynode"
bin/everynode completion fish >"$1/completion/everynode.fish"
