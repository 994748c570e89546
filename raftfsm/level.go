package raftfsm

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// MaxLevel is the newest feature level that this version of Chubby knows; see "Feature
// levels" in the documentation of the package.
//
//	1  v0.1.0
//	2  nodes keep the time of the last write of their contents (Stat.ModifiedUnix);
//	   sessions that use what they have cached only under cache leases are known as such
//	3  cells are restored from backups; the list operators says who is one;
//	   the replicas of a cell change; it remembers who held a lock before;
//	   requests for locks say for whom, and one of those that wait for each other is refused;
//	   transactions change several files in one command; sequencers have a proof;
//	   the names of new nodes are in Unicode's normal form C
const MaxLevel = 3

// CacheLeaseLevel is the level from which on sessions are known as such that have cache
// leases. Below it a replica of the cell may be one that would not wait for those.
const CacheLeaseLevel = 2

// OperatorsLevel is the level from which on the list operators says who is one.
const OperatorsLevel = 3

// DeadlockLevel is the level from which on a request for a lock may be refused because it waits for itself.
const DeadlockLevel = 3

// spellingLevel is the level from which on masters create no node whose name is not in Unicode's normal form C. State.Apply
// creates what it is asked to: replicas need not have the same tables of Unicode.
const spellingLevel = 3

// WantsNFC reports whether masters create no node whose name is not in Unicode's normal form C.
func (s *State) WantsNFC() bool { return s.Level >= spellingLevel }

// proofLevel is the level from which on the cell gives sequencers a proof, and demands it of those of later grants.
const proofLevel = 3

// HasProofs reports whether the cell gives sequencers a proof.
func (s *State) HasProofs() bool { return s.Level >= proofLevel }

// modifiedUnix returns the time to store with contents written at wall: 0 below level 2.
func (s *State) modifiedUnix(wall int64) int64 {
	//mutant: if s.Level < 1 {
	if s.Level < 2 {
		return 0
	}
	return wall
}

// checkLevel returns ErrNewer for a level above the highest that a replica
// knows.
func checkLevel(level, known int) error {
	if level > known {
		return fmt.Errorf("%w: it is of feature level %d, and this replica knows levels up to %d", ErrNewer, level, known)
	}
	return nil
}

// raiseLevel raises the state's level, for an operator.
func (s *State) raiseLevel(c *RaiseLevel) Result {
	return s.once(c.Mutation, nil, func() Result {
		if err := s.PermitOperator(s.principal(c.Mutation.Session)); err != nil {
			return refuse(err)
		}
		//mutant: if c.To == s.Level {
		if c.To <= s.Level {
			return refuse(&refusal.Refusal{Cause: refusal.LevelReached, Used: int64(s.Level)})
		}
		if !s.HasProofs() && c.To >= proofLevel {
			s.Unproved = api.Generation(s.Counter)
		}
		s.Level = c.To
		return Result{}
	})
}

// Level returns the feature level that a state must have before the command may be in its log: the
// highest level at which a field that is set was added.
func (c Command) Level() int {
	level := 1
	if commandGates != nil {
		level = commandGates.level(reflect.ValueOf(c))
	}
	if c.Cancel != nil && c.Cancel.Refusal != nil {
		level = max(level, c.Cancel.Refusal.Cause.Level())
	}
	return level
}

// checkCommand returns an error for a command that must not be in the log of a state of that level,
// because replicas that know no higher level could not read it.
func checkCommand(c Command, level int) error {
	if level >= MaxLevel { // most cells, most of the time: no command needs more
		return nil
	}
	if needed := c.Level(); needed > level {
		return NeedsLevel(needed, level)
	}
	return nil
}

// NeedsLevel is the error for what a cell of that level cannot do yet.
func NeedsLevel(needed, level int) error {
	return api.Errorf(api.Unavailable, "this needs feature level %d, and the cell is at level %d: finish the upgrade of the cell (chubbyctl cell upgrade status)", needed, level)
}

// gates are the fields of a type that were added after level 1, and the fields
// that contain such fields. For a type without any it is nil, and checking
// costs nothing.
type gates struct {
	fields []gate // of a struct
	elem   *gates // of a pointer, a slice or an array
}

// gate is one of a struct's fields.
type gate struct {
	index int
	since int    // the level at which it was added
	in    *gates // the gates of its type
}

// commandGates is immutable and made once: encoding commands is a hot path.
var commandGates = gatesOf(reflect.TypeFor[Command]())

// gatesOf returns the gates of a type. The types here are not recursive.
func gatesOf(t reflect.Type) *gates {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		if elem := gatesOf(t.Elem()); elem != nil {
			return &gates{elem: elem}
		}
	case reflect.Struct:
		var g gates
		for i := range t.NumField() {
			f := t.Field(i)
			if since, in := sinceLevel(f), gatesOf(f.Type); since > 1 || in != nil {
				g.fields = append(g.fields, gate{index: i, since: since, in: in})
			}
		}
		if len(g.fields) > 0 {
			return &g
		}
	}
	return nil
}

// sinceLevel returns the level at which a field was added.
func sinceLevel(f reflect.StructField) int {
	level, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		return 1
	}
	return level
}

// level returns the highest level at which a field that is set in the value was
// added.
func (g *gates) level(v reflect.Value) int {
	level := 1
	switch {
	case g == nil, v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		level = g.elem.level(v.Elem())
	case v.Kind() == reflect.Struct:
		for _, f := range g.fields {
			if field := v.Field(f.index); !field.IsZero() {
				level = max(level, f.since, f.in.level(field))
			}
		}
	default:
		for i := range v.Len() {
			level = max(level, g.elem.level(v.Index(i)))
		}
	}
	return level
}
