// Package client is how a program uses a Chubby cell: it finds the master, keeps a session with it, and
// offers files and locks through handles (Chubby §2.6).
//
//	c, err := client.New(ctx, client.Config{Cell: "foo"})
//	h, err := c.Open(ctx, "/ls/foo/svc/primary", client.OpenOptions{Write: true, Create: client.File, LockDelay: 10 * time.Second})
//	l, err := h.Acquire(ctx, api.Exclusive)
//	work(l.Context(), l.Sequencer())
//	err = l.Release(ctx)
//
// The calls of a Client that name a path open a handle, make one call and close it: Do and Acquire for locks;
// Get, Stat, Put, List, Delete, MkdirAll and RemoveAll for files.
//
//	err = c.Do(ctx, "/ls/foo/svc/primary", func(ctx context.Context, l *client.Lock) error { return work(ctx, l.Sequencer()) })
//
// # The rule
//
// A program never believes that it holds a lock which the cell may have given to another. The local clock
// decides that a lock is lost, not the arrival of a reply: a lock's context is cancelled, with a cause, a
// Margin before another could hold it. Every call checks the clock before it uses the session: so a process
// that was stopped finds out before it acts. No clock helps if the process stops between that check and the
// act. The servers that the lock protects do, if they check its Sequencer.
//
// # Sessions
//
// A session is safe while its lease runs by the local clock. For the grace period after that it is in
// jeopardy: calls block, and nothing is lost yet. After that, or as soon as the master says so, it is gone
// for good (Chubby §2.8): everything that depends on it fails with SessionExpired, which wraps a Cause. A
// fail-over of the master goes unnoticed if it is shorter than the rest of the lease. Renew opens a new
// session for each lost one, and has the application restore what was lost with it. A Keeper opens one when
// it is used, for code that others call.
//
// New makes connections for one session. A process with thousands of sessions spreads them over several
// Cells: the sessions of a Cell (NewSession) share its connections and its search for the master. Stats
// counts a session's events.
//
// # Calls
//
// The client repeats a call until it has a definite answer, whichever replica hangs or fails, as long as its
// context lasts; without a deadline, as long as the session lasts. A change carries the same number in every
// attempt, and so takes effect once. If its context ends before the answer, the error is Uncertain, and the
// client settles the request in the background: it withdraws a pending change, undoes an abandoned Acquire or
// Open, and completes an abandoned Release or Close. It sends no later change before that, so changes take
// effect in order.
//
// Cleanup calls, which give something back (Close, Release), go on for CleanupTime when their context has
// been cancelled, also before the call. So defer them with the context that a signal ends. See
// CleanupContext.
//
// Every error is an *api.Error, with a code to ask for (errors.Is(err, api.LockHeld)). If a context ended a
// call, the error wraps the context's error too. If no master was found, the error lists the servers, their
// answers, and the replica that they believe to be the master.
//
// # Events
//
// A handle can be opened for events (Chubby §2.5), which Next and Events return: in order, each once, after
// their effects can be seen. The library acknowledges them when it has queued them, so that a slow
// application delays no other client. The queue of a handle is bounded, and one EventLost replaces the events
// that did not fit. A new master does not know the handles: after a fail-over the library presents them, and
// then delivers EventMasterFailedOver. An application that looks again after these two events misses nothing.
//
// # Cache
//
// The client caches reads: contents, metadata, listings, the absence of nodes, and idle handles, which were
// closed and wait for the next Open of the same kind. Cached data is true (Chubby §2.7): the cell changes a
// node only when every client that may have cached it has dropped it, or may not use it any more. So a read
// from the cache checks the clock, and makes no call. In jeopardy, and at a fail-over, everything is dropped.
//
// The cache has a lease of its own, of api.CacheLease. The library asks for it with a small message when the
// cache could answer a call, and renews it about every 1.6 s while the cache is in use. After an idle time
// nothing is dropped, but the next call that the cache could answer waits for a round trip. Without a master,
// the cache answers until the lease ends.
//
// Writers pay: a change waits for a round trip to every client whose cache is in use and may have its data;
// for an unreachable client, for the rest of its cache lease. (With an older cell, or in a session opened
// before the upgrade of the cell was finished, a change waits for the lease of the session.) Clients that
// read little should set Config.NoCache: then no writer waits for them. The state of locks is not cached, so
// a change of a lock waits for no cache, and Stat does not show the generation of the lock in a session that
// caches.
//
// A handle opened with OpenOptions.CacheLock keeps its lock between a Release and the next Acquire, which
// then makes no call. For the cell the lock is held meanwhile.
//
// # Transactions
//
// Client.Txn changes several files in one step, all or none, on the condition that files are at the
// generations read, and that locks are held. A retry after a lost answer changes nothing twice.
//
// # Revocation
//
// An acknowledgement says that the owner has stopped. When a lock is taken away, or another client ends the
// whole session, the contexts of the locks end at once, with the cause. The cell gives the locks to others
// only after the library says that the work under them has stopped (decision 10). The library does so when
// the owner has released the lock, by Release, by Close of the handle, or by Close of the client, and not
// before. Until then the cell does not extend the lease, and the session ends with it. So stop the work when
// the context ends, and then release the lock, soon.
//
// # Traces
//
// With Config.Tracer each call has a span, a child of the one in its context, and a master that traces calls
// adds its waits there. Calls that the cache answers have no span, nor has the library's own work.
//
// # Not here
//
// Elections and other recipes are in package recipe.
package client

