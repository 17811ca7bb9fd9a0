"""A gRPC client in Python: creates an intent, repeats the call safely, reads a refusal, uses health and reflection.

    npx buf generate --template examples/grpc/buf.gen.python.local.yaml --output /tmp/python
    PAYMENTS_API_KEY=sk_testnet_… PYTHONPATH=/tmp/python/gen python3 examples/grpc/python/client.py 127.0.0.1:50051

examples/grpc/README.md says what to install.
"""

import json
import os
import pkgutil
import random
import sys
import time
import uuid

import grpc

# The reflection protos are generated into a package named like grpcio's own.
grpc.__path__ = pkgutil.extend_path(grpc.__path__, "grpc")

from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from grpc.reflection.v1 import reflection_pb2
from health.v1 import health_pb2
from payments.v1 import payment_intent_pb2, payment_intent_service_pb2

# Without TLS, for a trusted network. If the service has a certificate, use grpc.secure_channel.
channel = grpc.insecure_channel(sys.argv[1])
api_key = os.environ["PAYMENTS_API_KEY"]
MAX_TRIES = 8

create_payment_intent = channel.unary_unary(
    "/payments.v1.PaymentIntentService/CreatePaymentIntent",
    request_serializer=payment_intent_service_pb2.CreatePaymentIntentRequest.SerializeToString,
    response_deserializer=payment_intent_pb2.PaymentIntent.FromString,
)


def create(order, **fields):
    """Creates the intent of an order, or finds the existing one.

    The order is the idempotency key, so every retry, by this process or by another one, gets the same intent.
    """
    request = payment_intent_service_pb2.CreatePaymentIntentRequest(**fields)
    request.metadata["order_id"] = order
    metadata = [("authorization", f"Bearer {api_key}"), ("idempotency-key", order)]
    for attempt in range(1, MAX_TRIES + 1):
        try:
            # With wait_for_ready the call waits for a new connection. Others fail while the channel reconnects.
            return create_payment_intent(request, metadata=metadata, timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:
            wait = retry_delay(error, attempt)
            if wait is None or attempt == MAX_TRIES:
                raise
            print(f"attempt {attempt}: {error.details()}; again in {wait:.2f} s", file=sys.stderr)
            time.sleep(wait)


def retry_delay(error, attempt):
    """Returns the seconds to wait before repeating the call, or None if it stays refused.

    After UNAVAILABLE, DEADLINE_EXCEEDED or INTERNAL the intent may exist: the next attempt finds it or creates it.
    A body that is too large has the same code as the rate limit, RESOURCE_EXHAUSTED, and stays refused.
    """
    details = refusal_of(error)["details"]
    retryable = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL}
    limited = details.get("google.rpc.ErrorInfo", {}).get("reason") == "RATE_LIMITED"
    if error.code() not in retryable and not limited:
        return None
    asked = details.get("google.rpc.RetryInfo", {}).get("retryDelay", "0s")
    return max(0.05 * 2**attempt * random.uniform(0.5, 1), float(asked.rstrip("s")))


def refusal_of(error):
    """Returns the details of a refusal, by the names of their types."""
    # A broken connection has none.
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
    known = {
        "google.rpc.ErrorInfo": error_details_pb2.ErrorInfo,
        "google.rpc.BadRequest": error_details_pb2.BadRequest,
        "google.rpc.RequestInfo": error_details_pb2.RequestInfo,
        "google.rpc.RetryInfo": error_details_pb2.RetryInfo,
    }
    details = {}
    for packed in status.details:
        name = packed.type_url.split("/")[-1]
        # A newer service or a proxy may add other types.
        if name in known:
            details[name] = json_format.MessageToDict(known[name].FromString(packed.value))
    return {"code": error.code().name, "message": error.details(), "details": details}


order = f"order-{uuid.uuid4()}"
intent = create(order, amount_units=12_500_000, chain=payment_intent_pb2.CHAIN_POLYGON)
again = create(order, amount_units=12_500_000, chain=payment_intent_pb2.CHAIN_POLYGON)

try:
    create(f"order-{uuid.uuid4()}", amount_units=0, wallet_address="nobody")
    refusal = None
except grpc.RpcError as error:
    refusal = refusal_of(error)

check_health = channel.unary_unary(
    "/grpc.health.v1.Health/Check",
    request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
    response_deserializer=health_pb2.HealthCheckResponse.FromString,
)
health = check_health(
    health_pb2.HealthCheckRequest(service="payments.v1.PaymentIntentService"), timeout=10
)

reflect = channel.stream_stream(
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
    response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
)
[listed] = reflect(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10)

same_again = intent == again
# The client_secret is for the payer's browser only. Keep it out of logs.
intent.ClearField("client_secret")
print(
    json.dumps(
        {
            "intent": json_format.MessageToDict(intent, preserving_proto_field_name=True),
            "same_again": same_again,
            "refusal": refusal,
            "health": health_pb2.HealthCheckResponse.ServingStatus.Name(health.status),
            "services": sorted(s.name for s in listed.list_services_response.service),
        },
        indent=2,
    )
)
