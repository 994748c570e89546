package api

import "time"

// A cell describes itself to people by the records of this file: the master fills them, and every program prints them. The
// message of a record has a field of the same name for each of its fields. The tag pb names another field, or "-" for no field.

// LockInfo is one lock that is held, waited for or delayed.
type LockInfo struct {
	Path       string
	Mode       LockMode // 0 if not held
	Generation Generation
	Holders    []Holder      // at most MaxListed of them
	Waiters    []Waiter      // the first MaxListed
	Delayed    time.Duration // blocked for so long, because a holder failed
	Revoked    string        // why its holders must release it, which they have not done yet; else empty

	MoreHolders int // besides those listed
	MoreWaiters int // behind those listed
}

// Waiter is a request that waits for a lock.
type Waiter struct {
	Holder  `pb:"Party"`
	Place   int // 1 is next
	Mode    LockMode
	Waiting time.Duration
	// Estimate is how much longer it may be, as in client.Queued; 0 if the master does not know.
	Estimate time.Duration
	Absent   bool // its connection is broken; it keeps its position for a while
}

// Explanation is what an operation on a node would wait for.
type Explanation struct {
	Lock      LockInfo // holders and waiters of the lock
	Sentences []string `pb:"Explanation"` // the same, and more, as text for people
	Cachers   []Cacher // sessions that a change of the node would wait for, longest wait first; at most MaxListed

	MoreCachers int // besides those listed
}

// Cacher is a session that may have a node in its cache: a change of the node waits until the session has
// dropped it, or has ended (Chubby §2.7).
type Cacher struct {
	Holder  `pb:"Party"`
	Waiting time.Duration // how long a change has waited for it, or 0
	AtMost  time.Duration // by then it has dropped the node, or has ended
}

// SessionInfo is one session of a cell.
type SessionInfo struct {
	Holder    `pb:"Party"`
	Lease     time.Duration // the length granted
	LeftLeast time.Duration // it lives at least this long
	LeftMost  time.Duration // and ends after at most this long, unless extended
	Handles   int
	Locks     int
	MayCache  bool
	Unheard   bool // since the last fail-over; it ends with what is left, unless its client returns
}

// QuotaUse is the use and the quota of one principal, or of one directory. For a directory only nodes and
// bytes count, and a quota of 0 is no limit.
type QuotaUse struct {
	Principal string `json:"principal"`
	Path      string `json:"path"` // of a directory; then Principal is empty
	Used      Quota  `json:"used"`
	Allowed   Quota  `json:"allowed"`
}

// History is a node's recent lock holdings. The cell keeps the last ones for as long as the node exists.
type History struct {
	Path        string    `pb:"-"`
	Holdings    []Holding // ended ones, the latest last; then current ones, at most MaxListed
	MoreHolders int       // current ones besides those listed
}

