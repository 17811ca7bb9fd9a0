#!/usr/bin/env bash
# Creates a cluster's passwords and certificate authority in $HA/secrets, once, and the members' certificate,
# again if `members` has changed. Each member needs ca.crt, member.crt, member.key and passwords; the service
# needs ca.crt and service.env. ca.key signs the next certificate: keep it elsewhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${HA:?HA is the folder of data and secrets}"
mkdir -p "$HA/secrets"
cd "$HA/secrets"
chmod 755 .
umask 077
new_key() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>/dev/null; }

[ -e ca.crt ] || new_key -x509 -days 3650 -subj '/CN=payments cluster' -keyout ca.key -out ca.crt
if [ ! -e member.crt ] || [ "$here/members" -nt member.crt ]; then
  addresses=$(awk '/^[a-z]/ { print "IP:" $2 }' "$here/members" | sort -u | paste -sd,)
  new_key -subj '/CN=member' -keyout member.key -out member.csr
  openssl x509 -req -in member.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out member.crt 2>/dev/null \
    -extfile <(printf 'subjectAltName=%s,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n' "$addresses")
  rm member.csr
fi
chmod 644 ca.crt member.crt

random() { openssl rand -hex 24; }
ring() { echo "1:$(openssl rand -base64 32)"; }
[ -e service.env ] || cat >service.env <<SERVICE
API_KEY_PEPPERS=$(ring)
CLIENT_SECRET_KEYS=$(ring)
WEBHOOK_SECRET_KEYS=$(ring)
SERVICE
[ -e passwords ] || cat >passwords <<PASSWORDS
ETCD_PASSWORD=$(random)
REST_PASSWORD=$(random)
SUPERUSER_PASSWORD=$(random)
REPLICATION_PASSWORD=$(random)
REWIND_PASSWORD=$(random)
SERVICE_PASSWORD=$(random)
BACKUP_PASSWORD=$(random)
PASSWORDS
