// A gRPC client in Go: creates the intent of an order, repeats the call safely, and reads a refusal.
//
//	PAYMENTS_API_KEY=sk_testnet_… go run . 127.0.0.1:50051
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

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	paymentsv1 "example.com/your/module/gen/payments/v1"
)

const maxTries = 8

// create creates the intent of an order, or finds the existing one. The order is the idempotency key, so every retry,
// by this process or by another one, gets the same intent.
func create(client paymentsv1.PaymentIntentServiceClient, order string, amountUnits int64) (*paymentsv1.PaymentIntent, error) {
	orderMetadata, err := structpb.NewStruct(map[string]interface{}{"order_id": order})
	if err != nil {
		return nil, err
	}
	request := &paymentsv1.CreatePaymentIntentRequest{AmountUnits: amountUnits, Metadata: orderMetadata}
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		ctx = metadata.AppendToOutgoingContext(ctx,
			"authorization", "Bearer "+os.Getenv("PAYMENTS_API_KEY"),
			"idempotency-key", order)
		intent, err := client.CreatePaymentIntent(ctx, request)
		cancel()
		if err == nil {
			return intent, nil
		}
		wait, retryable := retryDelay(err, try)
		if !retryable || try == maxTries {
			return nil, err
		}
		log.Printf("try %d: %v; again in %v", try, err, wait)
		time.Sleep(wait)
	}
}

// retryDelay returns how long to wait, at least as long as RetryInfo says, and whether the same call may succeed later.
// After UNAVAILABLE, DEADLINE_EXCEEDED or INTERNAL the intent may exist: the next try finds it or creates it.
func retryDelay(err error, try int) (time.Duration, bool) {
	wait := time.Duration(float64(50*time.Millisecond) * float64(int(1)<<try) * (0.5 + rand.Float64()/2))
	refusal := status.Convert(err)
	retryable := refusal.Code() == codes.Unavailable || refusal.Code() == codes.DeadlineExceeded || refusal.Code() == codes.Internal
	for _, detail := range refusal.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			// A body that is too large has the same code, RESOURCE_EXHAUSTED, and stays refused.
			retryable = retryable || detail.Reason == "RATE_LIMITED"
		case *errdetails.RetryInfo:
			if asked := detail.RetryDelay.AsDuration(); asked > wait {
				wait = asked
			}
		}
	}
	return wait, retryable
}

// describe returns the parts of a refusal. Decide by the reason, and log the rest: our support needs the request id.
func describe(err error) map[string]interface{} {
	refusal := status.Convert(err)
	described := map[string]interface{}{"code": refusal.Code().String(), "message": refusal.Message()}
	for _, detail := range refusal.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			described["reason"] = detail.Reason
		case *errdetails.BadRequest:
			fields := map[string]string{}
			for _, violation := range detail.FieldViolations {
				fields[violation.Field] = violation.Description
			}
			described["fields"] = fields
		case *errdetails.RequestInfo:
			described["request_id"] = detail.RequestId
		}
	}
	return described
}

func main() {
	// Without TLS, for a trusted network. If the service has a certificate, use credentials.NewTLS(nil).
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := paymentsv1.NewPaymentIntentServiceClient(connection)

	order := fmt.Sprintf("order-%d", time.Now().UnixNano())
	intent, err := create(client, order, 12_500_000)
	if err != nil {
		log.Fatal(err)
	}
	again, err := create(client, order, 12_500_000)
	if err != nil {
		log.Fatal(err)
	}
	_, refusal := create(client, order+"-free", 0)

	printed, err := json.MarshalIndent(map[string]interface{}{
		"id":           intent.Id,
		"status":       intent.Status.String(),
		"amount_units": intent.AmountUnits,
		"metadata":     intent.Metadata.AsMap(),
		"same_again":   intent.Id == again.Id && intent.ClientSecret == again.ClientSecret,
		"refusal":      describe(refusal),
	}, "", "  ")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(printed))
}
