package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// WriteOption qualifies Put, SetContents, SetACL and Delete, and is a condition of a Txn. All given options
// must hold; only a Txn takes two of one kind.
type WriteOption func(*writeOptions)

type writeOptions struct {
	ifGeneration *uint64
	ifSequencer  string // empty without such a condition
	noSequencer  bool   // IfSequencer got an empty sequencer
	ifExists     bool
	ifInstance   uint64 // 0 without such a condition
	badInstance  bool   // IfInstance got 0
	twice        bool   // two conditions of one kind
}

// IfGeneration makes a write conditional: the contents, or the ACL names, must still be at that generation,
// else the write fails with GenerationMismatch (Chubby §2.6). A generation of a path never returns, even if
// the file is created again. It is not for Delete; a Txn deletes on that condition.
func IfGeneration(g api.Generation) WriteOption {
	n := uint64(g)
	return func(o *writeOptions) { o.twice, o.ifGeneration = o.twice || o.ifGeneration != nil, &n }
}

// IfSequencer makes a write conditional: the sequencer must be valid at the moment of the write, else the
// write fails with BadSequencer and nothing is written. The writer need not hold the lock (Chubby §2.4). A
// zero Sequencer is never valid. With IfGeneration(0), Client.Put creates a file on this condition.
func IfSequencer(s sequencer.Sequencer) WriteOption {
	return func(o *writeOptions) {
		o.twice = o.twice || o.ifSequencer != ""
		o.ifSequencer = s.String()
		o.noSequencer = o.noSequencer || o.ifSequencer == "" // an empty text in a request means no condition
	}
}

// IfExists makes a transaction conditional: a node of that name must exist, else it fails with
// GenerationMismatch. It is for Txn only. (IfGeneration(0) requires an absent file.)
func IfExists() WriteOption { return func(o *writeOptions) { o.ifExists = true } }

// IfInstance makes a transaction conditional: the node must be that instance (Stat.Instance), with any
// contents, else it fails with GenerationMismatch. A node deleted and created again is another instance. It
// is for Txn only.
func IfInstance(g api.Generation) WriteOption {
	return func(o *writeOptions) { o.ifInstance, o.badInstance = uint64(g), g == 0 }
}

// writeOptionsOf returns the options of a change of one file. It rejects impossible conditions.
func writeOptionsOf(op, path string, options []WriteOption) (writeOptions, error) {
	o, err := optionsOf(op, path, options)
	switch {
	case err != nil:
	case o.ifExists || o.ifInstance != 0 || o.badInstance:
		err = &api.Error{Code: api.InvalidArgument, Op: op, Path: path,
			Message: "IfExists and IfInstance are conditions of transactions: use Client.Txn"}
	case o.twice: // a request has room for one, and all must hold
		err = &api.Error{Code: api.InvalidArgument, Op: op, Path: path,
			Message: "it has two conditions of one kind, and a change of one file can have one: use Client.Txn, which may have several"}
	}
	return o, err
}

// optionsOf returns the options. It rejects an empty sequencer.
func optionsOf(op, path string, options []WriteOption) (writeOptions, error) {
	var o writeOptions
	for _, option := range options {
		option(&o)
	}
	if o.noSequencer {
		return o, noSequencerError(op, path)
	}
	return o, nil
}

func noSequencerError(op, path string) error {
	return &api.Error{Code: api.BadSequencer, Op: op, Path: path,
		Message: "IfSequencer was given the zero Sequencer, or an invalid one, so nothing was sent; pass that of a lock (Lock.Sequencer)"}
}

// SetContents replaces the whole contents of a file. If ctx ends before an answer, the error is Uncertain:
// the write may have taken effect, but will not take effect after any later write of this client.
func (h *Handle) SetContents(ctx context.Context, contents []byte, options ...WriteOption) (api.Stat, error) {
	if err := checkContents(contents, "write", h.path); err != nil {
		return api.Stat{}, err
	}
	o, err := writeOptionsOf("write", h.path, options)
	if err != nil {
		return api.Stat{}, err
	}
	return h.mutate(ctx, "write", effectContents, len(contents), func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation, token []byte) (*chubbypb.Stat, error) {
		reply, err := t.data.chubby.SetContents(ctx, &chubbypb.SetContentsRequest{
			Caller: caller, Mutation: m, Handle: token, Contents: contents, IfGeneration: o.ifGeneration, IfSequencer: o.ifSequencer,
		})
		return reply.GetStat(), err
	})
}

