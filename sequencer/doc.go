// Package sequencer is the proof that a lock is held, and the check of that
// proof at the server that the lock protects (Chubby §2.4).
//
// A lock of Chubby is advisory and its holder can be wrong about holding it: a
// process that was paused, or whose packets were slow, may act for a primary
// that has been replaced. So the holder of a lock asks for a Sequencer right
// after the grant and sends it with every request, and the server that the lock
// protects lets a request in only if no newer one was seen. Sequencer is that
// proof, as text; Guard is that server's check. A server needs neither a
// session nor the client library for it, and this package links neither.
//
// # Check or Do
//
// A check is not an act. A request that passed with token 41 may still be
// running, or not even have begun to write, when the first request with token
// 57 passes; its write then lands on top of the newer primary's. There are two
// remedies, and Guard has a method for each:
//
//   - Check is enough if the write itself carries the token and the storage
//     compares it in the same transaction (UPDATE … SET token = 57 WHERE
//     token <= 57). Then the storage decides, and Check only turns stale
//     requests away early.
//   - Do is for every other case: it runs the request in a section of its lock.
//     A newer token first stops older requests from entering, durably, then
//     cancels the contexts of those inside, waits until they have left, and
//     only then enters. At no moment are requests of two tokens of one lock
//     inside.
//
// The interceptors of seqgrpc and the middleware of seqhttp use Do. Work that a
// request leaves behind when it returns (a goroutine, an unawaited write) is
// outside its section and must carry the token itself.
//
// # What a Guard does not do
//
// It does not authenticate: a sequencer is no secret and its checksum is no
// signature, so a peer that invents a high token locks the true holder out.
// Admit trusted peers only, or set a Checker. It does not notice that a lock
// was lost until a newer token arrives, again unless a Checker does. It speaks
// for one process: if several servers write to one resource, the resource has
// to compare tokens. And it proves one of the locks it accepts to be held; if
// these protect different things, the handler compares FromContext's path with
// what the request is about, or there is a Guard for each.
//
// # Concurrency
//
// Sequencer is a comparable value. Guard and FileStore may be used by any
// number of goroutines and start none.
package sequencer
