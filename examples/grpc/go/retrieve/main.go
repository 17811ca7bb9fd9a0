// A gRPC client in Go: retrieves the current state of an intent.
//
//	PAYMENTS_API_KEY=sk_testnet_… go run ./retrieve 127.0.0.1:50051 pi_…
//
// examples/grpc/README.md explains how to generate the code.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	paymentsv1 "example.com/your/module/gen/payments/v1"
)

const maxTries = 8

// retrieve returns an intent. Retrieving changes nothing, so it is repeated after every temporary failure.
func retrieve(client paymentsv1.PaymentIntentServiceClient, id string) (*paymentsv1.PaymentIntent, error) {
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Getenv("PAYMENTS_API_KEY"))
		intent, err := client.GetPaymentIntent(ctx, &paymentsv1.GetPaymentIntentRequest{Id: id})
		cancel()
		switch status.Code(err) {
		// ResourceExhausted: the rate limit. To wait as long as it asks, read RetryInfo as ../main.go does.
		case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted:
			if try == maxTries {
				return nil, err
			}
			time.Sleep(time.Duration(float64(50*time.Millisecond) * float64(int(1)<<try) * (0.5 + rand.Float64()/2)))
		default:
			// NotFound: this merchant has no such intent in this mode.
			return intent, err
		}
	}
}

func main() {
	// Without TLS, for a trusted network. If the service has a certificate, use credentials.NewTLS(nil).
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	intent, err := retrieve(paymentsv1.NewPaymentIntentServiceClient(connection), os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	printed, err := json.MarshalIndent(map[string]interface{}{
		"id":                    intent.Id,
		"status":                intent.Status.String(),
		"amount_units":          intent.AmountUnits,
		"amount_received_units": intent.GetAmountReceivedUnits(),
		"labels":                intent.Labels,
	}, "", "  ")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(printed))
}
