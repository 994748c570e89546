// Package seqgrpc carries sequencers over gRPC: interceptors with which a
// client sends the sequencer of its lock with every call, and with which the
// server that the lock protects refuses calls of a stale holder (Chubby §2.4).
//
// On the server each call runs in a section of its lock (sequencer.Guard.Do),
// which lasts until its handler returns. When the lock's next holder makes its
// first call, the contexts of older calls are cancelled, and a handler that
// waits in a stream's Recv or Send gets an error. The next holder's call begins
// when the older ones have returned. So handlers must return when their context
// ends, and must leave no work behind.
//
// Refused calls end with FailedPrecondition if the sequencer is missing,
// malformed, stale, lost, or for another lock; the message says which and what to
// do, and the status has an ErrorInfo with the token of the call and the newest
// that was let in, which Tokens reads.
// A call that the guard could not decide ends with Unavailable,
// ResourceExhausted, DeadlineExceeded or Canceled, and was not let in either.
//
// A server that uses this package does not link the client library. Everything
// in it is safe for concurrent use. A guarded stream runs one goroutine for
// each Recv or Send in progress; it ends with its stream at the latest.
package seqgrpc
