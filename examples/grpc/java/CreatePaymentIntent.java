import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RequestInfo;
import com.google.rpc.RetryInfo;
import com.payments.v1.CreatePaymentIntentRequest;
import com.payments.v1.PaymentIntent;
import com.payments.v1.PaymentIntentServiceGrpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A gRPC client in Java: creates the intent of an order, repeats the call safely, and reads a refusal.
 *
 * <pre>PAYMENTS_API_KEY=sk_testnet_... java -cp ... CreatePaymentIntent 127.0.0.1:50051</pre>
 *
 * examples/grpc/README.md explains how to generate the code.
 */
public final class CreatePaymentIntent {
  private static final int MAX_TRIES = 8;
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> IDEMPOTENCY_KEY =
      Metadata.Key.of("idempotency-key", Metadata.ASCII_STRING_MARSHALLER);

  private final PaymentIntentServiceGrpc.PaymentIntentServiceBlockingStub stub;
  private final String apiKey;

  private CreatePaymentIntent(ManagedChannel channel, String apiKey) {
    this.stub = PaymentIntentServiceGrpc.newBlockingStub(channel);
    this.apiKey = apiKey;
  }

  /**
   * Creates the intent of an order, or finds the existing one. The order is the idempotency key, so every retry, by
   * this process or by another one, gets the same intent.
   */
  PaymentIntent create(String order, long amountUnits) throws InterruptedException {
    var request =
        CreatePaymentIntentRequest.newBuilder()
            .setAmountUnits(amountUnits)
            .setMetadata(
                Struct.newBuilder()
                    .putFields("order_id", Value.newBuilder().setStringValue(order).build()))
            .build();
    var headers = new Metadata();
    headers.put(AUTHORIZATION, "Bearer " + apiKey);
    headers.put(IDEMPOTENCY_KEY, order);
    for (int attempt = 1; ; attempt++) {
      try {
        return stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers))
            .withDeadlineAfter(10, TimeUnit.SECONDS)
            .createPaymentIntent(request);
      } catch (StatusRuntimeException error) {
        var refusal = new Refusal(error);
        if (!refusal.isRetryable() || attempt == MAX_TRIES) throw error;
        long waitMs = Math.max(backoffMs(attempt), refusal.retryDelayMs);
        System.err.printf("attempt %d: %s; again in %d ms%n", attempt, error.getMessage(), waitMs);
        Thread.sleep(waitMs);
      }
    }
  }

  private static long backoffMs(int attempt) {
    return (long) (50 * Math.pow(2, attempt) * ThreadLocalRandom.current().nextDouble(0.5, 1));
  }

  /** The parts of an error. Decide by the reason, and log the rest: our support needs the request id. */
  static final class Refusal {
    final Status.Code code;
    final List<String> fields = new ArrayList<>();
    String reason = "";
    String requestId = "";
    /** How long the server asks the client to wait, at least. */
    long retryDelayMs = 0;

    Refusal(StatusRuntimeException error) {
      code = error.getStatus().getCode();
      var status = StatusProto.fromThrowable(error);
      if (status == null) return;
      try {
        for (var detail : status.getDetailsList()) {
          if (detail.is(ErrorInfo.class)) reason = detail.unpack(ErrorInfo.class).getReason();
          if (detail.is(RequestInfo.class)) requestId = detail.unpack(RequestInfo.class).getRequestId();
          if (detail.is(RetryInfo.class)) {
            var delay = detail.unpack(RetryInfo.class).getRetryDelay();
            retryDelayMs = delay.getSeconds() * 1_000 + delay.getNanos() / 1_000_000;
          }
          if (detail.is(BadRequest.class)) {
            for (var violation : detail.unpack(BadRequest.class).getFieldViolationsList()) {
              fields.add(violation.getField() + ": " + violation.getDescription());
            }
          }
        }
      } catch (InvalidProtocolBufferException broken) {
        throw new IllegalStateException("the error's details cannot be read", broken);
      }
    }

    /**
     * Whether the same call may succeed later. After UNAVAILABLE, DEADLINE_EXCEEDED or INTERNAL the intent may exist:
     * the next attempt finds it or creates it. A body that is too large has the same code as the rate limit,
     * RESOURCE_EXHAUSTED, and stays refused.
     */
    boolean isRetryable() {
      return switch (code) {
        case UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL -> true;
        default -> reason.equals("RATE_LIMITED");
      };
    }
  }

  public static void main(String[] args) throws InterruptedException {
    var apiKey = Objects.requireNonNull(System.getenv("PAYMENTS_API_KEY"), "set PAYMENTS_API_KEY to your secret key");
    // Without TLS, for a trusted network. If the service has a certificate, omit usePlaintext().
    var channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
    try {
      var client = new CreatePaymentIntent(channel, apiKey);
      var order = "order-" + UUID.randomUUID();
      var intent = client.create(order, 12_500_000);
      var again = client.create(order, 12_500_000);
      System.out.println("id: " + intent.getId());
      System.out.println("status: " + intent.getStatus());
      System.out.println("amount_units: " + intent.getAmountUnits());
      System.out.println("order_id: " + intent.getMetadata().getFieldsOrThrow("order_id").getStringValue());
      System.out.println("same_again: " + intent.equals(again));
      try {
        client.create(order + "-free", 0);
      } catch (StatusRuntimeException error) {
        var refusal = new Refusal(error);
        System.out.println("refusal: " + refusal.code + " " + refusal.reason + " " + refusal.requestId);
        refusal.fields.forEach(field -> System.out.println("field: " + field));
      }
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }
}
