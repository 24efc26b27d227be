# Read by the examples: a project folder of its own, and a server in it that ends with the script.
# `shikiri` must be on the PATH, such as after `cargo build --release` with
# `export PATH="$PWD/target/release:$PATH"`.
set -euo pipefail

command -v shikiri > /dev/null || { echo "shikiri is not on the PATH: cargo build --release, then export PATH=\"\$PWD/target/release:\$PATH\""; exit 2; }
folder="$(mktemp -d)"
server=
trap '[ -z "$server" ] || { kill "$server" 2> /dev/null; wait "$server" || true; }; rm -rf "$folder"' EXIT
cd "$folder"
export CLAUDE_PROJECT_DIR="$folder"

# Starts `shikiri serve` with these options on a free port; its address is in $URL, a key of the tenant
# `local` in $KEY.
start_server() {
  : > serve.out
  shikiri serve --listen 127.0.0.1:0 "$@" > serve.out 2> serve.log &
  server=$!
  for _ in $(seq 300); do
    URL="$(sed -n 's/^listening on //p' serve.out)"
    [ -z "$URL" ] || break
    kill -0 "$server" 2> /dev/null || { cat serve.log; exit 1; }
    sleep 0.1
  done
  KEY="$(shikiri keys create example 2> /dev/null)"
  export URL KEY
}

# Calls the REST API: call METHOD PATH [curl options]
call() {
  curl -sS --fail-with-body -X "$1" "$URL/v1/tenants/local$2" -H "Authorization: Bearer $KEY" \
    -H 'Content-Type: application/json' "${@:3}"
}

# The value of a text field in a JSON answer: field NAME
field() {
  sed -E "s/.*\"$1\": ?\"([^\"]*)\".*/\\1/"
}
