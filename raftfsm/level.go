package raftfsm

import (
	"reflect"
	"strconv"

	"github.com/chubbylock/chubby/api"
)

// MaxLevel is the newest feature level of this version; see "Feature levels" in the package documentation.
//
//	1  v0.1.0
//	2  nodes keep the time of the last write of their contents (Stat.ModifiedUnix);
//	   sessions that use what they have cached only under cache leases are known as such
//	3  cells are restored from backups; the list operators says who is one;
//	   the replicas of a cell change; it remembers who held a lock before;
//	   requests for locks name an owner, and one in a deadlock is refused;
//	   transactions change several files in one command; sequencers have a proof;
//	   the names of new nodes are in Unicode's normal form C
const MaxLevel = 3

// CacheLeaseLevel is the level from which sessions may have cache leases. Below it some replica might not wait
// for them.
const CacheLeaseLevel = 2

// OperatorsLevel is the level from which the list operators counts.
const OperatorsLevel = 3

// DeadlockLevel is the level from which a request for a lock that waits for itself may be refused.
const DeadlockLevel = 3

// spellingLevel is the level from which masters require Unicode's normal form C in new names. State.Apply does
// not check: replicas may differ in their Unicode tables.
const spellingLevel = 3

// WantsNFC reports whether masters require Unicode's normal form C in the names of new nodes.
func (s *State) WantsNFC() bool { return s.Level >= spellingLevel }

// proofLevel is the level from which the cell gives sequencers a proof, and demands it for later grants.
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

// Level returns the feature level that the state needs before its log may have the command: the highest at
// which a set field was added.
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

// checkCommand returns an error for a command that replicas of that level could not read.
func checkCommand(c Command, level int) error {
	if level >= MaxLevel { // most cells, most of the time
		return nil
	}
	if needed := c.Level(); needed > level {
		return NeedsLevel(needed, level)
	}
	return nil
}

// NeedsLevel returns the error for an action that a cell of that level cannot do yet.
func NeedsLevel(needed, level int) error {
	return api.Errorf(api.Unavailable, "this needs feature level %d, and the cell is at level %d: finish the upgrade of the cell (chubbyctl cell upgrade status)", needed, level)
}

// gates are the fields of a type that were added after level 1, and fields that contain such fields. nil for a
// type without any: its check costs nothing.
type gates struct {
	fields []gate // of a struct
	elem   *gates // of a pointer, a slice or an array
}

type gate struct {
	index int
	since int    // the level at which it was added
	in    *gates // the gates of its type
}

// commandGates is immutable and made once: encoding commands is a hot path.
var commandGates = gatesOf(reflect.TypeFor[Command]())

// gatesOf returns a type's gates. The types here are not recursive.
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

func sinceLevel(f reflect.StructField) int {
	level, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		return 1
	}
	return level
}

// level returns the highest level at which a set field of the value was added.
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