// For developers of this package: its goroutines, and the order of its mutexes.
//
// Goroutines
//
// Each has an owner that waits for it.
//
// Client.Close waits for the five of a Client, or six if it caches:
//
//   - watchClock reads the clock when something is due, and ends locks in time;
//   - keeper.keepAlive sends KeepAlives, and the last acknowledgement of a session that the cell has ended.
//     While an acknowledgement is held back, one more waits for the release of the lock;
//   - janitor.settleAll settles abandoned requests, and closes idle handles;
//   - runAudits asks about held locks, and presents handles after a fail-over, with up to four more at the
//     time;
//   - notifier.deliverAll calls OnState and writes the log;
//   - renewCacheLeases asks for cache leases.
//
// Cell.Close waits for those of a Cell, however many sessions it has:
//
//   - the locator has one while it looks for the master, one while it looks up the servers, and one for each
//     replica that it is asking;
//   - the pool has two for each connection for which it tries a replacement, and one for each that it is
//     closing.
//
// Cell.Status and Cell.Members wait for one for each replica that they ask. CachingChecker.Close waits for
// one for each watched lock, and two at most for each sequencer in question. Renew and handles have no goroutines.
//
// A connection has one that connects and waits for its end, one that reads, and one that writes while data is
// pending. Closing the connection waits for them. One over gRPC has some more, which end at its close.
//
// Mutexes
//
// These are the mutexes of this package (not the locks of a cell). "a > b" says that b may be locked while a
// is held. Nothing else is locked at the same time, except two steps in a row, such as Handle.mu >
// notifier.mu:
//
//	Handle.mu > Lock.mu
//	Handle.mu > sessionState.mu
//	Handle.mu > janitor.mu
//	sessionState.mu > cache.mu > janitor.mu
//	sessionState.mu > janitor.mu
//	sessionState.mu > locator.mu
//	sessionState.mu > notifier.mu
//	CachingChecker.mu > notifier.mu
//	answerWatch.mu > locator.mu > target.mu
//	pool.mu > target.mu
//	pool.mu > channel.mu
//
// What each guards stands beside it. No mutex is held across a call, a write of the log, or a
// function of the user. Config.Clock is an exception: it is called with sessionState.mu and others held, and
// must not call this package.
