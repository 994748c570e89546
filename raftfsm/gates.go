package raftfsm

import (
	"reflect"
	"strconv"

	"github.com/chubbylock/chubby/api"
)

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
