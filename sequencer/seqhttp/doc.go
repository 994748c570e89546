// Package seqhttp carries sequencers over HTTP: a client transport that sends
// the sequencer of its lock with every request, and a middleware with which the
// server that the lock protects refuses requests of a stale holder (Chubby
// §2.4).
//
// On the server each request runs in a section of its lock
// (sequencer.Guard.Do), which lasts until its handler returns. When the lock's
// next holder makes its first request, the contexts of older requests are
// cancelled and their reads of bodies fail, even behind other middleware. The
// next holder's request begins when the older ones have returned. So handlers
// must return when their context ends, and must leave no work behind; a
// hijacked connection is outside the section once its handler has returned.
// Only http.Server.WriteTimeout bounds a handler that writes to a peer which
// does not read: set it.
//
// The answer to a refused request is JSON,
//
//	{"error":{"code":"BadSequencer","message":"…","token":41,"newest":57}}
//
// with status 412 Precondition Failed if the sequencer is missing, malformed,
// stale, lost, or for another lock. token is the request's own, and newest the
// greatest that was let in before for its lock; each is absent if there is
// none. If the guard could not decide, the status is 503 Service Unavailable,
// and the request was not let in either.
//
// A server that uses this package does not link the client library. Everything
// in it is safe for concurrent use.
package seqhttp
