package namespace

import (
	"cmp"
	"hash/crc64"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Node is a file or directory. A Node that is in a tree never changes: callers
// may keep it, and must not write to it.
type Node struct {
	Name      api.Name       `cbor:"1,keyasint"`
	Kind      api.Kind       `cbor:"2,keyasint"`
	Ephemeral bool           `cbor:"3,keyasint,omitempty"`
	Instance  api.Generation `cbor:"4,keyasint"`
	Content   api.Generation `cbor:"5,keyasint"`           // drawn by the last write, at first the instance: no two contents of one name have the same
	Lock      api.Generation `cbor:"6,keyasint,omitempty"` // of the last change from free to held; 0 before the first
	ACLs      api.Generation `cbor:"7,keyasint"`           // drawn by the last change of the ACL names, at first the instance
	Checksum  uint64         `cbor:"8,keyasint"`           // CRC-64 (ECMA) of the contents
	Contents  []byte         `cbor:"9,keyasint,omitempty"`
	ACL       api.ACL        `cbor:"10,keyasint"`
	Children  int            `cbor:"11,keyasint,omitempty"` // of a directory: how many nodes are directly in it

	Mode    api.LockMode `cbor:"12,keyasint,omitempty"` // how the lock is held; 0 when it is free
	Holders []Holder     `cbor:"13,keyasint,omitempty"` // in the order of their grants; empty when it is free
	Openers []Owner      `cbor:"14,keyasint,omitempty"` // of an ephemeral node, ascending; without openers it is dying

	Revoked *refusal.Intervention `cbor:"15,keyasint,omitempty"` // by whom and why the lock is being taken from its holders; nil if it is not
	Creator string                `cbor:"16,keyasint,omitempty"` // the principal against whose quota the node counts
	Quota   *Quota                `cbor:"17,keyasint,omitempty"` // of a directory: how much may be below it

	ModifiedUnix int64 `cbor:"18,keyasint,omitempty" since:"2"` // of the contents: the proposer's wall clock; for display only, never compared

	list *list // of a file below api.ACLDir: its parsed contents, set together with them
}

// Owner names one handle that holds a lock or has an ephemeral node open.
type Owner struct {
	Session api.SessionID `cbor:"1,keyasint"`
	Handle  api.HandleID  `cbor:"2,keyasint"`
}

// compare orders owners by session, then by handle.
func (o Owner) compare(other Owner) int {
	return cmp.Or(cmp.Compare(o.Session, other.Session), cmp.Compare(o.Handle, other.Handle))
}

// Holder is a handle that holds a lock.
type Holder struct {
	Owner
	Delay     time.Duration `cbor:"3,keyasint,omitempty"` // lock-delay if its session fails (Chubby §2.4)
	Reason    string        `cbor:"4,keyasint,omitempty"` // shown to people
	SinceUnix int64         `cbor:"5,keyasint,omitempty"` // the proposer's wall clock; for display only, never compared

	DeclaredOwner string `cbor:"6,keyasint,omitempty" since:"3"` // for whom the session has the lock; empty: for itself
}

// Delay marks the name of a lock whose holder failed: until an EndDelay names
// ID, no handle gets the lock in a mode that conflicts with Mode (Chubby §2.4).
// The tree keeps it by name, so a re-created file stays delayed. The tree knows
// how long a delay lasts, not when it began: each epoch's master counts the
// time, and a new master starts it again in full.
type Delay struct {
	ID   uint64        `cbor:"1,keyasint"` // of the latest failure; an EndDelay with an older ID does nothing
	Mode api.LockMode  `cbor:"2,keyasint"` // exclusive if any of the failed holders held it exclusively
	For  time.Duration `cbor:"3,keyasint"` // the longest of the failed holders' delays
}

// Ref names one instance of a node: an operation on a Ref fails with
// api.HandleClosed once the node is gone, even if another node of its name was
// created since (Chubby §2.6).
type Ref struct {
	Name     api.Name       `cbor:"1,keyasint"`
	Instance api.Generation `cbor:"2,keyasint"`
}

// Ref returns the reference to this instance.
func (n *Node) Ref() Ref { return Ref{Name: n.Name, Instance: n.Instance} }

// Dying reports whether n is an ephemeral node that no handle has open. It is
// about to be removed; until then its name is taken (decision 11).
func (n *Node) Dying() bool { return n.Ephemeral && len(n.Openers) == 0 }

// Holds reports whether the handle holds n's lock.
func (n *Node) Holds(o Owner) bool {
	return slices.ContainsFunc(n.Holders, func(h Holder) bool { return h.Owner == o })
}

// HeldByAny reports whether any of the handles holds n's lock. It looks at each holder once.
func (n *Node) HeldByAny(handles []Owner) bool {
	listed := among(handles)
	return slices.ContainsFunc(n.Holders, func(h Holder) bool { return listed(h.Owner) })
}

// among returns a function that reports whether an owner is in the list.
func among(list []Owner) func(Owner) bool {
	//mutants: same (it only saves work)
	if len(list) == 1 {
		return func(o Owner) bool { return o == list[0] }
	}
	set := make(map[Owner]bool, len(list))
	for _, o := range list {
		set[o] = true
	}
	return func(o Owner) bool { return set[o] }
}

// Stat returns n's metadata. It leaves the path empty: the tree does not know
// the cell's name.
func (n *Node) Stat() api.Stat {
	return api.Stat{
		Kind: n.Kind, Ephemeral: n.Ephemeral, Instance: n.Instance, Content: n.Content, Lock: n.Lock, ACLs: n.ACLs,
		Checksum: n.Checksum, Size: len(n.Contents), Children: n.Children, ACL: n.ACL, ModifiedUnix: n.ModifiedUnix,
	}
}

// nameBytes returns how many bytes the names in n have. Those that it has inherited count too: a snapshot has them for each node.
func (n *Node) nameBytes() int {
	return len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change) + len(n.Creator)
}

