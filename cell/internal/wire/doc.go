// Package wire serves clients: it has the services of a replica, in frames and over gRPC, and protects the
// replica's memory from strangers. Only package cell uses it.
//
// A call is decoded and checked, makes one call of the master, and is answered. This package finds everything
// that can be wrong with a request, and names the field and its limit, before the master sees it. A replica
// that is not the master answers NotMaster, except in the Cell service, which every replica serves.
//
// Listener counts a call's connection (Connections) and follows its frames (account), so that unfinished
// requests count, too. Server has package frames serve the connection, or gRPC if its first byte says so, which
// hands its calls on to package frames. service.serve (door.go) then finds out who calls, refuses the call if too
// much is held, decodes it, and limits its time. Each call has a row in rpcs, which says what is special about it.
// A handler (sessions, files, locks, txn, views, operators) asks a master.Master, and encodes. Tokens are what
// clients carry without understanding it: sessions, handles and tickets, signed with the cell's secret.
//
// # Errors
//
// The master and the state machine say what went wrong. When the call ends, service.complete adds the operation
// (Op), the path unless there is one, the replica, and from Locks.Explain the lock's holder and the rest of a lock-delay.
//
// # Concurrency
//
// Everything is safe for concurrent use. The package starts one goroutine, to stop its servers; those of gRPC and package frames end
// with the server. The order of its mutexes is
//
//	Connections.mu > account.mu
//
// and verified.mu, with which no other is held. No master's mutex is taken while one of them is held, nor the
// other way round.
package wire