func checkContents(contents []byte, op, path string) error {
	if len(contents) <= api.MaxContents {
		return nil
	}
	return &api.Error{Code: api.TooLarge, Op: op, Path: path,
		Message: fmt.Sprintf("the contents have %d bytes; a file holds at most %d, so store a pointer to where the data is", len(contents), api.MaxContents)}
}

// SetACL replaces the ACL names of a node; empty names leave them unchanged. The handle must have been opened
// with ChangeACL.
func (h *Handle) SetACL(ctx context.Context, acl api.ACL, options ...WriteOption) (api.Stat, error) {
	o, err := writeOptionsOf("set ACL", h.path, options)
	if err != nil {
		return api.Stat{}, err
	}
	return h.mutate(ctx, "set ACL", effectAny, 0, func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation, token []byte) (*chubbypb.Stat, error) {
		reply, err := t.data.chubby.SetACL(ctx, &chubbypb.SetACLRequest{
			Caller: caller, Mutation: m, Handle: token, Acl: aclToWire(acl), IfGeneration: o.ifGeneration, IfSequencer: o.ifSequencer,
		})
		return reply.GetStat(), err
	})
}

func aclToWire(a api.ACL) *chubbypb.ACL {
	return &chubbypb.ACL{Read: a.Read, Write: a.Write, Change: a.Change}
}

// Delete deletes the node. It fails with NotEmpty if the node has children, and with LockHeld if another
// holds its lock, unless that is kept and unused (OpenOptions.CacheLock). IfSequencer is the only option;
// IfGeneration is InvalidArgument. The handle must still be closed.
func (h *Handle) Delete(ctx context.Context, options ...WriteOption) error {
	o, err := writeOptionsOf("delete", h.path, options)
	if err != nil {
		return err
	}
	if o.ifGeneration != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "delete", Path: h.path,
			Message: "a node is deleted whatever its generation; leave IfGeneration out, or delete it in a Client.Txn, which may depend on one"}
	}
	_, err = h.mutate(ctx, "delete", effectAny, 0, func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation, token []byte) (*chubbypb.Stat, error) {
		_, err := t.data.chubby.Delete(ctx, &chubbypb.DeleteRequest{Caller: caller, Mutation: m, Handle: token, IfSequencer: o.ifSequencer})
		return nil, err
	})
	return err
}

// mutate makes a call that changes something, which returns the new metadata or nil. All its attempts carry the same
// token, as one request.
func (h *Handle) mutate(ctx context.Context, op string, does changeEffect, size int, send func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation, token []byte) (*chubbypb.Stat, error)) (stat api.Stat, err error) {
	ctx, leave, err := h.beginCall(ctx, op)
	if err != nil {
		return stat, err
	}
	defer leave()
	token := h.currentToken()
	err = h.client.mutate(ctx, mutation{
		op: op, path: h.path, size: size, touches: []api.Name{h.name, h.name.Parent()}, effectOf: func() changeEffect { return does },
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			now, err := send(ctx, t, caller, m, token)
			if err == nil && now != nil {
				stat, err = now.Stat()
			}
			return err
		},
	})
	return stat, h.poisonedError(op, err)
}

// Txn is a transaction: changes of several files made together, if all of its conditions hold, or not at all.
// Chained calls build it; it sends nothing before Commit, and is not safe for concurrent use.
//
// It has at most api.MaxTxnSteps conditions, and as many operations, and its paths and contents together at
// most api.MaxContents bytes. No two operations may name one path.
type Txn struct {
	client     *Client
	conditions []*chubbypb.TxnCondition
	operations []*chubbypb.TxnOperation
	touches    []api.Name
	size       int
	err        error // its first fault
}

