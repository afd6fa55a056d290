// Package dibsgrpc runs the methods of a gRPC server under a lock.
//
//	server := grpc.NewServer(dibsgrpc.Options(
//		dibsgrpc.By(pb.Pay_Charge_FullMethodName, func(ctx context.Context, r *pb.ChargeRequest) (dibs.Doer, error) {
//			return locks.Mutex("order:" + r.Order), nil
//		}, dibs.Wait(3*time.Second)),
//	)...)
//
// A [Rule] is the lock of one method: [By] finds it by the request, [ByContext] by the
// metadata. Methods without a rule run without a lock. docs/services.md has the order of a
// shutdown.
//
// # Status codes
//
//	Aborted           another call holds the lock; with a RetryInfo
//	Unavailable       the lock store is unavailable, or the dibs.Client is closed; with a RetryInfo
//	InvalidArgument   the name is invalid, or the lock function returned an error
//	DeadlineExceeded  the deadline of the call has passed during the wait
//	Canceled          the caller has gone during the wait
//	Internal          the lease was lost while the method ran, or the lock is used wrongly
//
// After all but Internal the method did not run, so a retry is safe. After Internal it may
// have run in part without the lock.
//
// Why Aborted: it is the code for concurrency issues, and 409 over HTTP. Unavailable would
// make every client with a default retry policy repeat the call at once, and would count as
// an outage of the service. ResourceExhausted is for quotas.
//
// The message and the details of a status have no name, holder or token. Interceptors
// around this one find the error of dibs with errors.Is and errors.As.
//
// # A lost lease
//
// The context of the method ends when the lease is lost. From then on a stream sends and
// receives no message, and the call ends with Internal, whatever the method returns. A method
// that is blocked in a receive or a send returns from it at once, with an error that is
// dibs.ErrLost. It must not use the message of that call any more: gRPC may still write it.
// The abandoned call may still run when the method has returned. It also uses the fields that
// SendMsg or RecvMsg of an outer interceptor's stream changes, so these need a mutex there.
// TestLostInEachState has all states.
//
// Each receive and each send under a lock has a goroutine for this, which costs about a
// microsecond.
//
// # Waiting
//
// The deadline of the caller bounds the wait; a caller that goes away leaves nothing behind.
// Not every caller has a deadline, so set dibs.Wait as well.
//
// # Versions
//
// Tested with v1.63.0 to v1.85.0 of google.golang.org/grpc.
package dibsgrpc
