"""A gRPC client in Python: watches events, and resumes where it was after a broken connection, a restart or a crash.

    npx buf generate --template examples/grpc/buf.gen.python.local.yaml --output /tmp/python
    PAYMENTS_API_KEY=sk_testnet_… PYTHONPATH=/tmp/python/gen python3 examples/grpc/python/watch.py 127.0.0.1:50051 position

The second argument is the file that keeps the position. examples/grpc/README.md says what to install.
"""

import os
import pathlib
import random
import sys
import threading
import time

import grpc
from payments.v1 import event_service_pb2, payment_intent_pb2

_, target, file = sys.argv
position_file = pathlib.Path(file)
metadata = [("authorization", f"Bearer {os.environ['PAYMENTS_API_KEY']}")]
# The service sends a message every 30 seconds. A connection without one for this long is dead.
SILENCE_S = 65


def handle(event):
    """The work of an event. After a crash the last event may come again: remember the ids of handled events."""
    intent = event.data.payment_intent
    status = payment_intent_pb2.PaymentIntentStatus.Name(intent.status) if intent.id else ""
    print(event.id, event.type, intent.id, status, flush=True)


def store(position):
    """Stores the position. In a real program: in the transaction that stores the work of the event."""
    temporary = position_file.with_suffix(".new")
    temporary.write_text(position)
    temporary.replace(position_file)


def watch_once():
    """Reads one stream, from the stored position until it ends with an error."""
    after = position_file.read_text() if position_file.exists() else ""
    # Each stream has a channel of its own, so that a dead connection is not used again.
    # Without TLS, for a trusted network. If the service has a certificate, use grpc.secure_channel.
    with grpc.insecure_channel(target) as channel:
        watch_events = channel.unary_stream(
            "/payments.v1.EventService/WatchEvents",
            request_serializer=event_service_pb2.WatchEventsRequest.SerializeToString,
            response_deserializer=event_service_pb2.WatchEventsResponse.FromString,
        )
        stream = watch_events(event_service_pb2.WatchEventsRequest(after=after), metadata=metadata)
        while True:
            silence = threading.Timer(SILENCE_S, stream.cancel)
            silence.daemon = True
            silence.start()
            try:
                message = next(stream)
            finally:
                silence.cancel()
            if message.HasField("event"):
                handle(message.event)
            # Store it without an event, too: a position that is too old is refused.
            store(message.position)


tries = 0
while True:
    started = time.monotonic()
    try:
        watch_once()
    except StopIteration:
        problem = "the stream has ended"
    except grpc.RpcError as error:
        # CANCELLED is our own: nothing came in time. Any other code stays refused, such as UNAUTHENTICATED (the key).
        # After OUT_OF_RANGE (events after the position were removed or lost) begin after the `resume_after` in the
        # metadata of ErrorInfo. Without one, begin now, list the events that are kept, and skip those handled before.
        temporary = {
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.ABORTED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
        if error.code() not in temporary:
            sys.exit(f"{error.code().name}: {error.details()}")
        problem = error.details()
    # A stream that lasted counts as a success.
    tries = 1 if time.monotonic() - started > 5 else tries + 1
    wait = min(0.1 * 2 ** min(tries, 10), 5) * random.uniform(0.5, 1)
    print(f"{problem}; again in {wait:.2f} s", file=sys.stderr, flush=True)
    time.sleep(wait)