// Txn begins a transaction.
func (c *Client) Txn() *Txn { return &Txn{client: c} }

// If adds conditions, which must all hold before the transaction's first operation:
//
//   - IfGeneration(g): the contents of the file are at the generation g; 0 stands for an absent file.
//   - IfInstance(g): the node is the instance g.
//   - IfExists(): a node of that name exists.
//   - IfSequencer(s): the sequencer is valid. It names its own lock, and path is ignored.
//
// Conditions on a node need the right to read or to write it, or, if it is absent, the nearest directory
// above. A condition on a file that the transaction does not change protects against concurrent writes, like
// a repeated read at the commit.
func (t *Txn) If(path string, conditions ...WriteOption) *Txn {
	if len(conditions) == 0 {
		return t.fail(api.InvalidArgument, path, "If was given no condition; give it IfExists() if any node will do")
	}
	for _, one := range conditions { // separately, so that both of two of one kind count
		o, err := optionsOf("commit", path, []WriteOption{one})
		c := &chubbypb.TxnCondition{Path: path}
		switch {
		case err != nil:
			return t.failWith(err)
		case o.badInstance:
			return t.fail(api.InvalidArgument, path, "IfInstance was given 0, which no node has; IfGeneration(0) is for a file that is absent")
		case o.ifSequencer != "":
			c = &chubbypb.TxnCondition{Holds: &chubbypb.TxnCondition_Sequencer{Sequencer: o.ifSequencer}}
		case o.ifExists:
			c.Holds = &chubbypb.TxnCondition_Exists{Exists: true}
		case o.ifInstance != 0:
			c.Holds = &chubbypb.TxnCondition_Instance{Instance: o.ifInstance}
		default:
			c.Holds = &chubbypb.TxnCondition_Generation{Generation: *o.ifGeneration}
		}
		if o.ifSequencer == "" {
			if _, ok := t.parse(path); !ok {
				return t
			}
		}
		t.conditions = append(t.conditions, c)
		t.size += len(c.GetPath()) + len(c.GetSequencer())
	}
	return t
}

// Put replaces the whole contents of a file in the transaction, and creates an absent one, in a directory
// that exists by then. Options are conditions, as in If. Keep the contents unchanged until Commit has
// returned.
func (t *Txn) Put(path string, contents []byte, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_PUT, path, contents, options)
}

// Create is Put of a file that must be absent, else the transaction is refused with Exists.
func (t *Txn) Create(path string, contents []byte, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_CREATE, path, contents, options)
}

// Delete deletes a file, or a directory that is empty by then, in the transaction. The transaction is refused
// with NotFound for an absent node, and with LockHeld if any session, also this one, holds its lock, unless
// the lock is kept and unused (OpenOptions.CacheLock). Options are conditions, as in If.
func (t *Txn) Delete(path string, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_DELETE, path, nil, options)
}

