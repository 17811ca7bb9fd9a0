#!/usr/bin/env bash
# A whole cluster on one machine, to try it: three members with etcd, Patroni and PostgreSQL, HAProxy, two api
# and two background processes. All ports are on 127.0.0.1. Ctrl-C ends everything that it started.
#
#   apt-get install curl postgresql etcd-server patroni python3-idna haproxy pgbackrest
#   ops/ha/up.sh
#
# Run it as root. HA is its folder (default: /var/lib/payments-ha), kept for the next start.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export HA=${HA:-/var/lib/payments-ha}
fail() {
  echo "$1" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || fail "run it as root: each member's programs become the user postgres"

missing=()
for program in curl etcd patroni patronictl haproxy pgbackrest openssl setpriv; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing+=(postgresql-15)
[ ${#missing[@]} = 0 ] ||
  fail "missing: ${missing[*]}. On Debian 12: apt-get install curl postgresql etcd-server patroni python3-idna haproxy pgbackrest"

mkdir -p "$HA/log"
[ -O "$HA" ] || fail "$HA belongs to somebody else"
chmod 755 "$HA"
# Left by a start that was interrupted.
rm -f "$HA"/*.down "$HA"/*.pid
"$here/secrets.sh"
. "$HA/secrets/passwords"
members=$(awk '/^[a-z]/ { print $1 }' "$here/members")
first=$(head -n1 <<<"$members")

pids=()
# Restarts a program when it ends, as systemd would. Its process is in $HA/NAME.pid. While $HA/NAME.down
# exists, it stays down, like a machine that is off.
supervise() { # NAME COMMAND...
  local name=$1 pid=
  shift
  trap 'kill -CONT $pid; kill $pid; wait $pid; exit' TERM
  while :; do
    if [ ! -e "$HA/$name.down" ]; then
      # In its own session: Ctrl-C is for this script.
      setsid "$@" >>"$HA/log/$name.log" 2>&1 &
      pid=$!
      echo $pid >"$HA/$name.pid"
      wait $pid || true
      rm "$HA/$name.pid"
    fi
    sleep 1
  done
}
start() {
  supervise "$@" 2>/dev/null &
  pids+=($!)
}
down() {
  trap - EXIT INT TERM
  # Services first, then Patroni, which stops its PostgreSQL, then etcd.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
}
trap down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
until_ok() { # SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -le $deadline ] || fail "$what did not happen: see $HA/log"
    sleep 0.5
  done
}

for member in $members; do start "etcd-$member" "$here/member.sh" "$member" etcd; done
for member in $members; do start "patroni-$member" "$here/member.sh" "$member" patroni; done
hosts=$(awk '/^[a-z]/ { print $2 ":" $3 }' "$here/members" | paste -sd,)
DATABASE_URL="postgresql://payments:$SERVICE_PASSWORD@$hosts/payments?sslmode=verify-full&sslrootcert=$HA/secrets/ca.crt"
primary() {
  for member in $members; do
    if [ "$("$here/member.sh" "$member" psql -Atc 'select pg_is_in_recovery()' 2>/dev/null)" = f ]; then
      echo "$member"
      return
    fi
  done
  return 1
}
until_ok 120 "the first primary" primary
"$here/init.sh" "$(primary)"

(
  umask 077
  cat "$HA/secrets/service.env" - >"$HA/service.env" <<<"DATABASE_URL='$DATABASE_URL'"
)
cd "$root"
set -a
. "$HA/service.env"
export PATH="$root/node_modules/.bin:$PATH"
npm run -s admin -- migrate
service=(node --max-semi-space-size=8 --max-old-space-size=512 src/main.ts)
export MALLOC_MMAP_THRESHOLD_=32768 HOST=127.0.0.1 TRUSTED_PROXIES=127.0.0.1/32 PUBLIC=127.0.0.1:18080 INTERNAL=127.0.0.1:18081
for i in 1 2; do
  export "API$i=127.0.0.1:1811$i" "API${i}_GRPC=127.0.0.1:1812$i" "API${i}_METRICS_PORT=1813$i"
  start "api$i" env ROLES=api HTTP_PORT=1811$i GRPC_PORT=1812$i METRICS_PORT=1813$i "${service[@]}"
  start "background$i" env ROLES=expiry,deliveries,watcher METRICS_PORT=1814$i "${service[@]}"
done
start haproxy haproxy -f "$here/haproxy.cfg" -db
until_ok 60 "the service" curl --fail --silent http://127.0.0.1:18131/readyz
echo "JSON is served at http://$PUBLIC, gRPC at $INTERNAL."
echo "The primary is $(primary). In another terminal:
  cd $root; export HA=$HA; set -a; . $HA/service.env
  npm run -s admin -- merchant create --name Ada --mode testnet --wallet 0x1111111111111111111111111111111111111111
  npm run -s admin -- key create --merchant mer_… --mode testnet
  curl $PUBLIC/v1/payment_intents -H 'Authorization: Bearer sk_testnet_…' -d '{\"amount_units\":12500000}' -H 'Content-Type: application/json'
  kill -9 \"\$(head -n1 $HA/$(primary)/postgres/postmaster.pid)\"   # and pay on
  ops/ha/member.sh $first ctl list
Ctrl-C ends everything."
wait
