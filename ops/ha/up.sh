#!/usr/bin/env bash
# The whole of it on one machine, to try it: three members with etcd, Patroni and PostgreSQL, HAProxy before the doors,
# two api and two background processes. All ports are on 127.0.0.1. Ctrl-C ends everything that it started.
#
#   apt-get install curl postgresql etcd-server patroni python3-idna haproxy pgbackrest
#   ops/ha/up.sh
#
# As root. HA is its folder (default: /var/lib/payments-ha), kept for the next start.
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
# Of a start that was interrupted.
rm -f "$HA"/*.down "$HA"/*.pid
"$here/secrets.sh"
. "$HA/secrets/passwords"
export SERVICE_PASSWORD
members=$(awk '/^[a-z]/ { print $1 }' "$here/members")
first=$(head -n1 <<<"$members")

pids=()
# Runs a program again when it ends, as systemd would. Its process is in $HA/NAME.pid; while $HA/NAME.down exists, it stays
# ended, like a machine that is off.
supervise() { # NAME COMMAND...
  local name=$1 pid=
  shift
  trap 'kill -CONT $pid; kill $pid; wait $pid; exit' TERM
  while :; do
    if [ ! -e "$HA/$name.down" ]; then
      # In a session of its own: Ctrl-C is for this script.
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
etcd_url=https://$(awk '/^[a-z]/ { print $2 ":" $5; exit }' "$here/members")
etcd() { # PATH ARGUMENTS...: etcd's HTTP API, with the members' certificate
  curl --silent --fail --show-error --cacert "$HA/secrets/ca.crt" --cert "$HA/secrets/member.crt" \
    --key "$HA/secrets/member.key" "$etcd_url/$1" "${@:2}"
}
# Passwords come from descriptors: everybody can read command lines.
as_root() { etcd "$@" --config <(echo "user = \"root:$ETCD_PASSWORD\""); }
guest_may_write() { etcd v2/keys/guest -X PUT -d value=1 >/dev/null 2>&1; }
elected() { etcd health | grep -q '"health":"true"'; }
until_ok 30 "etcd's election" elected
if guest_may_write; then
  etcd v2/auth/users/root -X PUT -d @- <<<"{\"user\":\"root\",\"password\":\"$ETCD_PASSWORD\"}" >/dev/null
  as_root v2/auth/enable -X PUT >/dev/null
  as_root v2/auth/roles/guest -X PUT -d @- >/dev/null \
    <<<'{"role":"guest","revoke":{"kv":{"read":["/*"],"write":["/*"]}}}'
  ! guest_may_write || fail "etcd lets everybody write"
fi

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
"$here/member.sh" "$(primary)" psql -qv ON_ERROR_STOP=1 <<'SQL'
\getenv password SERVICE_PASSWORD
select 'create role payments login' where not exists (select from pg_roles where rolname = 'payments') \gexec
alter role payments password :'password';
grant pg_read_all_stats to payments;
select 'create database payments owner payments' where not exists (select from pg_database where datname = 'payments') \gexec
SQL
standbys() {
  [ "$("$here/member.sh" "$(primary)" psql -Atc "select count(*) from pg_stat_replication where state = 'streaming'")" = 2 ]
}
until_ok 120 "two standbys" standbys
if ! "$here/member.sh" "$(primary)" pgbackrest info | grep -q 'status: ok'; then
  # An archiver that has begun holds the lock for a moment.
  until_ok 60 "the stanza of backups" "$here/member.sh" "$(primary)" pgbackrest stanza-create
  "$here/member.sh" "$(primary)" pgbackrest --type=full backup
fi

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