// Commit makes the changes, and returns the new metadata of the written files: one Stat for each operation,
// in order; the zero Stat for a Delete. Any error except Uncertain and SessionExpired says that nothing was
// done, and Error.Path which condition or operation it is about:
//
//   - GenerationMismatch: a condition on a file does not hold; get the files again, and begin anew.
//   - BadSequencer: a sequencer is invalid.
//   - The codes of Put and Delete: an operation cannot be done.
//   - PermissionDenied: also of a condition, without the right to look at the file. It does not reveal
//     whether the file exists.
//   - TooLarge, InvalidArgument: of the transaction itself; and of a cell that cannot do transactions yet,
//     because of an older version of Chubby (OlderMaster) or an unfinished upgrade.
//
// If ctx ends before an answer, the error is Uncertain: all of it may have been done, or may still be done,
// but not after any later change of this client. A Txn may be committed again, as a new request, and extended
// before.
func (t *Txn) Commit(ctx context.Context) ([]api.Stat, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	var stats []api.Stat
	err := t.client.mutate(ctx, mutation{
		//mutant: op: "commit", path: t.firstPath(), size: t.size, touches: t.touched()[:0], effectOf: func() changeEffect { return effectOn(stats) }, //by TestTxnLeavesNothingOldInCaches of ./cell
		op: "commit", path: t.firstPath(), size: t.size, touches: t.touched(), effectOf: func() changeEffect { return effectOn(stats) },
		send: func(ctx context.Context, target *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			reply, err := target.data.chubby.Txn(ctx, &chubbypb.TxnRequest{Caller: caller, Mutation: m, Conditions: t.conditions, Operations: t.operations})
			if err == nil {
				stats, err = statsOf(reply.GetStats())
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return stats, nil
}

func (t *Txn) operate(action chubbypb.TxnAction, path string, contents []byte, options []WriteOption) *Txn {
	if len(options) > 0 {
		t.If(path, options...)
	}
	p, ok := t.parse(path)
	if !ok {
		return t
	}
	if err := checkContents(contents, "commit", path); err != nil {
		return t.failWith(err)
	}
	t.operations = append(t.operations, &chubbypb.TxnOperation{Action: action, Path: path, Contents: contents})
	t.touches = append(t.touches, p.Name(), p.Parent().Name())
	t.size += len(path) + len(contents)
	return t
}

// parse checks a path; ok is false if the transaction has any fault.
func (t *Txn) parse(path string) (p api.Path, ok bool) {
	p, err := t.client.cell.parsePath("commit", path)
	if err != nil {
		t.failWith(err)
	}
	return p, t.err == nil
}

func (t *Txn) failWith(err error) *Txn {
	if t.err == nil {
		t.err = err
	}
	return t
}

func (t *Txn) fail(code api.Code, path, format string, args ...any) *Txn {
	return t.failWith(&api.Error{Code: code, Op: "commit", Path: path, Message: fmt.Sprintf(format, args...)})
}

func (t *Txn) check() error {
	switch conditions, operations := len(t.conditions), len(t.operations); {
	case t.err != nil:
	case conditions+operations == 0:
		return &api.Error{Code: api.InvalidArgument, Op: "commit", Message: "the transaction is empty"}
	case max(conditions, operations) > api.MaxTxnSteps:
		return &api.Error{Code: api.TooLarge, Op: "commit", Path: t.firstPath(),
			Message: fmt.Sprintf("the transaction has %d conditions and %d operations; at most %d of each are allowed", conditions, operations, api.MaxTxnSteps)}
	case t.size > api.MaxContents:
		return &api.Error{Code: api.TooLarge, Op: "commit", Path: t.firstPath(),
			Message: fmt.Sprintf("the paths and contents of the transaction have %d bytes; at most %d are allowed, so store pointers to where the data is", t.size, api.MaxContents)}
	}
	return t.err
}

// firstPath is the path of errors about no operation: the first operation's.
func (t *Txn) firstPath() string {
	for _, o := range t.operations {
		return o.GetPath()
	}
	for _, c := range t.conditions {
		return c.GetPath()
	}
	return ""
}

// touched returns the nodes that the transaction may change, each once. The list is the caller's own: an
// earlier Commit without an answer may still use its list.
func (t *Txn) touched() []api.Name {
	//mutant: slices.Sort(t.touches); return slices.Compact(t.touches) //by TestTxnAgainAfterDoubt of ./cell
	return slices.Compact(slices.Sorted(slices.Values(t.touches)))
}

// effectOn returns the changes of a transaction: contents only, if all of its files existed.
func effectOn(stats []api.Stat) changeEffect {
	for _, s := range stats {
		//mutant: if s.Instance == s.Content && false { //by TestTxnLeavesNothingOldInCaches of ./cell
		if s.Instance == s.Content { // created, or deleted
			return effectAny
		}
	}
	if len(stats) == 0 {
		return effectNone
	}
	return effectContents
}

func statsOf(list []*chubbypb.Stat) ([]api.Stat, error) {
	stats := make([]api.Stat, len(list))
	for i, s := range list {
		if s.GetPath() == "" {
			continue // of a deleted node
		}
		var err error
		if stats[i], err = s.Stat(); err != nil {
			return nil, err
		}
	}
	return stats, nil
}
