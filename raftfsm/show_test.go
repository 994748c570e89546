package raftfsm_test

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/chubbylock/chubby/raftfsm"
)

// copyOf returns a command that shares nothing with c.
func copyOf(c raftfsm.Command) raftfsm.Command {
	data, err := raftfsm.Entry{Commands: []raftfsm.Command{c}}.Encode()
	if err != nil {
		panic(err)
	}
	entry, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	return entry.Commands[0]
}

// kindOf returns the name of the field of a command that is set.
func kindOf(c raftfsm.Command) string {
	if what := setField(c); what.IsValid() {
		return what.Type().Elem().Name()
	}
	return "nothing"
}

// setField returns the one field of a command that is set, a pointer; an invalid value if
// there is none.
func setField(c raftfsm.Command) reflect.Value {
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// show formats a command for people.
func show(c raftfsm.Command) string {
	if what := setField(c); what.IsValid() {
		return fmt.Sprintf("%s%+v", kindOf(c), what.Elem())
	}
	return "nothing"
}

// showResult formats a result without its empty fields.
func showResult(r raftfsm.Result) string {
	var b strings.Builder
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) {
			fmt.Fprintf(&b, "%s:%+v ", v.Type().Field(i).Name, f)
		}
	}
	if r.Stat != nil {
		fmt.Fprintf(&b, "Stat:%+v", *r.Stat)
	}
	return b.String()
}
