package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s chubbyService) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnReply, error) {
	const op = "commit"
	about := &subject{}
	return inSession(s.service, op, about, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.TxnReply, error) {
		if err := checkTxn(q); err != nil {
			return nil, err
		}
		//mutant: mutation, err := mutationOf(who.Session, q.GetMutation(), txnParts(op, q)[:1]...) //by TestEveryFieldOfATxnIsAskedFor of ./cell
		mutation, err := mutationOf(who.Session, q.GetMutation(), txnParts(op, q)...)
		if err != nil {
			return nil, err
		}
		c, err := s.txnOf(m, who, q)
		if err != nil {
			return nil, err
		}
		c.Mutation = mutation
		result, err := m.Files.Commit(ctx, c)
		if err != nil {
			return nil, explainStep(m, about, c, q, result, err)
		}
		reply := &pb.TxnReply{}
		var stats []raftfsm.Stat
		if result.Written != nil {
			stats = *result.Written
		}
		for i := range min(len(stats), len(c.Operations)) {
			if c.Operations[i].Delete {
				reply.Stats = append(reply.Stats, &pb.Stat{})
				continue
			}
			written := stats[i]
			written.Name = c.Operations[i].Name
			described, err := written.In(m.Cell())
			if err != nil {
				return nil, err
			}
			told := []api.Stat{described}
			m.Sessions.Redact(who.Session, 0, true, told)
			reply.Stats = append(reply.Stats, pb.NewStat(told[0]))
		}
		return reply, nil
	})
}

// checkTxn checks the size of a transaction, and each step on its own.
func checkTxn(q *pb.TxnRequest) error {
	conditions, operations := q.GetConditions(), q.GetOperations()
	if len(conditions) > api.MaxTxnSteps || len(operations) > api.MaxTxnSteps {
		return api.Errorf(api.TooLarge, "a transaction of %d conditions and %d operations; at most %d of each are allowed", len(conditions), len(operations), api.MaxTxnSteps)
	}
	if len(conditions)+len(operations) == 0 {
		return api.Errorf(api.InvalidArgument, "a transaction that has neither conditions nor operations")
	}
	size := 0
	for i, c := range conditions {
		size += len(c.GetPath()) + len(c.GetSequencer())
		if !holdsSomething(c) {
			return &api.Error{Code: api.InvalidArgument, Path: c.GetPath(), Message: fmt.Sprintf("condition %d demands nothing; see the protocol for what it may", i+1)}
		}
	}
	for i, o := range operations {
		size += len(o.GetPath()) + len(o.GetContents())
		bad := func(format string, args ...any) error {
			return &api.Error{Code: api.InvalidArgument, Path: o.GetPath(), Message: fmt.Sprintf("operation %d ", i+1) + fmt.Sprintf(format, args...)}
		}
		switch o.GetAction() {
		case pb.TxnAction_TXN_ACTION_PUT, pb.TxnAction_TXN_ACTION_CREATE:
		case pb.TxnAction_TXN_ACTION_DELETE:
			if len(o.GetContents()) > 0 {
				return bad("deletes a node, and has contents")
			}
		default:
			return bad("has the action %d; see the protocol for its values", o.GetAction())
		}
	}
	if size > api.MaxContents {
		return api.Errorf(api.TooLarge, "the paths and contents of the transaction have %d bytes; at most %d are allowed: keep large data elsewhere and its address here", size, api.MaxContents)
	}
	return nil
}

func holdsSomething(c *pb.TxnCondition) bool {
	switch is := c.GetHolds().(type) {
	case *pb.TxnCondition_Generation:
		return true
	case *pb.TxnCondition_Instance:
		return is.Instance > 0
	case *pb.TxnCondition_Exists:
		return is.Exists
	case *pb.TxnCondition_Sequencer:
		return is.Sequencer != ""
	}
	return false
}

