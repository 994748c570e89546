// Package seqhttp carries sequencers over HTTP: a client transport that sends
// the sequencer of its lock with every request, and a middleware with which the
// server that the lock protects refuses requests of a stale holder (Chubby
// §2.4).
//
// On the server each request runs in a section of its lock
// (sequencer.Guard.Do), from before its handler is called until the handler
// returns. When the lock's next holder makes its first request, the contexts of
// older requests are cancelled and their reading of bodies fails, behind whatever
// other middleware; the next holder's request begins once they have returned. Handlers must therefore heed
// their context, and not leave work behind; a hijacked connection is outside
// the section once its handler has returned. A handler that writes to a peer
// which does not read is bounded by http.Server.WriteTimeout only: set it.
//
// Refused requests are answered by JSON,
//
//	{"error":{"code":"BadSequencer","message":"…","token":41,"newest":57}}
//
// with status 412 Precondition Failed if the sequencer is missing, malformed,
// stale, lost, or for another lock. Token is the request's own, and newest the
// greatest that was let in of its lock; each is absent if there is none. A request that the guard could not decide is
// answered by 503 Service Unavailable, and was not let in either.
//
// A server that uses this package does not link the client library. Everything
// in it may be used by several goroutines.
package seqhttp