// held reports whether anybody holds n's lock.
func (n *Node) held() bool { return len(n.Holders) > 0 }

// opener returns the place of a handle among n's openers, or where it would be
// inserted.
func (n *Node) opener(o Owner) (int, bool) {
	return slices.BinarySearchFunc(n.Openers, o, Owner.compare)
}

// ownedBy reports whether the session holds n's lock or has it open.
func (n *Node) ownedBy(session api.SessionID) bool {
	return slices.ContainsFunc(n.Holders, func(h Holder) bool { return h.Session == session }) ||
		slices.ContainsFunc(n.Openers, func(o Owner) bool { return o.Session == session })
}

// owners returns the sessions that hold n's lock or have it open, some of them
// more than once.
func (n *Node) owners() []api.SessionID {
	sessions := make([]api.SessionID, 0, len(n.Holders)+len(n.Openers))
	for _, h := range n.Holders {
		sessions = append(sessions, h.Session)
	}
	for _, o := range n.Openers {
		sessions = append(sessions, o.Session)
	}
	return sessions
}

// withContents returns n with these contents. Empty contents become nil, as
// they are after a snapshot was read.
func (n Node) withContents(contents []byte) *Node {
	if len(contents) == 0 {
		contents = nil
	}
	n.Contents, n.Checksum, n.list = contents, checksum(contents), nil
	if n.isACLFile() {
		n.list = parseList(contents)
	}
	return &n
}

// withChildren returns n with that many more children.
func (n Node) withChildren(more int) *Node {
	n.Children += more
	return &n
}

// withoutHolders returns n without those holders of its lock for which gone is
// true, and these holders.
func (n Node) withoutHolders(gone func(Owner) bool) (next *Node, left []Holder) {
	all := n.Holders
	n.Holders = nil
	for _, h := range all {
		if gone(h.Owner) {
			left = append(left, h)
		} else {
			n.Holders = append(n.Holders, h)
		}
	}
	if !n.held() {
		n.Mode, n.Revoked = 0, nil
	}
	return &n, left
}

// withoutOpeners returns n without those openers for which gone is true.
func (n Node) withoutOpeners(gone func(Owner) bool) *Node {
	all := n.Openers
	n.Openers = nil
	for _, o := range all {
		if !gone(o) {
			n.Openers = append(n.Openers, o)
		}
	}
	return &n
}

// checksum is the same for equal contents, and 0 for empty ones.
func checksum(contents []byte) uint64 { return crc64.Checksum(contents, crc64.MakeTable(crc64.ECMA)) }

// Change is one change of what clients see of a node.
type Change struct {
	Kind       ChangeKind
	Node       Ref
	Parent     Ref
	Generation api.Generation // of the contents or ACL names that were written, or the instance
}

// ChangeKind is a way in which a node can change.
type ChangeKind uint8

// The kinds of change.
const (
	Added      ChangeKind = 1
	Removed    ChangeKind = 2
	Written    ChangeKind = 3 // its contents
	ACLChanged ChangeKind = 4 // its ACL names
)

func tooLarge(contents []byte) error {
	return &refusal.Refusal{Cause: refusal.ContentsTooLarge, Used: int64(len(contents)), Allowed: api.MaxContents}
}

func aclNameTooLong() error {
	return &refusal.Refusal{Cause: refusal.ACLNameTooLong, Allowed: api.MaxACLName}
}

// lockHeld makes a refusal that names n's holders.
func (n *Node) lockHeld(cause refusal.Cause) error {
	r := &refusal.Refusal{Cause: cause, Mode: n.Mode, HolderCount: len(n.Holders)}
	for _, h := range n.Holders[:min(len(n.Holders), refusal.MaxHolders)] {
		r.Holders = append(r.Holders, h.Session)
	}
	return r
}

// Rights is what a handle may be opened for (Chubby §2.6). A node names a list
// for each right (Chubby §2.3).
type Rights uint8

// The rights.
const (
	ToRead   Rights = 1 << iota // contents, metadata, listings, and events of them
	ToWrite                     // and to lock, in either mode (Chubby §2.4), to delete, and to create in a directory
	ToChange                    // the ACL names, and to take a lock away from its holders
)

// Permit returns PermissionDenied unless the principal has all the wanted
// rights on the node. The refusal names the list that would have to admit the
// principal.
func (t Tree) Permit(n *Node, principal string, wanted Rights) error {
	for _, right := range []struct {
		bit   Rights
		list  string
		cause refusal.Cause
	}{{ToRead, n.ACL.Read, refusal.NotAdmittedToRead}, {ToWrite, n.ACL.Write, refusal.NotAdmittedToWrite}, {ToChange, n.ACL.Change, refusal.NotAdmittedToChange}} {
		if wanted&right.bit != 0 && !t.Admits(right.list, principal) {
			return &refusal.Refusal{Cause: right.cause, Principal: principal, List: ACLFile(right.list), Name: n.Name, Kind: n.Kind}
		}
	}
	return nil
}

// MissingACL returns the first name in acl that is not empty and has no list.
func (t Tree) MissingACL(acl api.ACL) (string, bool) {
	for _, name := range []string{acl.Read, acl.Write, acl.Change} {
		if name == "" {
			continue
		}
		if file, ok := t.Get(ACLFile(name)); !ok || file.Kind != api.File {
			return name, true
		}
	}
	return "", false
}
