package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Txn is a transaction: changes of several files that are made together, if all of its conditions hold,
// or else not at all. It is put together by chained calls, sends nothing before Commit, and is not safe
// for concurrent use.
//
// It has at most api.MaxTxnSteps conditions, and as many operations, and its paths and contents have
// together at most api.MaxContents bytes. No two operations may name one path.
type Txn struct {
	client     *Client
	conditions []*chubbypb.TxnCondition
	operations []*chubbypb.TxnOperation
	touches    []api.Name
	size       int
	err        error // the first thing wrong with it
}

// Txn begins to put a transaction together.
func (c *Client) Txn() *Txn { return &Txn{client: c} }

// If has the transaction depend on conditions, all of which have to hold before its first operation:
//
//   - IfGeneration(g): the contents of the file are at the generation g; 0 stands for no file.
//   - IfInstance(g): the node is the instance g.
//   - IfExists(): there is a node of that name.
//   - IfSequencer(s): the sequencer is valid. It names its lock itself, and path is not looked at.
//
// Conditions on a node need the right to read or to write it; where there is none, one to the nearest
// directory above. Those that depend on a file and are not changed by the transaction protect it from
// what others write meanwhile, as a read that is repeated at the moment of the commit.
func (t *Txn) If(path string, conditions ...WriteOption) *Txn {
	if len(conditions) == 0 {
		return t.fail(api.InvalidArgument, path, "If was given no condition; give it IfExists() if any node will do")
	}
	for _, one := range conditions { // each by itself, so that of two of one kind both count
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

// Put has the transaction replace the whole contents of a file, and create it if it is absent, in a
// directory that exists by then. Options are conditions, as in If. The contents must not be changed
// before Commit has returned.
func (t *Txn) Put(path string, contents []byte, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_PUT, path, contents, options)
}

// Create is Put of a file that must be absent, else the transaction is refused with Exists.
func (t *Txn) Create(path string, contents []byte, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_CREATE, path, contents, options)
}

// Delete has the transaction delete a file, or a directory that is empty by then. The node must exist,
// else the transaction is refused with NotFound; and with LockHeld if anybody holds its lock, this
// session included, unless that is kept and not used (OpenOptions.CacheLock). Options are conditions,
// as in If.
func (t *Txn) Delete(path string, options ...WriteOption) *Txn {
	return t.operate(chubbypb.TxnAction_TXN_ACTION_DELETE, path, nil, options)
}

// Commit makes the changes, and returns the new metadata of each file that was written: one Stat for
// each operation, in the order in which they were given; the zero Stat for a Delete. Any error but
// Uncertain and SessionExpired says that nothing was done, and Error.Path, which condition or operation it is about:
//
//   - GenerationMismatch: a condition on a file does not hold; get the files again, and begin anew.
//   - BadSequencer: a sequencer is not valid, or not any more.
//   - The codes of Put and Delete: an operation cannot be done.
//   - PermissionDenied: of a condition, too, for want of the right to look at the file. Of a file
//     that is there no more is told than of one that is absent.
//   - TooLarge, InvalidArgument: of the transaction itself; and of a cell that cannot do transactions
//     yet, because it runs an older version of Chubby (OlderMaster) or its upgrade is not finished.
//
// If ctx ends before an answer, the error is Uncertain: all of it may have been done, or may be done
// yet, but will not be after any later change of this client. A Txn may be committed again, as a new
// request, and more may be added to it before.
func (t *Txn) Commit(ctx context.Context) ([]api.Stat, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	var stats []api.Stat
	err := t.client.mutate(ctx, mutation{
		//mutant: op: "commit", path: t.path(), size: t.size, touches: t.touched()[:0], effectOf: func() changeEffect { return effectOf(stats) }, //by TestTxnLeavesNothingOldInCaches of ./cell
		op: "commit", path: t.path(), size: t.size, touches: t.touched(), effectOf: func() changeEffect { return effectOf(stats) },
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

// operate adds an operation, and its conditions.
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

// parse checks a path; ok is false if anything is wrong with the transaction.
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

// check returns what is wrong with the transaction as a whole.
func (t *Txn) check() error {
	switch conditions, operations := len(t.conditions), len(t.operations); {
	case t.err != nil:
	case conditions+operations == 0:
		return &api.Error{Code: api.InvalidArgument, Op: "commit", Message: "the transaction is empty"}
	case max(conditions, operations) > api.MaxTxnSteps:
		return &api.Error{Code: api.TooLarge, Op: "commit", Path: t.path(),
			Message: fmt.Sprintf("the transaction has %d conditions and %d operations; at most %d of each are allowed", conditions, operations, api.MaxTxnSteps)}
	case t.size > api.MaxContents:
		return &api.Error{Code: api.TooLarge, Op: "commit", Path: t.path(),
			Message: fmt.Sprintf("the paths and contents of the transaction have %d bytes; at most %d are allowed, so store pointers to where the data is", t.size, api.MaxContents)}
	}
	return t.err
}

// path is what errors are about that concern no operation: the first of them.
func (t *Txn) path() string {
	for _, o := range t.operations {
		return o.GetPath()
	}
	for _, c := range t.conditions {
		return c.GetPath()
	}
	return ""
}

// touched returns the nodes that the transaction may change, each once. The list is the caller's own: that of an
// earlier Commit may still be in use, if it had no answer.
func (t *Txn) touched() []api.Name {
	//mutant: slices.Sort(t.touches); return slices.Compact(t.touches) //by TestTxnAgainAfterDoubt of ./cell
	return slices.Compact(slices.Sorted(slices.Values(t.touches)))
}

// effectOf returns what a transaction has changed: contents only, if all of its files were there before.
func effectOf(stats []api.Stat) changeEffect {
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

// statsOf decodes the metadata of what was written.
func statsOf(list []*chubbypb.Stat) ([]api.Stat, error) {
	stats := make([]api.Stat, len(list))
	for i, s := range list {
		if s.GetPath() == "" {
			continue // of a node that was deleted
		}
		var err error
		if stats[i], err = s.Stat(); err != nil {
			return nil, err
		}
	}
	return stats, nil
}
