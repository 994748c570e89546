// Package wire is what clients talk to: the services of a replica, in frames and over gRPC,
// and what keeps strangers from taking its memory. Only package cell uses it.
//
// The rule it upholds: a call is decoded and checked, makes one call of the master, and is
// answered; everything that can be wrong with a request is said here, naming the field and
// its limit, before the master sees it. A replica that is not the master answers
// NotMaster, except for the Cell service, which every replica serves.
//
// The way of a call: Listener counts its connection (Connections) and follows the frames
// that pass (account), so that what a client has begun and not finished is counted, too;
// Server hands the connection to gRPC or, if its first byte says so, to package frames;
// the interceptors, the same for both, bound its time and refuse it when too much is held; a
// handler (files, locks, sessions, quotas, cell) decodes, asks a master.Master, and
// encodes. Tokens are what clients carry without understanding it: sessions, handles and
// tickets, signed with the secret of the cell.
//
// # Errors
//
// The master and the state machine say what went wrong. An error gets everything else
// once, when its call ends, in service.complete: what was tried (Op), on which path, which
// replica says so, and from Locks.Explain of the master who holds the lock and how long a
// lock-delay has yet to run. A path that an error has already is kept.
//
// # Concurrency
//
// Everything here is for any goroutine. Goroutines are those of gRPC and of package
// frames, which end with the server; the package has none of its own. The order of its mutexes is
//
//	Connections.mu > account.mu
//
// and verified.mu, with which no other is held.
// No master's mutex is taken while one of them is held, nor the other way round.
package wire
