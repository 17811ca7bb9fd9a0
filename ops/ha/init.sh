#!/usr/bin/env bash
# Sets up a new cluster: `init.sh one`, once, as root, on the machine of the primary and with its name, when
# all members are up. A second run changes nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
member=("$here/member.sh" "$1")
: "${HA:?HA is the folder of data and secrets}"
. "$HA/secrets/passwords"
export SERVICE_PASSWORD
fail() {
  echo "$1" >&2
  exit 1
}
until_ok() { # WHAT COMMAND...: two minutes at most
  local deadline=$((SECONDS + 120))
  until "${@:2}" >/dev/null 2>&1; do
    [ $SECONDS -le $deadline ] || fail "$1 did not happen"
    sleep 0.5
  done
}

# etcd: members need a password, others get no rights. Passwords use descriptors: command lines are public.
etcd_url=https://$(awk -v name="$1" '$1 == name { print $2 ":" $5 }' "$here/members")
etcd() { # PATH ARGUMENTS...: etcd's HTTP API, with the members' certificate
  curl --silent --fail --show-error --cacert "$HA/secrets/ca.crt" --cert "$HA/secrets/member.crt" \
    --key "$HA/secrets/member.key" "$etcd_url/v2/$1" "${@:2}"
}
as_root() { etcd "$@" --config <(echo "user = \"root:$ETCD_PASSWORD\""); }
guest_may_write() { etcd keys/guest -X PUT -d value=1 >/dev/null 2>&1; }
if guest_may_write; then
  etcd auth/users/root -X PUT -d @- <<<"{\"user\":\"root\",\"password\":\"$ETCD_PASSWORD\"}" >/dev/null
  as_root auth/enable -X PUT >/dev/null
  as_root auth/roles/guest -X PUT -d @- >/dev/null \
    <<<'{"role":"guest","revoke":{"kv":{"read":["/*"],"write":["/*"]}}}'
  ! guest_may_write || fail "etcd lets everybody write"
fi

"${member[@]}" psql -qv ON_ERROR_STOP=1 <<'SQL'
\getenv password SERVICE_PASSWORD
select 'create role payments login' where not exists (select from pg_roles where rolname = 'payments') \gexec
alter role payments password :'password';
grant pg_read_all_stats to payments;
select 'create database payments owner payments' where not exists (select from pg_database where datname = 'payments') \gexec
revoke connect, temporary on database payments from public;
alter database payments set jit = off;
alter database payments set idle_in_transaction_session_timeout = '30s';
alter database payments set client_connection_check_interval = '5s';
SQL

# From the first intent on, what is acknowledged is on two machines and can be restored.
standbys() {
  [ "$("${member[@]}" psql -Atc "select count(*) from pg_stat_replication where state = 'streaming'")" = 2 ]
}
until_ok "the copy of two standbys" standbys
if ! "${member[@]}" pgbackrest info | grep -q 'status: ok'; then
  # An archiver that has just started holds the lock for a moment.
  until_ok "pgbackrest stanza-create" "${member[@]}" pgbackrest stanza-create
  "${member[@]}" pgbackrest --type=full backup
fi
