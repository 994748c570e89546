// Package client is how a program uses a Chubby cell: it finds the master,
// keeps a session with it, and offers files and locks through handles (Chubby
// §2.6).
//
//	c, err := client.New(ctx, client.Config{Cell: "foo"})
//	h, err := c.Open(ctx, "/ls/foo/svc/primary", client.OpenOptions{Write: true, Create: client.File, LockDelay: 10 * time.Second})
//	l, err := h.Acquire(ctx, api.Exclusive)
//	work(l.Context(), l.Sequencer())
//	err = l.Release(ctx)
//
// # The rule
//
// A program never believes that it holds a lock which the cell may have given
// to another. Loss is declared by the local clock, never by the arrival of a
// reply: a lock has a context that is cancelled, with a cause, a Margin before
// the first moment at which another could hold it. Every call looks at the
// clock before it uses the session, so a process that was stopped, and whose
// timers are late, finds out before it does anything. What the clock cannot
// prevent, because work may be stopped between looking and doing, the servers
// that the lock protects prevent, if they check its Sequencer.
//
// # Sessions
//
// A session is safe while its lease runs by the local clock; in jeopardy for the
// grace period after that, when calls block and nothing is lost yet; and gone
// when that is over too, or as soon as the master says so (Chubby §2.8). A gone
// session stays gone: everything that depends on it fails with SessionExpired,
// which wraps a Cause. A fail-over of the master is survived without notice, if
// it is shorter than what is left of the lease. Renew opens a new session for each
// that is lost, and has the application make again what went with it.
//
// New makes connections for one session. A process with thousands of sessions
// spreads them over some Cells: those of a Cell (NewSession) share its connections
// and its search for the master. Stats counts what has become of a session.
//
// # Calls
//
// A call is repeated until it has a definite answer, whichever replica hangs or
// fails, and as long as its context lasts; without a deadline that is the life
// of the session. A change carries a number that is the same in every attempt,
// and so happens once. If its context ends before the answer, the error is
// Uncertain, and the client settles the matter in the background: what has not
// been done is withdrawn, an abandoned Acquire or Open is undone, an abandoned
// Release or Close is carried through. No later change of the same client is
// sent before that, so it cannot be overtaken by an earlier one.
//
// Calls that give something back (Close, Release) go on for CleanupTime when their
// context has been cancelled, also before the call; so they may be deferred with the
// context that a signal ends. See CleanupContext.
//
// Every error is an *api.Error, with a code to ask for (errors.Is(err,
// api.LockHeld)); one that comes of the end of a context wraps the context's
// error too. An error for want of a master says which servers were asked, what
// each answered, and whom they believe to be the master.
//
// # Events
//
// A handle can be opened for events (Chubby §2.5), which Next and Events deliver:
// in order, each once, after what they tell of can be seen. The library
// acknowledges them when it has queued them, so that a slow application holds up
// nobody; the queue of a handle is bounded, and one EventLost stands for what did
// not fit. After a fail-over the library presents its handles to the new master,
// which knows nothing of them before, and then delivers EventMasterFailedOver: an
// application that looks again on that, and on EventLost, misses nothing.
//
// # Cache
//
// What was read is kept: contents, metadata, listings, that there is no such node,
// and handles that were closed, for the next Open that asks for the same. The rule
// is that what is in the cache is true (Chubby §2.7): the cell makes no change
// before every client that may have cached what it touches has dropped that, or
// its lease is over. So a read that the cache answers looks at the clock, and asks
// nobody; in jeopardy, and at a fail-over, everything is dropped.
//
// The price is paid by those who change: a change waits for a round trip to every
// client that caches what it touches, at worst, if one is cut off, for the rest of
// its lease. Config.NoCache is for those who read little, or are often
// stopped for long: nobody waits for them. Locks are not cached, and never wait: so
// Stat does not show the generation of the lock in a session that caches.
//
// # Forced loss
//
// An acknowledgement says that the owner has stopped. When a lock is taken away,
// or the whole session is ended by somebody else, the contexts of the locks end
// at once, with the cause; but the cell gives the locks to others only when it is
// told that the work under them has stopped (decision 10). The library says so
// when the owner has let go: by Release, by Close of the handle, or by Close of
// the client; and not before. An owner that never lets go of a lock that was
// taken away loses its session when the lease is over, since nothing is extended
// until then. So stop the work when the context ends, and then release the lock,
// soon.
//
// # Goroutines
//
// A Client has five: one sends KeepAlives, and the last acknowledgement of a
// session that the cell has ended; one looks at the clock when something is due,
// and owns the deadlines of all locks; one settles abandoned requests, and closes
// cached handles; one asks about held locks and presents handles after a fail-over,
// with four more while it does so; one calls OnState and writes the log. No handle
// has one, and no cache. A Cell has one more while the master is looked for, and
// one for each replica that is asked, however many sessions it has, two for each to which it
// tries another connection, and one while it closes one. Close of each waits for
// its own. A CachingChecker has one for each lock that it watches, and for each sequencer that it
// asks about. Renew has none: it runs in its caller's. gRPC has three for each connection,
// that end when the connections are closed.
//
// # Not here
//
// Connections are not encrypted. Elections and other recipes are in package recipe.
package client