// txnParts returns the content of a transaction, for the hash of the request.
func txnParts(op string, q *pb.TxnRequest) [][]byte {
	count := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	parts := [][]byte{[]byte(op), count(len(q.GetConditions()))}
	for _, c := range q.GetConditions() {
		parts = append(parts, []byte(c.GetPath()))
		switch is := c.GetHolds().(type) {
		case *pb.TxnCondition_Generation:
			parts = append(parts, []byte("generation"), number(&is.Generation))
		case *pb.TxnCondition_Instance:
			parts = append(parts, []byte("instance"), number(&is.Instance))
		case *pb.TxnCondition_Exists:
			parts = append(parts, []byte("exists"))
		case *pb.TxnCondition_Sequencer:
			parts = append(parts, []byte("sequencer"), []byte(is.Sequencer))
		}
	}
	for _, o := range q.GetOperations() {
		parts = append(parts, count(int(o.GetAction())), []byte(o.GetPath()), o.GetContents())
	}
	return parts
}

func (s *service) txnOf(m *master.Master, who master.Caller, q *pb.TxnRequest) (*raftfsm.Txn, error) {
	c := &raftfsm.Txn{}
	for _, one := range q.GetConditions() {
		condition, err := s.conditionOf(m, who, one)
		if err != nil {
			return nil, err
		}
		c.Conditions = append(c.Conditions, condition)
	}
	named := map[api.Name]bool{}
	for _, one := range q.GetOperations() {
		path, err := s.pathOf(one.GetPath())
		if err != nil {
			return nil, err
		}
		o := raftfsm.Operation{Name: path.Name(), Contents: one.GetContents()}
		switch one.GetAction() {
		case pb.TxnAction_TXN_ACTION_CREATE:
			o.Create = api.MustCreate
		case pb.TxnAction_TXN_ACTION_PUT:
			o.Create = api.MayCreate
		default:
			o.Delete = true
		}
		if named[o.Name] {
			return nil, &api.Error{Code: api.InvalidArgument, Path: one.GetPath(), Message: "two operations of the transaction name this path: do it once"}
		}
		named[o.Name] = true
		c.Operations = append(c.Operations, o)
	}
	return c, nil
}

func (s *service) conditionOf(m *master.Master, who master.Caller, one *pb.TxnCondition) (c raftfsm.Condition, err error) {
	if text := one.GetSequencer(); text != "" {
		shown, err := m.Locks.Shown(who.Session, text)
		c.Sequencer = &shown
		return c, err
	}
	path, err := s.pathOf(one.GetPath())
	if err != nil {
		return c, err
	}
	c.Name = path.Name()
	switch is := one.GetHolds().(type) {
	case *pb.TxnCondition_Generation:
		c.Content = generation(&is.Generation)
	case *pb.TxnCondition_Instance:
		c.Instance = api.Generation(is.Instance)
	case *pb.TxnCondition_Exists:
		c.Exists = true
	}
	return c, nil
}

// explainStep adds the failed step to the error of a transaction, and its path to about, so that callers
// without a right there learn nothing. The log may have answered another request with the same hash, so the
// step may not fit.
func explainStep(m *master.Master, about *subject, c *raftfsm.Txn, q *pb.TxnRequest, result raftfsm.Result, err error) error {
	var e *api.Error
	if result.Refusal == nil || !errors.As(err, &e) {
		return err
	}
	told := *e
	step, conditions := result.Refusal.Step, len(c.Conditions)
	var path string
	switch {
	case step < 1 || step > conditions+len(c.Operations):
		return err
	case step <= conditions && c.Conditions[step-1].Sequencer != nil: // its caller may learn whether a sequencer is valid
		told.Path = m.Path(c.Conditions[step-1].Sequencer.Lock)
		told.Message = fmt.Sprintf("condition %d does not hold: %s", step, e.Message)
		return &told
	case step <= conditions:
		path = q.GetConditions()[step-1].GetPath()
		told.Message = fmt.Sprintf("condition %d: %s", step, e.Message)
	default:
		o := q.GetOperations()[step-conditions-1]
		path = o.GetPath()
		told.Message = fmt.Sprintf("operation %d, to %s: %s; nothing of the transaction was done", step-conditions, o.GetAction().Word(), e.Message)
		about.node = m.NodeNamed(c.Operations[step-conditions-1].Name)
	}
	told.Path, about.path = path, path
	if p, bad := api.ParsePath(path); bad == nil {
		//mutant: _ = p //by TestTxnTellsNothingWithoutARight of ./cell
		about.named = &master.Named{By: c.Mutation.Session, Path: p}
	}
	return &told
}
