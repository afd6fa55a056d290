// Package dibsgrpc runs a gRPC server's methods under a lock.
//
//	server := grpc.NewServer(dibsgrpc.Options(
//		dibsgrpc.By(pb.Pay_Charge_FullMethodName, func(ctx context.Context, r *pb.ChargeRequest) (dibs.Doer, error) {
//			return locks.Mutex("order:" + r.Order), nil
//		}, dibs.Wait(3*time.Second)),
//	)...)
//
// A [Rule] is a method's lock: [By] finds it by the request, [ByContext] by the metadata.
// Methods without a rule run without a lock. docs/services.md shows the shutdown order.
//
// # Status codes
//
//	Aborted           another call holds the lock; with a RetryInfo
//	Unavailable       the lock store is unavailable, or the dibs.Client is closed; with a RetryInfo
//	InvalidArgument   the name is invalid, or the lock function returned an error
//	DeadlineExceeded  the call's deadline passed during the wait
//	Canceled          the caller cancelled the call during the wait
//	Internal          the lease was lost while the method ran, or the lock is used wrongly
//
// After all but Internal the method did not run, so a retry is safe. After Internal it may
// have run in part without the lock.
//
// Why Aborted: it is the code for concurrency issues, and 409 over HTTP. Unavailable would
// make every client with a default retry policy repeat the call at once, and would count as
// a service outage. ResourceExhausted is for quotas.
//
// A status's message and details contain no name, holder or token. Outer interceptors can
// find the dibs error with errors.Is and errors.As.
//
// # A lost lease
//
// The method's context ends when the lease is lost. From then on a stream sends and
// receives no message, and the call ends with Internal, whatever the method returns. A
// blocked receive or send returns at once, with an error that is dibs.ErrLost. The method
// must not use this call's message any more: gRPC may still write it. The abandoned call may
// still run when the method returns. It also uses the fields changed by SendMsg or RecvMsg
// in an outer interceptor's stream, so these need a mutex there. TestLostInEachState
// contains all states.
//
// Each receive and each send under a lock starts a goroutine for this, which costs about a
// microsecond.
//
// # Waiting
//
// The caller's deadline bounds the wait; a caller that disconnects leaves nothing behind. Not every
// caller sets a deadline, so you should also set dibs.Wait.
//
// # Versions
//
// Tested with v1.63.0 to v1.85.0 of google.golang.org/grpc.
package dibsgrpc
