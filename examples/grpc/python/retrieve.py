"""A gRPC client in Python: retrieves the current state of an intent.

    npx buf generate --template examples/grpc/buf.gen.python.local.yaml --output /tmp/python
    PAYMENTS_API_KEY=sk_testnet_… PYTHONPATH=/tmp/python/gen python3 examples/grpc/python/retrieve.py 127.0.0.1:50051 pi_…

examples/grpc/README.md says what to install.
"""

import os
import random
import sys
import time

import grpc
from google.protobuf import json_format
from payments.v1 import payment_intent_pb2, payment_intent_service_pb2

_, target, intent_id = sys.argv
# Without TLS, for a trusted network. If the service has a certificate, use grpc.secure_channel.
channel = grpc.insecure_channel(target)
metadata = [("authorization", f"Bearer {os.environ['PAYMENTS_API_KEY']}")]
MAX_TRIES = 8

get_payment_intent = channel.unary_unary(
    "/payments.v1.PaymentIntentService/GetPaymentIntent",
    request_serializer=payment_intent_service_pb2.GetPaymentIntentRequest.SerializeToString,
    response_deserializer=payment_intent_pb2.PaymentIntent.FromString,
)


def retrieve(id):
    """Returns an intent. Retrieving changes nothing, so it is repeated after every temporary failure."""
    request = payment_intent_service_pb2.GetPaymentIntentRequest(id=id)
    # RESOURCE_EXHAUSTED: the rate limit. To wait as long as it asks, read RetryInfo as in client.py.
    codes = grpc.StatusCode
    retryable = {codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED, codes.INTERNAL, codes.RESOURCE_EXHAUSTED}
    for attempt in range(1, MAX_TRIES + 1):
        try:
            return get_payment_intent(request, metadata=metadata, timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() not in retryable or attempt == MAX_TRIES:
                raise
            time.sleep(0.05 * 2**attempt * random.uniform(0.5, 1))


try:
    intent = retrieve(intent_id)
except grpc.RpcError as error:
    # NOT_FOUND: this merchant has no such intent in this mode.
    sys.exit(f"{error.code().name}: {error.details()}")
# The client_secret is for the payer's browser only. Keep it out of logs.
intent.ClearField("client_secret")
print(json_format.MessageToJson(intent, preserving_proto_field_name=True))
