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
