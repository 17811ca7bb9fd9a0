#!/bin/sh
# Creates a payment intent for an order. Running it again for the same order is safe:
#
#   export PAYMENTS_API_KEY=sk_testnet_…          # on your server only
#   examples/create-payment-intent.sh order-1001 12500000
#
# Prints the intent and exits with 0, or prints the reason and exits with 1. Needs curl 7.71 or newer, and sed.
#
# The order is the idempotency key. A key lives as long as its intent: after the intent has expired unpaid, the same
# command still returns it, but nobody can pay it. Number the order's next attempt, and its key is order-1001/2:
#
#   examples/create-payment-intent.sh order-1001 12500000 2
set -eu
LC_ALL=C
export LC_ALL

usage='usage: create-payment-intent.sh ORDER AMOUNT_UNITS [ATTEMPT]'
: "${PAYMENTS_API_KEY:?set it to your secret API key}"
: "${PAYMENTS_URL:=http://127.0.0.1:8080}"
order=${1:?$usage}
amount_units=${2:?$usage}
# The first attempt has the same key with its number and without: another key would make a second intent to pay.
case ${3:-1} in 1) key=$order ;; *) key=$order/$3 ;; esac

fail() {
  echo "create-payment-intent.sh: $1" >&2
  exit 1
}
# The order goes into a header and into JSON. Characters that could break out of either are refused or escaped.
case $key in *[!!-~]*) fail 'the order must be visible ASCII characters, without spaces' ;; esac
[ ${#key} -le 255 ] || fail 'the order is longer than 255 characters'
case $amount_units in *[!0-9]*) fail "the amount must be an integer in the token's smallest unit" ;; esac
case $PAYMENTS_API_KEY in *[!!-~]*) fail 'PAYMENTS_API_KEY has a space, a line break or a character beyond ASCII' ;; esac
quoted() {
  printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"
}

# curl reads the API key from a pipe, because every process on this machine can read a command line.
# --retry repeats temporary errors, such as 429, 500 and 503, and waits as long as Retry-After says. With
# --retry-all-errors it also repeats after a broken connection. Any other answer is final and says what to change.
# The answer goes to a file, which curl empties before each try.
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
status=$(
  printf 'Authorization: Bearer %s\n' "$PAYMENTS_API_KEY" |
    curl --silent --show-error --max-time 10 --retry 8 --retry-all-errors \
      --output "$answer" --write-out '%{http_code}' \
      --header @- \
      --header "Idempotency-Key: $(quoted "$key")" \
      --header 'Content-Type: application/json' \
      --data "{\"amount_units\":$amount_units,\"metadata\":{\"order_id\":$(quoted "$order")}}" \
      "$PAYMENTS_URL/v1/payment_intents"
) || exit 1

cat "$answer"
echo
[ "$status" = 201 ]
