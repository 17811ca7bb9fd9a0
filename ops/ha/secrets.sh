#!/usr/bin/env bash
# Makes the passwords and certificates of a cluster in $HA/secrets, once. Copy the folder to each machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${HA:?HA is the folder of data and secrets}"
folder=$HA/secrets
[ ! -e "$folder/passwords" ] || exit 0
mkdir -p "$folder"
cd "$folder"
umask 077
names=$(awk '/^[a-z]/ { print (($2 ~ /^[0-9.]+$/) ? "IP:" : "DNS:") $2 }' "$here/members" | sort -u | paste -sd,)
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj '/CN=payments cluster' \
  -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=member' -keyout member.key -out member.csr 2>/dev/null
openssl x509 -req -in member.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out member.crt 2>/dev/null \
  -extfile <(printf 'subjectAltName=%s,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n' "$names")
rm member.csr
random() { openssl rand -hex 24; }
ring() { echo "1:$(openssl rand -base64 32)"; }
cat >passwords.new <<PASSWORDS
ETCD_PASSWORD=$(random)
REST_PASSWORD=$(random)
SUPERUSER_PASSWORD=$(random)
REPLICATION_PASSWORD=$(random)
REWIND_PASSWORD=$(random)
SERVICE_PASSWORD=$(random)
BACKUP_PASSWORD=$(random)
PASSWORDS
cat >service.env <<SERVICE
API_KEY_PEPPERS=$(ring)
CLIENT_SECRET_KEYS=$(ring)
WEBHOOK_SECRET_KEYS=$(ring)
SERVICE
chmod 755 . && chmod 644 ca.crt member.crt
if [ "$(id -u)" = 0 ]; then chown postgres: member.key passwords.new; fi
# Last, because it says that all of it is there.
mv passwords.new passwords
