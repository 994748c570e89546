// Package sequencer has the proof that a lock is held, and the check of that
// proof at the server that the lock protects (Chubby §2.4).
//
// A Chubby lock is advisory, and its holder may no longer have it without
// knowing: a process that was paused, or whose packets were slow, may act as a
// primary that has been replaced. So the holder of a lock asks for a Sequencer
// directly after the grant and sends it with every request. The server that the
// lock protects accepts a request only if it has seen no newer sequencer.
// Sequencer is that proof, as text; Guard is that server's check. The server
// needs neither a session nor the client library, and this package imports
// neither.
//
// # Check or Do
//
// A check alone does not protect the work after it. A request that passed with
// token 41 may still be running, or may not even have begun to write, when the
// first request with token 57 passes; it then overwrites what the newer primary
// wrote. There are two remedies, and Guard has a method for each:
//
//   - Check is enough if the write itself carries the token and the storage
//     compares it in the same transaction (UPDATE … SET token = 57 WHERE
//     token <= 57). Then the storage decides, and Check only refuses stale
//     requests early.
//   - Do is for every other case: it runs the request in a section of its lock.
//     A newer token first stops older requests from entering, durably, then
//     cancels the contexts of those inside, waits until they have left, and
//     only then enters. Requests of two tokens of one lock are never inside
//     together.
//
// The interceptors of seqgrpc and the middleware of seqhttp use Do. Work that a
// request leaves behind when it returns (a goroutine, an unawaited write) is
// outside its section and must carry the token itself.
//
// # What a Guard does not do
//
// It does not authenticate: a sequencer is no secret, its checksum is no
// signature, and only the cell can check its proof. So a peer that invents a high token locks the true holder out.
// Admit trusted peers only, or set a Checker, which asks the cell. Without a Checker it does not
// notice that a lock was lost until a newer token arrives. It works for one
// process: if several servers write to one resource, the resource has to
// compare tokens. And it proves only that one of the locks it accepts is held.
// If these protect different things, the handler must compare FromContext's
// path with the subject of the request, or each lock needs its own Guard.
//
// # Concurrency
//
// Sequencer is a comparable value. Guard and FileStore are safe for concurrent
// use, and start no goroutines.
package sequencer
