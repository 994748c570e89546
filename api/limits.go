package api

import "time"

// Limits of the name space (Chubby §2.3, §4.3). The port for clients checks them
// once, and everything behind it relies on them.
const (
	MaxContents  = 256 << 10 // bytes in a file; Chubby §4.3 set it after a service rewrote 1.5 MB per user action
	MaxPath      = 1024      // bytes of a whole path, /ls/<cell> included
	MaxComponent = 255       // bytes of one component, as file systems have it
	MaxDepth     = 32        // components below /ls/<cell>
	MaxACLName   = 255       // bytes of the name of an ACL
	MaxReason    = 256       // bytes of the reason a lock is taken for; it is shown to others
	MaxOwner     = 128       // bytes of the owner that a request for a lock declares; it is shown to others
	MaxPrincipal = 255       // bytes of a principal's name
)

// Limits of sessions and their requests.
const (
	MaxOutstanding = 256       // mutations of one session without a known answer; bounds its replicated results
	MaxGeneration  = 1<<53 - 1 // JSON and SQL carry it exactly
	MaxMessage     = 1 << 20   // bytes of one RPC: a file and its surroundings
	MaxBatch       = 512       // commands in one Raft entry
	MaxBatchBytes  = 256 << 10 // bytes of commands in one Raft entry, unless a single command is larger
	MaxCommand     = 320 << 10 // bytes of a single command as it is encoded: a file's contents, and 64 KiB for all else
	MaxTxnSteps    = 64        // conditions of one transaction, and operations of one; its paths and contents have together at most MaxContents bytes
	MaxWaiters     = 10_000    // waiting Acquires on one lock
	MaxHandles     = 10_000    // open handles of one session
	MaxEventQueue  = 1_000     // undelivered events of one session, before the rest is one LOST marker
)

// Limits of what one reply lists, so that it fits a message and costs the master
// little. Longer lists come in pages, or with the number of those left out.
const (
	MaxPage      = 1_000     // sessions, locks, quotas or children in one page of a listing
	MaxPageBytes = 256 << 10 // bytes of a page, unless a single entry is larger
	MaxListed    = 100       // holders, waiters or cachers of one lock or node
	MaxNamed     = 10        // holders in the report to a waiter, once a second
	MaxHoldings  = 16        // holdings of a lock that have ended, and that a cell remembers; of a cell with very many locks it may be fewer
)

// Times of sessions and locks (Chubby §2.4, §2.8), and how well clocks keep them.
const (
	DefaultLease = 12 * time.Second // Chubby §2.8
	// CacheLease is the longest that a change waits for a client that does not answer.
	// Masters rely on that none before them has granted a longer one: it cannot grow
	// within a major version.
	CacheLease       = 2500 * time.Millisecond
	MinLease         = 1 * time.Second  // below it, an ordinary pause of a process ends sessions
	MaxLease         = 60 * time.Second // Chubby §2.8: under heavy load
	DefaultGrace     = 45 * time.Second // Chubby §2.8: longer than an election takes
	DefaultLockDelay = 10 * time.Second // long enough for a slow packet, short enough for an operator
	MaxLockDelay     = 60 * time.Second // Chubby §2.4
	MaxOutage        = DefaultGrace     // that an operator asks for (a drill): clients with the usual settings outlast it

	// ClockRateBound (rho) bounds how much faster or slower the clock of any one
	// machine of the cell or of its clients runs than another's, as a fraction.
	// Crystal oscillators stay within 100 parts in a million; 1 % leaves room for a
	// slewing time daemon.
	ClockRateBound = 0.01
)

// Ports of a replica; on one host, replica i adds i.
const (
	DefaultClientPort = 7421
	DefaultRaftPort   = 7431
	DefaultHTTPPort   = 7441
)
