package api

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
