#!/usr/bin/env bash
# Runs a program of one member with its settings: `member.sh one etcd` and `patroni` on each machine; `ctl
# list`, `psql`, `pg_ctl` and `pgbackrest info` for its operator; `env` prints the settings. `members` has
# what differs between members, $HA/secrets the secrets (secrets.sh). As root, programs run as postgres.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
what=$2
: "${HA:?HA is the folder of data and secrets}"
[[ $HA =~ ^/[A-Za-z0-9/._-]+$ ]] || { echo "HA must be an absolute path of letters, digits, / . _ and -" >&2 && exit 2; }
. "$HA/secrets/passwords"
# HA_BACKUPS, and whatever else this machine needs.
[ ! -e "$HA/settings" ] || . "$HA/settings"

read -r _ address postgres_port rest_port etcd_port peer_port < <(grep "^$name " "$here/members") ||
  { echo "$here/members has no member $name" >&2 && exit 2; }
[[ $address =~ ^[0-9.]+$ ]] || { echo "the address of $name must be an IPv4 address: etcd listens on it" >&2 && exit 2; }
each() { # Prints something for each member, with commas between.
  while read -r name address postgres_port rest_port etcd_port peer_port; do
    eval "echo $1"
  done < <(grep '^[a-z]' "$here/members") | paste -sd,
}
tls=$HA/secrets
data=$HA/$name

export ETCD_NAME=$name ETCD_DATA_DIR=$data/etcd ETCD_ENABLE_V2=true ETCD_LOG_LEVEL=warn \
  ETCD_INITIAL_CLUSTER=$(each '$name=https://$address:$peer_port') ETCD_INITIAL_CLUSTER_TOKEN=payments \
  ETCD_LISTEN_CLIENT_URLS=https://$address:$etcd_port ETCD_ADVERTISE_CLIENT_URLS=https://$address:$etcd_port \
  ETCD_LISTEN_PEER_URLS=https://$address:$peer_port ETCD_INITIAL_ADVERTISE_PEER_URLS=https://$address:$peer_port \
  ETCD_CERT_FILE=$tls/member.crt ETCD_KEY_FILE=$tls/member.key ETCD_TRUSTED_CA_FILE=$tls/ca.crt ETCD_CLIENT_CERT_AUTH=true \
  ETCD_PEER_CERT_FILE=$tls/member.crt ETCD_PEER_KEY_FILE=$tls/member.key ETCD_PEER_TRUSTED_CA_FILE=$tls/ca.crt \
  ETCD_PEER_CLIENT_CERT_AUTH=true

# Patroni 3.0.2 writes the lock of etcd's v3 API unconditionally, so a primary that was frozen takes it back
# from a promoted standby: acknowledged payments are lost (`npm run test:ha -- etcd3`). So ETCD, not ETCD3.
dcs=${HA_DCS:-ETCD}
export PATRONI_${dcs}_HOSTS="$(each '$address:$etcd_port')" PATRONI_${dcs}_PROTOCOL=https PATRONI_${dcs}_CACERT=$tls/ca.crt \
  PATRONI_${dcs}_CERT=$tls/member.crt PATRONI_${dcs}_KEY=$tls/member.key
if [ "$dcs" = ETCD ]; then export PATRONI_ETCD_USERNAME=root PATRONI_ETCD_PASSWORD=$ETCD_PASSWORD; fi

