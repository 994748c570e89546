package api

import "time"

// ACL is the three names of access control lists that a node has (Chubby §2.3).
// Each is the name of a file in ACLDir.
type ACL struct {
	Read   string `cbor:"1,keyasint,omitempty" json:"read"`
	Write  string `cbor:"2,keyasint,omitempty" json:"write"`
	Change string `cbor:"3,keyasint,omitempty" json:"change"`
}

// Stat is a node's metadata (Chubby §2.3): four numbers that only grow, a
// checksum, and what a directory listing shows.
type Stat struct {
	Path      Path
	Kind      Kind
	Ephemeral bool
	Instance  Generation // greater than that of any previous node of this name
	Content   Generation // greater with each write of the contents; of a new node the instance
	Lock      Generation // greater each time the lock goes from free to held; 0 before the first
	ACLs      Generation // greater with each write of the ACL names; of a new node the instance
	Checksum  uint64     // of the contents; equal contents have equal checksums
	Size      int        // bytes of contents
	Children  int        // of a directory
	ACL       ACL

	// ModifiedUnix is when the contents were last written, or the node was created, in
	// seconds since 1970 by the wall clock of the master at that time. It is for display
	// only: it can be wrong, and can go back. 0 if it is not known: of contents that were
	// written before the cell was at feature level 2.
	ModifiedUnix int64

	// Withheld says that the caller may not read the node: only Path, Kind and Ephemeral are known of it; ACL and ACLs, if its handle
	// may change those; and in the answer to a change what the caller has written itself: Content, Checksum, Size and ModifiedUnix,
	// and Instance, if it has created the node.
	Withheld bool
}

// Wait is a step of a cycle of requests for locks that wait for each other.
type Wait struct {
	Session SessionID // whose request it is
	Owner   string    // that the request declares; empty: the session itself
	Path    string    // of the lock that is waited for; empty if the caller may not read the node
	For     SessionID // who holds the lock, or waits for it in front: a session of the owner of the next step
}

// Holder describes a session that holds a lock, or waits for one, for people to read.
type Holder struct {
	Session   SessionID
	Principal string
	Host      string
	PID       int
	Reason    string // why it takes the lock, in its own words; may be empty
	SinceUnix int64  // since when, in seconds since 1970 by the wall clock of the master at that time; for display only
	Owner     string // for whom the session holds it or waits, as its request declares; empty: for itself
	Cached    bool   // in listings: the holder may keep the lock between two uses, until another asks for it

	// In listings of locks: whether a sequencer of the lock was shown to this master, to be checked or as the condition of a change
	// (servers that check without the cell leave no trace there); and for how long nobody gets the lock if the holder's session fails.
	Checked   bool
	LockDelay time.Duration
}
