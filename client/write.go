package client

import (
	"context"
	"fmt"

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
