// Package session has the data structures of a session, one for each of the
// three sides that know it, and the arithmetic of its lease (Chubby §2.8).
//
//   - [Table] is the replicated part: which sessions exist, to whom they belong,
//     the longest lease that each may have been granted, and the answers kept for
//     retries. The only times in it are lengths of time.
//   - [Leases] is the master's part: when each lease runs out. It lives for one
//     epoch; the next master starts every lease again in full. [Pauses] has it extend them when the
//     master's process did not run.
//   - [Local] is the client's part: until when the client may rely on its session.
//
// A client never relies on a lease, or on a lock, that the cell has already
// given up. The rest of this comment proves that.
//
// The methods here take the present time and return decisions: the package
// reads no clock, starts no goroutine and takes no lock. It uses neither raft
// nor gRPC. A Table may be copied to be read elsewhere; Leases, Pauses and Local are
// not safe for concurrent use.
//
// # Who may use it
//
// This module: package raftfsm has the Table in its State, the master keeps
// Leases, and the client keeps a Local. Other modules should not import it,
// except for [Clock] and [Instant], which occur in the configurations of a
// client and of a replica: the other names change with the needs of the two
// sides, without a line in the changelog.
//
// # Assumptions
//
// A moment is a point of real time, which no process can read. A(x) is what
// clock A reads at the moment x, an [Instant], and rho is [api.ClockRateBound].
//
// (A1) Clocks. No clock goes back. Of any two clocks A and B, of the cell's
// machines or its clients', and of any moments x before y,
//
//	B(y) - B(x)  >=  (1 - rho) (A(y) - A(x))
//
// that is, what takes d by one clock takes at least d (1 - rho) by any other.
// Clocks continue to count while their machines sleep. Their granularity is
// part of rho: a nanosecond or a millisecond in a lease of at least a second is
// far less than 1 %.
//
// (A2) Messages take time: a request is received after it was sent.
//
// (A3) Leadership proofs. If a proof that the master M of an epoch began at the
// moment p succeeds, then no later epoch had begun by p: a quorum of voters,
// asked after p, had not yet voted in a later term, a later master needs votes
// of a quorum, and the two quorums share a voter, who voted after p.
//
// (A4) The log. Every later master knows what is committed in one epoch before
// it serves. The end of a session, proposed in one epoch, takes effect in that
// epoch's part of the log or never.
//
// # Duties
//
// The proof needs the following from the callers of this package. From the
// master:
//
// (M1) It reads receipt when the request has arrived, and t0 after that and
// before it begins the leadership proof. Only if the proof succeeds does it
// call Leases.Grant(id, L, t0), and only if that is ok does it reply, with
// Lease = L and Parked = t0 - receipt. Instead of Grant it may call
// Leases.Promise, which returns an L that leaves the end where it was. (If an
// entry that the master proposed after t0 commits in its epoch, that is such a
// proof too: the entry that creates the session, for example.)
//
// (M2) L is at most the session's Lease in the Table of the master's committed
// state, as the master read it before p: Table.RaiseLease commits before the
// first longer grant. Later its state may be that of its successor.
//
// (M3) It proposes the end of a session only after Leases made it EXPIRING.
// That is either when Tick returned the session, or after Stop. After Stop it
// waits until its clock reads the end that Stop returned, unless the client
// asked for the end or acknowledged it, or an operator explicitly waived the
// wait, for example by restoring a backup. It calls Leases.Remove only after
// the end was applied.
//
// (M4) On takeover it reads from after its epoch began and calls
// Leases.Start(id, Lease of the record, from) for every session in the Table.
// It starts no session that is not in the Table at that moment: a repeated
// creation whose answer is late must not start an ended session again.
//
// (M5) It grants a lock of an ended session only after lockDelay, the length
// replicated with the lock, has passed by the master's clock. It begins to
// count after it applied the entry that ended the session, and after its own
// epoch began.
//
// From the client:
//
// (C1) It reads sent before the request leaves, and uses a reply's grant with
// the sent of the very request that it answers, also if it had to ask several
// times.
//
// (C2) It reads its clock and then relies on the session only if that reading
// is less than Local.End(), and on the lock only if it is less than
// Local.FreeAt(lockDelay).
//
// # The lease
//
// Let master M with clock M make a grant, and a client with clock C take it.
// Let s, r and p be the moments at which sent, receipt and t0 were read:
//
//	C(s) = sent,  M(r) = receipt,  M(p) = t0,  parked = t0 - receipt
//	s before r    by (C1), (A2), (M1)
//	r before p    by (M1)
//
// Let x be a moment at which a master proposes the end of the session against
// the client's will, and the proposal takes effect. To show:
//
//	C(x) >= sent + (parked + L) (1 - rho)                                  (1)
//
// Case 1: M proposes it in the same epoch. Leases had made the session EXPIRING
// by then, with an end that M's clock had reached by x (M3). It did so after
// this grant, because Grant refuses an EXPIRING session. The end was at least
// t0 + L, because Grant makes sure of that and ends never move back. So M(x) >=
// t0 + L, and
//
//	C(x) - sent  =  C(x) - C(s)
//	            >=  C(x) - C(r)                   s before r
//	            >=  (1 - rho) (M(x) - M(r))       (A1)
//	            >=  (1 - rho) (t0 + L - receipt)
//	             =  (1 - rho) (parked + L)
//
// Case 2: a later master N proposes it, with clock N, that took over from M or
// from successors of M. Let f be the moment at which it read from. Its epoch
// had not begun at p (A3) and had at f (M4), so p is before f. It started the
// lease at a length of at least L (M2, A4) and so N(x) >= N(f) + L, as in case
// 1. Without the time between p and f, which no clock here measures,
//
//	C(x) - sent  >=  (C(x) - C(f)) + (C(p) - C(r))       s, r, p, f, x in this order
//	             >=  (1 - rho) (N(x) - N(f) + M(p) - M(r))   (A1) twice
//	             >=  (1 - rho) (L + parked)
//
// The masters in between do not matter, nor what they promised: only N ends the
// session, and it began to count after p.
//
// Case 3: an earlier master proposes it, which does not know that it was
// deposed. If its proposal comes before M's epoch in the log, M does not have
// the session (A4) and grants it nothing. Otherwise the proposal never takes
// effect, and there is no moment x.
//
// [Local.End] is the largest of the right sides of (1) over all grants taken,
// each rounded down. As (1) holds for each of them, it holds for the largest:
// while C reads less than End, the cell has not ended the session.
//
// # The lock
//
// Let y be a moment at which the cell grants another handle a lock that the
// session held with lockDelay. The entry that ended the session was proposed at
// a moment x before that, and (1) holds for x. Let K be the master that grants
// it. K read its clock at a moment b after x, because by b it had applied the
// entry that was proposed at x, and then waited until K(y) >= K(b) + lockDelay
// (M5). After a takeover, K is a later master and b a later moment; that does
// not change
//
//	C(y) - sent  >=  (C(y) - C(b)) + (C(x) - sent)
//	             >=  (1 - rho) (K(y) - K(b) + parked + L)        (A1), (1)
//	             >=  (1 - rho) (lockDelay + parked + L)                (2)
//
// [Local.FreeAt] is End plus lockDelay (1 - rho), rounded down: at most the
// right side of (2) for the grant that gave End. So while C reads less than
// FreeAt(lockDelay), no other handle holds the lock.
//
// The same holds for a lock that an operator breaks, though its session lives
// on. Until the client has acknowledged the revocation, the master does not
// extend the session's lease, and keeps the lock from others until its clock
// reads the end of the lease + lockDelay; then (2) follows as (1) does in case
// 1. A takeover before that changes nothing: in the tree the lock is still
// held, and marked as revoked.
//
// # The cache lease
//
// What a client has cached it may use, if its session has cache leases, only while one of
// these runs by its clock (C2, with [CacheLeaseEnd] of a reply's lease and the sent of
// the request). The master has these duties:
//
// (K1) A reply with a lease L of at most api.CacheLease is sent only if a leadership proof
// succeeds that began after the request arrived. At a moment g after the arrival the
// master noted an end of at least M(g) + L for the session, and at g the session had
// dropped everything that this master had told it to drop.
//
// (K2) It lets a change of what the session may have cached take effect only after
// it has told the session to drop that, and then either the session has said that it
// did, or its clock reads the noted end. From when it tells until the session has said so it
// does not move that end.
//
// (K3) After a takeover it lets no change take effect before the session has said that it
// has dropped everything, or its clock reads from + api.CacheLease, with from as in (M4).
//
// Let s be the moment at which sent was read, and x one at which a change takes effect that
// touches what was cached and not dropped. To show: C(x) >= sent + L (1 - rho), so the client
// does not use it at x or later. If the master M that granted L lets it take
// effect, M(x) >= M(g) + L by (K2), and s is before g. If it is a later master N, let p be the
// moment at which the proof began, and f that at which N read from: s is before p (A2, K1),
// p before f (A3), and N(x) >= N(f) + api.CacheLease >= N(f) + L by (K3). Either way (A1)
// gives C(x) - sent >= L (1 - rho).
//
// If the lease was granted after the change took effect, by the same master, then by (K1) the
// session had dropped what was changed before g, and has nothing of it. If
// by a later one, the client had dropped everything that it had from earlier epochs before it took
// a lease of this one.
//
// # Rounding and absurd values
//
// Lengths are whole nanoseconds, and d (1 - rho) is rounded down, never up.
// Sums stop at the ends of the range of an Instant. The client drops a grant
// with a Lease that is not positive or with a negative Parked. It cuts a Lease
// or Parked longer than api.MaxLease to api.MaxLease, because a promise
// includes every shorter one. The proof does not cover a master that sends
// wrong values within these limits.
//
// # Pauses
//
// A process may stop for any time between any two steps. The inequalities name
// the moments of readings, and each duty orders a reading before or after what
// it bounds. So a pause after a reading only makes the following step later:
//
//   - The master pauses between arrival and receipt, or between t0 and the proof, or
//     before the reply: the client counts less or later than it could have, never
//     more.
//   - The master pauses between the reading that Tick is given and the proposal: the
//     end comes later still. Tick also gives clients some of the time back in which
//     the master was stopped; that is for their convenience, not for safety.
//   - The client pauses between sent and the departure of the request: the end is
//     earlier than it could have been.
//   - The client pauses between reading its clock (C2) and acting on it: here nothing
//     can be promised. At the moment of the reading the session was alive and the client
//     held the lock. What the client does afterwards may come too late, by as long as
//     it was stopped, or as its message was under way. The remedies are sequencers,
//     which the server that the lock protects checks, a margin before FreeAt, and a
//     guardian process that does not depend on the stopped one.
//
// A machine whose clock stands still while other clocks run, such as one that
// is restored from a snapshot, breaks (A1) and everything that follows from it;
// sequencers protect even then.
package session
