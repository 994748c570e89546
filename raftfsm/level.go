package raftfsm

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// MaxLevel is the newest feature level that this version of Chubby knows; see "Feature
// levels" in the documentation of the package.
//
//	1  v0.1.0
//	2  nodes keep the time of the last write of their contents (Stat.ModifiedUnix)
const MaxLevel = 2

// modifiedUnix is the time to keep with contents that are written at wall: 0 below level 2.
func (s *State) modifiedUnix(wall int64) int64 {
	if s.Level < 2 {
		return 0
	}
	return wall
}

// checkLevel returns ErrNewer for a level above the one that a replica knows.
func checkLevel(level, known int) error {
	if level > known {
		return fmt.Errorf("%w: it is of feature level %d, and this replica knows levels up to %d", ErrNewer, level, known)
	}
	return nil
}

// checkEntry returns ErrNewer if an entry takes the state to a level above the one that a
// replica knows. The level that a NewEpoch carries means nothing once the cell is
// bootstrapped: a newer master may be elected before the cell is taken to its level.
func (s *State) checkEntry(e Entry, known int) error {
	for _, c := range e.Commands {
		level := 0
		switch {
		case c.NewEpoch != nil && s.Cell == "":
			level = c.NewEpoch.Level
		case c.RaiseLevel != nil:
			level = c.RaiseLevel.To
		}
		if err := checkLevel(level, known); err != nil {
			return unreadable("a log entry", err)
		}
	}
	return nil
}

// raiseLevel takes the state to a higher level. It needs the right to change the ACL of
// the root.
func (s *State) raiseLevel(c *RaiseLevel) Result {
	return s.once(c.Mutation, nil, func() Result {
		root, _ := s.Tree.Get("")
		if err := s.Tree.Permit(root, s.principal(c.Mutation.Session), namespace.ToChange); err != nil {
			return refuse(err)
		}
		if c.To <= s.Level {
			return refuse(&refusal.Refusal{Cause: refusal.LevelReached, Used: int64(s.Level)})
		}
		s.Level = c.To
		return Result{}
	})
}

// Level returns the feature level that a state must have for the command to be put into
// its log: the highest that a field which is set was added at.
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

// checkCommand returns an error for a command that a state of that level must not have in
// its log: replicas that do not know more could not read it.
func checkCommand(c Command, level int) error {
	if needed := c.Level(); needed > level {
		return api.Errorf(api.Unavailable, "this needs feature level %d, and the cell is at level %d: finish the upgrade of the cell (chubbyctl cell upgrade status)", needed, level)
	}
	return nil
}

// gates are the fields of a type that were added after level 1, and those with such
// fields in them. A type without any has nil, which costs nothing to ask.
type gates struct {
	fields []gate // of a struct
	elem   *gates // of a pointer, a slice or an array
}

// gate is one of a struct's fields.
type gate struct {
	index int
	since int    // the level that it was added at
	in    *gates // what is in it
}

// commandGates is immutable and made once: commands are encoded in a hot path.
var commandGates = gatesOf(reflect.TypeFor[Command]())

// gatesOf returns the gates of a type. Types do not contain themselves here.
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

// level returns the highest level that what is set in a value was added at.
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
