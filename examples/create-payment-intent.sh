#!/bin/sh
# Creates a payment intent for an order, and may be run again for the same order as often as you like:
#
#   export PAYMENTS_API_KEY=sk_testnet_…          # on your server only
#   examples/create-payment-intent.sh order-1001 12500000
#
# Prints the intent and exits with 0, or prints why not and exits with 1.
set -eu

: "${PAYMENTS_API_KEY:?set it to your secret API key}"
: "${PAYMENTS_URL:=http://127.0.0.1:8080}"
order=${1:?usage: $0 ORDER AMOUNT_UNITS}
amount_units=${2:?usage: $0 ORDER AMOUNT_UNITS}

# The order is the idempotency key, so that a repeated request finds the intent that the first one made.
# --retry repeats 429, 500 and 503 after the Retry-After that the answer names; --retry-all-errors adds
# connections that break. Any other answer is final, and says what to change.
# The answer goes to a file, which curl empties before each try.
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
status=$(
  curl --silent --show-error --max-time 10 --retry 8 --retry-all-errors \
    --output "$answer" --write-out '%{http_code}' \
    --header "Authorization: Bearer $PAYMENTS_API_KEY" \
    --header "Idempotency-Key: $order" \
    --header 'Content-Type: application/json' \
    --data "{\"amount_units\":$amount_units,\"metadata\":{\"order_id\":\"$order\"}}" \
    "$PAYMENTS_URL/v1/payment_intents"
) || exit 1

cat "$answer"
echo
[ "$status" = 201 ]
