// Package session is what a session is, on each of the three sides that know
// it, and the arithmetic of its lease (Chubby §2.8).
//
//   - [Table] is the replicated part: which sessions exist, who they are, the
//     longest lease each may have been granted, and the answers kept for
//     retries. It holds no time but lengths of time.
//   - [Leases] is the master's part: when each lease runs out. It lives for one
//     epoch; the next master starts every lease again in full.
//   - [Local] is the client's part: until when the client may believe.
//
// The rule it upholds: a client never believes in a lease, or in a lock, that
// the cell has already given up. The proof makes up the rest of this comment.
//
// Everything here is a data structure whose methods take now and return
// decisions: no clock is read, no goroutine started, no lock taken. It speaks to
// nobody, neither raft nor gRPC. Table may be copied to be read elsewhere;
// Leases and Local are for one goroutine at a time.
//
// # Who may use it
//
// This module: package raftfsm has the Table in its State, the master keeps Leases, and
// the client keeps a Local. Other modules should not import it, except for [Clock] and
// [Instant], which the configurations of a client and of a replica name: the rest
// changes with what the two sides need, without a line in the changelog.
//
// # Assumptions
//
// A moment is a point of real time; nobody can read it. A(x) is what clock A
// reads at the moment x, an [Instant], and rho is [api.ClockRateBound].
//
// (A1) Clocks. No clock goes back. Of any two clocks A and B, of the cell's
// machines or its clients', and of any moments x before y,
//
//	B(y) - B(x)  >=  (1 - rho) (A(y) - A(x))
//
// that is, what takes d by one clock takes at least d (1 - rho) by any other.
// Clocks count on while their machines sleep. Their granularity is part of rho:
// a nanosecond or a millisecond in a lease of at least a second is little of 1 %.
//
// (A2) Messages take time: a request is received after it was sent.
//
// (A3) Leadership proofs. If a proof that the master M of an epoch began at the
// moment p succeeds, then no later epoch had begun by p: a quorum of voters,
// asked after p, had not yet voted in a later term, a later master needs votes
// of a quorum, and the two quorums share a voter, who voted after p.
//
// (A4) The log. What is committed in one epoch is known to every later master
// before it serves. The end of a session, proposed in one epoch, takes effect
// in that epoch's place in the log or never.
//
// # Duties
//
// The proof needs these of the callers of this package. Of the master:
//
// (M1) It reads receipt when the request has arrived, and t0 after that and
// before the first question of the leadership proof. Only if the proof succeeds
// does it call Leases.Grant(id, L, t0), and only if that is ok does it reply,
// with Lease = L and Parked = t0 - receipt. Instead of Grant it may call
// Leases.Promise, which says an L with which the end is where it was. (That an
// entry which it proposed after t0 commits in its epoch is such a proof too: of a
// session's creation, say.)
//
// (M2) L is at most the session's Lease in the Table of the master's committed
// state: Table.RaiseLease commits before the first longer grant.
//
// (M3) It proposes the end of a session only after Leases made it EXPIRING: when
// Tick returned it; or after Stop, and then not before its clock reads the end
// that Stop returned, unless the client asked for the end or acknowledged it, or
// an operator waived the wait in so many words, as by restoring a backup.
// Leases.Remove follows only when the end was applied.
//
// (M4) On takeover it reads from after its epoch began and calls
// Leases.Start(id, Lease of the record, from) for every session in the Table. It
// starts no session that is not in the Table at that moment: a repeated creation
// whose answer is late must not raise the dead.
//
// (M5) Nobody gets a lock of an ended session before lockDelay, the length
// replicated with the lock, has passed by the master's clock since it read it
// for that purpose: after it applied the entry that ended the session, and after
// its own epoch began.
//
// Of the client:
//
// (C1) It reads sent before the request leaves, and uses a reply's grant with
// that of the very request it answers, also when it had to ask several times.
//
// (C2) It reads its clock and then believes in the session only if that reading
// is less than Local.End(), and in the lock only if it is less than
// Local.FreeAt(lockDelay).
//
// # The lease
//
// Let a grant be made by master M with clock M, and taken by a client with clock
// C. Let s, r and p be the moments at which sent, receipt and t0 were read:
//
//	C(s) = sent,  M(r) = receipt,  M(p) = t0,  parked = t0 - receipt
//	s before r    by (C1), (A2), (M1)
//	r before p    by (M1)
//
// Let x be a moment at which somebody proposes the end of the session against
// the client's will, and the proposal takes effect. To show:
//
//	C(x) >= sent + (parked + L) (1 - rho)                                  (1)
//
// Case 1: M proposes it in the same epoch. Leases had made the session EXPIRING
// by then, with an end that M's clock had reached by x (M3), and after this grant,
// as Grant refuses an EXPIRING session. The end was at least t0 + L then, because
// Grant saw to that and ends never move back. So M(x) >= t0 + L, and
//
//	C(x) - sent  =  C(x) - C(s)
//	            >=  C(x) - C(r)                   s before r
//	            >=  (1 - rho) (M(x) - M(r))       (A1)
//	            >=  (1 - rho) (t0 + L - receipt)
//	             =  (1 - rho) (parked + L)
//
// Case 2: a later master N proposes it, with clock N, that took over from M or
// from successors of M. Let f be the moment at which it read from. Its epoch had
// not begun at p (A3) and had at f (M4), so p is before f. It started the lease at
// a length of at least L (M2, A4) and so N(x) >= N(f) + L, as in case 1. Leaving
// out the time between p and f, which no clock here measures,
//
//	C(x) - sent  >=  (C(x) - C(f)) + (C(p) - C(r))       s, r, p, f, x in this order
//	             >=  (1 - rho) (N(x) - N(f) + M(p) - M(r))   (A1) twice
//	             >=  (1 - rho) (L + parked)
//
// Which masters came between does not matter, nor what they promised: N alone
// ends the session, and it began to count after p.
//
// Case 3: an earlier master proposes it, deposed but unaware. What it proposed
// either comes before M's epoch in the log, and then M knows of no such session
// (A4) and grants it nothing; or it never takes effect. The moment x does not
// exist.
//
// [Local.End] is the largest of the right sides of (1) over all grants taken,
// each rounded down. As (1) holds for each of them, it holds for the largest:
// while C reads less than End, the cell has not ended the session.
//
// # The lock
//
// Let y be a moment at which the cell lets another have a lock that the session
// held with lockDelay. The entry that ended the session was proposed at a moment x
// before that, and (1) holds for x. A master K, that which proposed it or a later
// one, then read its clock at a moment b after x, because the entry it had applied
// by b was proposed at x, and waited until K(y) >= K(b) + lockDelay (M5). A takeover
// makes K another and b later; that changes nothing in
//
//	C(y) - sent  >=  (C(y) - C(b)) + (C(x) - sent)
//	             >=  (1 - rho) (K(y) - K(b) + parked + L)        (A1), (1)
//	             >=  (1 - rho) (lockDelay + parked + L)                (2)
//
// [Local.FreeAt] is End and the rounded down lockDelay (1 - rho): at most the
// right side of (2) for the grant that gave End. So while C reads less than
// FreeAt(lockDelay), nobody else holds the lock.
//
// A lock that is broken by an operator is no different, though its session lives
// on. Until the client has acknowledged the loss, the master grants the session
// nothing more, and keeps the lock from others until its clock reads the end of the
// lease + lockDelay; then (2) follows as (1) does in case 1. A takeover before that
// takes nothing back and gives nothing away: the tree still has the lock held, and
// marked as revoked.
//
// # Rounding and absurd values
//
// Lengths are whole nanoseconds, and d (1 - rho) is rounded down, never up. Sums
// stop at the ends of the range of an Instant. A grant with a Lease that is not
// positive or with a negative Parked is dropped; a longer Lease or Parked than
// api.MaxLease counts as that, which is less than was said, and what was said is a
// sound promise of anything shorter. Wrong values within these limits are lies of
// the master, and beyond the proof.
//
// # Pauses
//
// A process may stop for any time between any two steps. The inequalities name
// the moments of readings, and each duty orders a reading before or after what it
// bounds, so a pause that delays what follows a reading only delays it more:
//
//   - of the master between arrival and receipt, or between t0 and the proof, or
//     before the reply: the client counts less or later than it might have, never
//     more;
//   - of the master between the reading that Tick is given and the proposal: the
//     end comes later still. Tick also gives clients some of the time back in which
//     the master was stopped; that is for their convenience, not for safety;
//   - of the client between sent and the departure of the request: the end is
//     earlier than it might have been;
//   - of the client between reading its clock (C2) and acting on it: here nothing
//     can be promised. The session was alive, and the lock its own, at the moment of
//     the reading. What the client does afterwards may come too late, by as long as
//     it was stopped, or as its message was under way. Against that there are
//     sequencers, which the server that the lock protects checks, a margin before
//     FreeAt, and a guardian process that needs no help from the one that stopped.
//
// A machine whose clock stands still while others' run on, as one that is restored
// from a snapshot, breaks (A1) and everything that follows from it; sequencers
// hold even then.
package session
