package cell

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/raftfsm"
)

// firstOperators returns the operators if this epoch begins the cell. It applies all of the log first to know
// that.
func (r *Replica) firstOperators() ([]string, error) {
	if len(r.cfg.Operators) == 0 || r.fsm.State().Cell != "" || r.cfg.supports < raftfsm.OperatorsLevel {
		return nil, nil
	}
	if err := r.raft.Barrier(2 * r.cfg.ElectionTimeout).Error(); err != nil {
		return nil, fmt.Errorf("apply the log: %w", err)
	}
	if r.fsm.State().Cell != "" {
		return nil, nil
	}
	return r.cfg.Operators, nil
}

// warnOfOperators warns of a cell where clients have names and no list names operators: it began before level
// 3, or insecure.
func (r *Replica) warnOfOperators() {
	state := r.fsm.State()
	if r.clientCerts == nil || state.HasOperators() {
		return
	}
	advice := fmt.Sprintf("make the list: chubbyctl acl file put /ls/%s/acl/operators PRINCIPAL; see docs/operations.md, \"After an upgrade from v0.1.0\"", r.cfg.Cell)
	if state.Level < raftfsm.OperatorsLevel {
		advice = "finish the upgrade of the cell (chubbyctl cell upgrade status); then " + advice
	}
	if len(r.cfg.Operators) > 0 {
		advice += fmt.Sprintf(". The key operators of the configuration (%s) is for a cell that begins, and is not used", strings.Join(r.cfg.Operators, ", "))
	}
	r.log.Warn("this cell has no list of operators: all clients may do what is for operators, and say who may do what, unless the ACL of the root forbids it",
		"event", "operators_missing", "advice", advice)
}