export PATRONI_NAME=$name \
  PATRONI_RESTAPI_LISTEN=$address:$rest_port PATRONI_RESTAPI_CONNECT_ADDRESS=$address:$rest_port \
  PATRONI_RESTAPI_CERTFILE=$tls/member.crt PATRONI_RESTAPI_KEYFILE=$tls/member.key PATRONI_RESTAPI_CAFILE=$tls/ca.crt \
  PATRONI_RESTAPI_USERNAME=patroni PATRONI_RESTAPI_PASSWORD=$REST_PASSWORD \
  PATRONI_CTL_CACERT=$tls/ca.crt PATRONI_CTL_CERTFILE=$tls/member.crt PATRONI_CTL_KEYFILE=$tls/member.key \
  PATRONI_POSTGRESQL_LISTEN=$address:$postgres_port PATRONI_POSTGRESQL_CONNECT_ADDRESS=$address:$postgres_port \
  PATRONI_POSTGRESQL_DATA_DIR=$data/postgres PATRONI_POSTGRESQL_BIN_DIR=/usr/lib/postgresql/15/bin \
  PATRONI_POSTGRESQL_PGPASS=$data/pgpass \
  PATRONI_SUPERUSER_USERNAME=postgres PATRONI_SUPERUSER_PASSWORD=$SUPERUSER_PASSWORD \
  PATRONI_REPLICATION_USERNAME=replicator PATRONI_REPLICATION_PASSWORD=$REPLICATION_PASSWORD \
  PATRONI_REPLICATION_SSLMODE=verify-ca PATRONI_REPLICATION_SSLROOTCERT=$tls/ca.crt \
  PATRONI_REWIND_USERNAME=rewind PATRONI_REWIND_PASSWORD=$REWIND_PASSWORD \
  PATRONI_REWIND_SSLMODE=verify-ca PATRONI_REWIND_SSLROOTCERT=$tls/ca.crt

export PGBACKREST_CONFIG=$here/pgbackrest.conf PGBACKREST_REPO1_PATH=${HA_BACKUPS:-$HA/backups} \
  PGBACKREST_REPO1_CIPHER_PASS=$BACKUP_PASSWORD PGBACKREST_SPOOL_PATH=$data/spool PGBACKREST_LOG_PATH=$data \
  PGBACKREST_LOCK_PATH=$data/lock PGBACKREST_PG1_PATH=$data/postgres PGBACKREST_PG1_PORT=$postgres_port \
  PGBACKREST_PG1_SOCKET_PATH=$data PGBACKREST_PG1_USER=postgres

mkdir -p "$data" "$PGBACKREST_REPO1_PATH"
as_postgres=()
if [ "$(id -u)" = 0 ]; then
  chown postgres: "$data" "$tls/member.key"
  # A mounted folder may have another owner.
  chown postgres: "$PGBACKREST_REPO1_PATH" 2>/dev/null || true
  # libpq looks for certificates there.
  export HOME=$data
  as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups --)
fi
# As postgres, which owns the folder: root would follow a link there.
"${as_postgres[@]}" bash -c 'mkdir -p "$1/spool" "$1/lock" && sed "s|@HA@|$2|g; s|@NAME@|$3|g" >"$1/patroni.$$" && mv "$1/patroni.$$" "$1/patroni.yaml"' \
  - "$data" "$HA" "$name" <"$here/patroni.yaml"
case $what in
  env) env | grep -E '^(ETCD|PATRONI|PGBACKREST)_' ;;
  etcd) exec "${as_postgres[@]}" etcd ;;
  patroni) exec "${as_postgres[@]}" patroni "$data/patroni.yaml" ;;
  ctl) exec "${as_postgres[@]}" patronictl -c "$data/patroni.yaml" "${@:3}" ;;
  pgbackrest) cd / && exec "${as_postgres[@]}" pgbackrest --stanza=payments "${@:3}" ;;
  # Without Patroni, for a restore: only on this member's socket, whichever member the backup is from.
  pg_ctl) exec "${as_postgres[@]}" "$PATRONI_POSTGRESQL_BIN_DIR/pg_ctl" -D "$data/postgres" -l "$data/pg_ctl.log" \
    -o "-p $postgres_port -k $data -h '' -c hba_file=$data/postgres/pg_hba.conf -c ident_file=$data/postgres/pg_ident.conf" "${@:3}" ;;
  # `backup full` or `backup diff`, on the primary: on a standby it does nothing.
  backup) [ "$("$0" "$name" psql -Atc 'select pg_is_in_recovery()')" != f ] || exec "$0" "$name" pgbackrest --type="$3" backup ;;
  psql) exec "${as_postgres[@]}" psql -h "$data" -p "$postgres_port" -U postgres "${@:3}" ;;
  *) echo "usage: member.sh NAME env|etcd|patroni|ctl|psql|pg_ctl|backup|pgbackrest" >&2 && exit 2 ;;
esac
