import com.payments.v1.GetPaymentIntentRequest;
import com.payments.v1.PaymentIntent;
import com.payments.v1.PaymentIntentServiceGrpc;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A gRPC client in Java: retrieves the current state of an intent.
 *
 * <pre>PAYMENTS_API_KEY=sk_testnet_... java -cp ... RetrievePaymentIntent 127.0.0.1:50051 pi_...</pre>
 *
 * examples/grpc/README.md explains how to generate the code.
 */
public final class RetrievePaymentIntent {
  private static final int MAX_TRIES = 8;
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  /** Returns an intent. Retrieving changes nothing, so it is repeated after every temporary failure. */
  static PaymentIntent retrieve(
      PaymentIntentServiceGrpc.PaymentIntentServiceBlockingStub stub, String id) throws InterruptedException {
    var request = GetPaymentIntentRequest.newBuilder().setId(id).build();
    for (int attempt = 1; ; attempt++) {
      try {
        return stub.withDeadlineAfter(10, TimeUnit.SECONDS).getPaymentIntent(request);
      } catch (StatusRuntimeException error) {
        var isTemporary =
            switch (error.getStatus().getCode()) {
              // RESOURCE_EXHAUSTED: the rate limit. CreatePaymentIntent shows how to read the pause that it asks for.
              case UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED -> true;
              // NOT_FOUND: this merchant has no such intent in this mode.
              default -> false;
            };
        if (!isTemporary || attempt == MAX_TRIES) throw error;
        Thread.sleep((long) (50 * Math.pow(2, attempt) * ThreadLocalRandom.current().nextDouble(0.5, 1)));
      }
    }
  }

  public static void main(String[] args) throws InterruptedException {
    var headers = new Metadata();
    var apiKey = Objects.requireNonNull(System.getenv("PAYMENTS_API_KEY"), "set PAYMENTS_API_KEY to your secret key");
    headers.put(AUTHORIZATION, "Bearer " + apiKey);
    // Without TLS, for a trusted network. If the service has a certificate, omit usePlaintext().
    var channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
    try {
      var stub =
          PaymentIntentServiceGrpc.newBlockingStub(channel)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
      var intent = retrieve(stub, args[1]);
      System.out.println("id: " + intent.getId());
      System.out.println("status: " + intent.getStatus());
      System.out.println("amount_units: " + intent.getAmountUnits());
      System.out.println("amount_received_units: " + intent.getAmountReceivedUnits());
      System.out.println("labels: " + String.join(" ", intent.getLabelsList()));
    } catch (StatusRuntimeException error) {
      System.err.println(error.getMessage());
      System.exit(1);
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }
}