// Overlap returns two holdings that overlap although one was exclusive, if any. The fencing tokens decide,
// and no clock. If it finds two, the cell is at fault: keep the data of its replicas.
func (h History) Overlap() (a, b Holding, found bool) {
	for i, a := range h.Holdings {
		for _, b := range h.Holdings[i+1:] {
			if a.Together(b) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// Overview is a cell's work at one moment, as its master sees it.
type Overview struct {
	Epoch Epoch
	Whole bool // the viewer may see everything: it is an operator, or the cell does not identify clients

	// Backlog and Counts are zero unless Whole. Counts grow while one replica is the master of an epoch, and
	// then begin anew: for rates, compare two of one epoch. They are "calls", and by method "call:Acquire"
	// and so on; "commands" and "entries" of the Raft log; "grants" of locks after a wait; "leases" extended;
	// "sessions-begun" and "sessions-ended"; "invalidations" of clients' caches; "events-dropped".
	Backlog Backlog
	Counts  map[string]uint64

	Waits   []LockInfo // the locks with the longest waits, the longest first
	Holdups []Holdup   // the changes with the longest waits for clients' caches, the longest first

	MoreWaits, MoreHoldups int // besides those listed

	// Takeovers are this master's take-overs since its process began, the last first: at most 8; none unless
	// Whole.
	Takeovers []Takeover
}

// Backlog is the waiting work in the master, and its state for clients.
type Backlog struct {
	Waiters   int `json:"waiters"`                   // requests that wait for locks
	Changes   int `json:"changes"`                   // names whose changes wait for clients to drop cached data
	Delays    int `json:"delays"`                    // locks blocked by a lock-delay
	Handles   int `json:"handles"`                   // open at clients
	Mail      int `json:"mail_bytes" pb:"MailBytes"` // bytes of unacknowledged events
	Copies    int `json:"copy_bytes" pb:"CopyBytes"` // bytes of the record of clients' cached data
	Proposals int `json:"proposals"`                 // commands that wait for the log
}

// Holdup is a change that waits until clients have dropped cached data (Chubby §2.7).
type Holdup struct {
	Path     string        // whose changes wait; the root directory: every change waits, after a fail-over
	Waiting  time.Duration // since the notice to the first client
	Slow     []Holder      // sessions waited for, at most 10
	MoreSlow int           // besides those listed
}

// Takeover is how a replica became the master.
type Takeover struct {
	Epoch       Epoch
	ElectedUnix int64           // by its clock, for display
	Sessions    int             // that outlived the previous master
	Phases      []TakeoverPhase // by end
}

// TakeoverPhase is a part of a take-over. The names are those of the metric chubby_takeover_phase_seconds:
// "election", from the previous master's last message to this one's election; "log", until everything in the
// log was applied, with the epoch, which proves the election; "leases", until every session had a new lease.
// Then the master serves, and these begin together: "first_lease", until the first lease was extended, if
// that came before all older sessions had ended; "sessions", until the clients of all sessions had returned,
// or their sessions had ended; "caches", until no client used cached data of an earlier master, for which
// changes wait; and "first_grant", until a lock was granted. Some may be missing, and newer masters may have
// others.
type TakeoverPhase struct {
	Name       string
	Begin, End time.Duration // since the election; negative before it
	Unfinished bool          // in progress, and End is now
}

// Status describes a cell, from the answers of its replicas. Each replica answers with a Status of one row.
type Status struct {
	Cell     string
	CellID   CellID
	Master   string // the master's id; empty if it did not answer
	Named    string `pb:"-"` // the id of the master that replicas name, answering or not; empty if unknown
	Epoch    Epoch
	Replicas []ReplicaStatus `pb:"-"` // by id
	Sessions uint64
	Nodes    uint64
	Locks    uint64
	Level    int // the cell's feature level, by the most advanced answering replica

	Restored *Restoration // the last one, as the master says, or nil
	Acts     []Act        // in progress, as the master says; an outage, as the former master says
}

// ReplicaStatus is one replica of a cell.
type ReplicaStatus struct {
	ID        string `json:"id"`     // empty without an answer, if no other replica knows its address
	Role      string `json:"role"`   // master, replica or candidate; empty without an answer
	Client    string `json:"client"` // its address
	Term      uint64 `json:"term"`
	Last      uint64 `json:"last"`       // index of its last log entry
	Applied   uint64 `json:"applied"`    // index of its last applied entry
	Lag       uint64 `json:"lag" pb:"-"` // entries behind the most advanced replica
	Healthy   bool   `json:"healthy"`
	Version   string `json:"version"`
	DiskFree  int64  `json:"disk_free_bytes" pb:"DiskFreeBytes"`
	StateHash string `json:"state_hash"`
	LogStore  string `json:"log_store"`
	MaxLevel  int    `json:"max_level"` // the newest feature level it knows
	Err       error  `json:"-" pb:"-"`  // why the rest is unknown
}

// Act is an operation of several steps, by an operator or the master, that blocks something until it ends: a
// restore, during which no other can begin, a change of the replicas, or an outage.
type Act struct {
	Kind      string    // restore, joining, leaving or outage
	Replica   string    // joining or leaving, or the former master
	Principal string    // of the operator; empty if the master began it
	Session   SessionID // of a restore
	SinceUnix int64     // of the decision, for people
	Sealed    bool      // of a restore: no session can begin before it has ended
	Waits     string    // what its next step waits for, for people; else empty
}

// Restoration is a restore of a cell from a backup. Its times are for people.
type Restoration struct {
	AtUnix    int64
	Counter   uint64 // the fencing counter then: no earlier token is above it
	Index     uint64 // of the backup's last log entry
	TakenUnix int64  // of the backup
	Recovered string // the replica whose data directory it is from, of a cell that had lost its majority; empty for a master's backup
}

// Member is one replica of a cell's configuration.
type Member struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Raft   string `json:"raft"`
	HTTP   string `json:"http"`
	Voter  bool   `json:"voter"`
	Phase  string `json:"phase,omitempty"` // joining, leaving, client.SpareMember, or empty (see client.ChangeMembers)
	Waits  string `json:"waits,omitempty"` // why it makes no progress, for people; empty if it does, or without a master's answer
}

// Upgrade is the state of a cell's upgrade.
type Upgrade struct {
	Level   int           // the feature level of the cell
	Newest  int           // the newest level that any replica knows
	Members []MemberLevel // every member of the cell, by id
}

// MemberLevel is the newest feature level that a member of a cell knows.
type MemberLevel struct {
	ID       string
	MaxLevel int // 0 without an answer
}

// Holding is the time for which somebody held a lock, from its grant to its end. Tokens, and the number at which
// it ended, are of the cell's one fencing counter: they say what came after what. The times are for people.
type Holding struct {
	Session    SessionID     `cbor:"1,keyasint"`
	Principal  string        `cbor:"2,keyasint,omitempty"`
	Host       string        `cbor:"3,keyasint,omitempty"`
	PID        int           `cbor:"4,keyasint,omitempty"`
	Mode       LockMode      `cbor:"5,keyasint"`
	Generation Generation    `cbor:"6,keyasint"`                      // the token
	Until      Generation    `cbor:"7,keyasint,omitempty"`            // the cell's counter when it had ended: the token of every later grant is larger; 0 while it goes on
	FromUnix   int64         `cbor:"8,keyasint,omitempty"`            // the wall clock of the master at the grant; for display only, never compared
	ToUnix     int64         `cbor:"9,keyasint,omitempty"`            // and at the end
	End        EndReason     `cbor:"10,keyasint,omitempty"`           // why it ended; 0 while it goes on
	Delay      time.Duration `cbor:"11,keyasint,omitempty"`           // the lock-delay that its end began (Chubby §2.4); 0 if it began none
	Reason     string        `cbor:"12,keyasint,omitempty"`           // why the lock was taken, in the holder's own words
	EndedBy    string        `cbor:"13,keyasint,omitempty" since:"3"` // the principal that broke the lock or ended the session; empty if nobody did
	EndedWhy   string        `cbor:"14,keyasint,omitempty" since:"3"` // and why, in its own words
}

// Holder returns who held it.
func (h Holding) Holder() Holder {
	return Holder{Session: h.Session, Principal: h.Principal, Host: h.Host, PID: h.PID, Reason: h.Reason, SinceUnix: h.FromUnix}
}

// Together reports whether two holdings of one lock were not one after the other although one of them was exclusive.
// Of the holdings of a cell no two ever were: who finds some has found a fault. Tokens decide, and no clock.
func (h Holding) Together(other Holding) bool {
	first, second := h, other
	if first.Generation > second.Generation {
		first, second = second, first
	}
	shared := first.Mode == Shared && second.Mode == Shared
	apart := first.Generation < second.Generation && first.Until != 0 && first.Until < second.Generation
	return !shared && !apart
}

// Quota bounds what the sessions of one principal may use of a cell together. A
// field that is 0 stands for that of DefaultQuota.
type Quota struct {
	Nodes    int   `cbor:"1,keyasint,omitempty" json:"nodes"` // that it created, and that still exist
	Bytes    int64 `cbor:"2,keyasint,omitempty" json:"bytes"` // of contents of those
	Sessions int   `cbor:"3,keyasint,omitempty" json:"sessions"`
	Handles  int   `cbor:"4,keyasint,omitempty" json:"handles"` // open
	Waiters  int   `cbor:"5,keyasint,omitempty" json:"waiters"` // Acquires that wait
}

// DefaultQuota returns the quota of a principal that has none of its own. It is
// generous, because a principal may be a whole fleet: it keeps a mistake from taking
// a cell down.
func DefaultQuota() Quota {
	return Quota{Nodes: 500_000, Bytes: 1 << 30, Sessions: 200_000, Handles: 1_000_000, Waiters: 200_000}
}

// Validate returns InvalidArgument if a field is negative.
func (q Quota) Validate() error {
	if min(int64(q.Nodes), q.Bytes, int64(q.Sessions), int64(q.Handles), int64(q.Waiters)) < 0 {
		return Errorf(InvalidArgument, "a quota is negative: %+v; 0 stands for the default", q)
	}
	return nil
}
